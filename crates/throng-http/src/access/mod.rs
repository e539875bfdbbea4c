//! Who asks, from which page, under which name of this service, and whether they may.
//!
//! Every way into the service passes [`enter`]: a command in the lane of plain requests, a command or an app's route in the full one, the request
//! that opens a WebSocket. What a client shows is looked at once: a loop remembers lately seen credentials until the files they rest on change, or
//! they expire.

mod browsers;
mod caller;
pub(crate) mod cors;
mod files;
mod held;
pub(crate) mod jwt;
mod names;
mod rates;
mod recent;
pub(crate) mod tls;
mod tokens;

pub(crate) use browsers::{BEARER, TICKET_LIFE, Tickets, take_offered};
pub use caller::{Access, Action, Administrator, Caller, KnowsCallers, Means};
pub use files::FileError;
pub(crate) use files::{LOOK_EVERY, Refresh};
use files::{Version, Watched};
pub(crate) use held::{Held, ends};
pub use jwt::Jwt;
pub(crate) use names::{Names, Part};
pub(crate) use rates::{RateOwner, Wrong, refused, spend};
pub(crate) use recent::Recent;
pub use tls::{Tls, check_private_key};
use tokens::Tokens;
pub use tokens::make_token;

use crate::{
    connection::Connection,
    openapi::Credentials,
    problem::{Answered, Problem},
    server::Server,
};
use http::{HeaderMap, HeaderValue, Request, Uri, header, request::Parts, uri::Authority};
use rustls::ServerConfig;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use throng::services::health::{Check, Reason, Status};

/// The reason of a refusal for no credentials, which is nobody's attack.
const NO_CREDENTIALS: &str = "This service has to know who asks: send its token as Authorization: Bearer, or connect with a client certificate it takes.";

/// Decides about each access, where a service has something to say.
pub(crate) type Hook = Box<dyn Fn(&Access<'_>) -> Result<(), Box<Problem>> + Send + Sync>;

/// Who is let in.
#[derive(Default)]
pub(crate) struct Guard {
    pub(crate) names: Names,
    pub(crate) authorize: Option<Hook>,
    pub(crate) tokens: Option<Arc<Watched<Tokens>>>,
    pub(crate) jwt: Option<Arc<jwt::Verifier>>,
    pub(crate) tls: Option<Arc<Watched<Arc<ServerConfig>>>>,
    /// Certificates of clients are asked for.
    pub(crate) has_certificates: bool,
    /// Who shows nothing is let in as nobody.
    pub(crate) lets_anonymous: bool,
    /// The token that lets its holder administrate.
    pub(crate) admin_token: Option<String>,
    /// The names of callers who may administrate.
    pub(crate) administrators: Vec<String>,
    /// Administration has a listener of its own.
    pub(crate) has_admin_listener: bool,
    /// Tickets by which browsers follow what happens.
    pub(crate) tickets: Tickets,
    /// Counts what was read again.
    pub(crate) version: Version,
    /// Sources that could not be read when they were looked at last. Written by the thread that looks at them.
    pub(crate) unread: Arc<AtomicUsize>,
}

/// Where a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entrance {
    /// By the listener for administration.
    pub(crate) is_admin: bool,
    /// Only programs of this machine reach that listener.
    pub(crate) is_loopback: bool,
}

/// What a request's head says of who sends it, and to whom.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sender<'a> {
    pub(crate) host: Option<&'a [u8]>,
    /// The authority of the request's target, where it has one: HTTP/2, absolute form.
    pub(crate) authority: Option<&'a str>,
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) authorization: Option<&'a [u8]>,
    /// The body is JSON, in so many words.
    pub(crate) is_json: bool,
}

impl<'a> Sender<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Self {
        Self::of_head(&parts.uri, &parts.headers)
    }

    pub(crate) fn of_request<B>(request: &'a Request<B>) -> Self {
        Self::of_head(request.uri(), request.headers())
    }

    fn of_head(target: &'a Uri, headers: &'a HeaderMap) -> Self {
        let field = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            host: field(header::HOST),
            authority: target.authority().map(Authority::as_str),
            origin: field(header::ORIGIN),
            authorization: field(header::AUTHORIZATION),
            is_json: field(header::CONTENT_TYPE) == Some(b"application/json"),
        }
    }
}

/// Where it stands who is let in.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) tokens: Option<PathBuf>,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) tls: Option<Tls>,
}

impl Guard {
    /// Reads the sources, and gives what has to be read again when it changes.
    pub(crate) fn read(&mut self, sources: Sources) -> Result<Vec<Arc<dyn Refresh>>, FileError> {
        let mut watched: Vec<Arc<dyn Refresh>> = Vec::new();
        if let Some(file) = sources.tokens {
            let read = |files: &[Vec<u8>]| Tokens::parse(&String::from_utf8_lossy(&files.concat()));
            let tokens = Arc::new(Watched::new(vec![file], read)?);
            watched.push(tokens.clone());
            self.tokens = Some(tokens);
        }
        if let Some(jwt) = sources.jwt {
            let verifier = Arc::new(jwt::Verifier::new(jwt)?);
            watched.push(verifier.clone());
            self.jwt = Some(verifier);
        }
        if let Some(tls) = sources.tls {
            self.has_certificates = tls.client_ca.is_some();
            let tls = Arc::new(Watched::new(tls.paths(), tls::read)?);
            watched.push(tls.clone());
            self.tls = Some(tls);
        }
        Ok(watched)
    }

    /// Tells of sources that could not be read: what was to be taken back holds on. Which one, and why, is in the log.
    pub(crate) fn check(unread: &AtomicUsize) -> Vec<Check> {
        if unread.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let reason =
            "a source of tokens, keys or certificates cannot be read, and what it said before holds: the log names it";
        vec![Check {
            name: "credentials".into(),
            status: Status::Warn,
            reason: Reason::Other(reason.into()),
        }]
    }

    /// How a caller is known.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            by_token: self.tokens.is_some() || self.jwt.is_some(),
            by_certificate: self.has_certificates,
            is_optional: self.lets_anonymous,
        }
    }

    /// Somebody's word is taken for who they are.
    pub(crate) fn authenticates(&self) -> bool {
        self.tokens.is_some() || self.jwt.is_some() || self.has_certificates
    }

    /// Whose credentials these are, and until when they hold.
    fn look_up(&self, authorization: &[u8]) -> Result<(Caller, Option<i64>), jwt::Refusal> {
        let no = |why: &str| jwt::Refusal::passing(Problem::unauthorized(why).boxed());
        let Some(token) = bearer_token(authorization) else {
            return Err(no("The header Authorization is not Bearer, with a token."));
        };
        // Of the service's own tokens none has a dot.
        if let Some(jwt) = self.jwt.as_ref().filter(|_| token.contains(&b'.')) {
            return jwt.verify(token);
        }
        let found = self.tokens.as_ref().and_then(|tokens| tokens.get().find(token));
        found.ok_or_else(|| no("The token is not one that this service takes."))
    }
}

/// Lets a request in, and says who asks.
pub(crate) fn enter(server: &Server, connection: &Connection, sender: &Sender<'_>) -> Answered<Option<Caller>> {
    let entrance = connection.entrance();
    if entrance.is_admin {
        return Err(Problem::only_administration().boxed());
    }
    let guard = &server.shared().guard;
    guard.names.check(sender, entrance.is_loopback, Part::Service)?;
    who(server, connection, sender.authorization)
}

/// Who asks. Nobody, where the service takes nobody's word.
pub(crate) fn who(server: &Server, connection: &Connection, authorization: Option<&[u8]>) -> Answered<Option<Caller>> {
    let guard = &server.shared().guard;
    if !guard.authenticates() {
        return Ok(None);
    }
    match authorization {
        Some(shown) => bearer(server, shown).map(|(caller, _)| Some(caller)),
        None => match connection.certified() {
            Some(caller) => Ok(Some(caller)),
            None if guard.lets_anonymous => Ok(None),
            None => Err(Problem::unauthorized(NO_CREDENTIALS).boxed()),
        },
    }
}

/// Waits until the key is known by which a token was signed, or is known not to be its issuer's: an issuer that has a new key signs with it at
/// once.
pub(crate) async fn key_is_known(server: &Server, shown: Option<&[u8]>) -> Answered<()> {
    let guard = &server.shared().guard;
    let (Some(jwt), Some(shown)) = (&guard.jwt, shown) else {
        return Ok(());
    };
    let is_known = {
        let mut recent = server.recent.borrow_mut();
        recent.find(guard.version.get(), shown).is_some() || recent.find_refused(shown).is_some()
    };
    match bearer_token(shown).filter(|token| !is_known && jwt.misses_key(token)) {
        None => Ok(()),
        Some(token) => {
            jwt.fetched_again().await?;
            if jwt.misses_key(token) {
                let problem = jwt::unknown_key();
                let until = Instant::now() + jwt::UNKNOWN_LIFE;
                server.recent.borrow_mut().keep_refused(shown, &problem, Some(until));
            }
            Ok(())
        }
    }
}

/// The token of a header field `Authorization`.
fn bearer_token(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whose credentials these are, and until when they hold, in seconds since 1970.
fn bearer(server: &Server, shown: &[u8]) -> Answered<(Caller, Option<i64>)> {
    let guard = &server.shared().guard;
    let version = guard.version.get();
    let mut recent = server.recent.borrow_mut();
    let (caller, until) = match recent.find(version, shown) {
        Some(known) => known,
        None => {
            if let Some(jwt) = &guard.jwt
                && let Some(problem) = recent.find_refused(shown)
            {
                jwt.want_unless_final(&problem);
                return Err(problem);
            }
            match guard.look_up(shown) {
                Ok(found) => {
                    recent.keep(shown, &found);
                    found
                }
                Err(refusal) => {
                    if refusal.is_final {
                        recent.keep_refused(shown, &refusal.problem, None);
                    }
                    return Err(refusal.problem);
                }
            }
        }
    };
    match until {
        Some(until) if until <= now() => Err(Problem::unauthorized("The token has expired.").boxed()),
        _ => Ok((caller, until)),
    }
}

/// In seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Asks the service's hook, if there is one.
pub(crate) fn may(
    server: &Server,
    caller: Option<&Caller>,
    (kind, id): (&str, Option<&str>),
    action: Action<'_>,
) -> Answered<()> {
    let access = Access {
        caller,
        kind,
        id,
        action,
    };
    let hook = server.shared().guard.authorize.as_ref();
    hook.map_or(Ok(()), |hook| hook(&access))
}

/// A proxy has passed the request on: it is its client's, not the proxy's own.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    const BY_PROXIES: [&str; 14] = [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-forwarded-for",
        "x-envoy-external-address",
        "x-azure-clientip",
        "cf-connecting-ip",
        "cf-connecting-ipv6",
        "true-client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "cdn-loop",
    ];
    let is_by_proxy = |name: &str| name.starts_with("x-forwarded") || BY_PROXIES.contains(&name);
    headers.keys().any(|name| is_by_proxy(name.as_str()))
}
