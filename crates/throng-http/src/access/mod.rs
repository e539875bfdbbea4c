//! Access: the caller of a request, the page it comes from, the service's name it uses, and whether it is allowed.
//!
//! Every way into the service passes [`enter`]: a command in the fast path, a command or an app's route in the full one, the request
//! that opens a WebSocket. What a client shows is looked at once: a loop remembers lately seen credentials until the files they rest on change, or
//! they expire.

mod administration;
pub(crate) mod cors;
mod handshake;
mod held;
mod rates;

pub(crate) use administration::administrates;
pub(crate) use handshake::{PROTOCOL, accept, accept_as};
pub(crate) use held::ends;
pub(crate) use rates::{RateOwner, refused, spend};

use crate::{
    caller::{Access, Action, Caller, Sender},
    connection::Connection,
    guard::{EventFilter, Part, bearer_token, jwt},
    problem::{Answered, Problem},
    server::Server,
};
use http::HeaderMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use throng::journal::StoredEvent;

/// The reason of a refusal for no credentials, which is nobody's attack.
const NO_CREDENTIALS: &str = "This service has to know who asks: send its token as Authorization: Bearer, or connect with a client certificate it takes.";

/// Lets a request in, and says who asks.
pub(crate) fn enter(server: &Server, connection: &Connection, sender: &Sender<'_>) -> Answered<Option<Caller>> {
    let accepted_by = connection.accepted_by();
    if accepted_by.is_admin {
        return Err(Problem::only_administration().boxed());
    }
    let is_known = sender.host.is_some() && sender.host == connection.known_host();
    if !is_known || sender.origin.is_some() || sender.authority.is_some() {
        let guard = &server.shared().guard;
        guard.names.check(sender, accepted_by.is_loopback, Part::Service)?;
        if let Some(host) = sender.host {
            connection.knows_host(host);
        }
    }
    who(server, connection, sender.authorization)
}

/// Returns the caller; `None` if the service authenticates nobody.
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

/// Returns the caller of these credentials, and when they expire, in seconds since 1970.
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

/// An event filter, and the caller and the kind whose events it is asked about.
#[derive(Clone)]
pub(crate) struct ShownEvents {
    filter: Option<EventFilter>,
    caller: Option<Caller>,
    kind: &'static str,
}

impl ShownEvents {
    pub(crate) fn new(server: &Server, caller: Option<&Caller>, kind: &'static str) -> Self {
        Self {
            filter: server.shared().guard.filter_events.clone(),
            caller: caller.cloned(),
            kind,
        }
    }

    /// True if the caller is shown this event of an entity.
    pub(crate) fn has(&self, id: &str, event: &StoredEvent) -> bool {
        let access = Access {
            caller: self.caller.as_ref(),
            kind: self.kind,
            id: Some(id),
            action: Action::Events,
        };
        self.filter.as_ref().is_none_or(|is_shown| is_shown(&access, event))
    }
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
