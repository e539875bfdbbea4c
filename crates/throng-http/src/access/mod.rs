//! Access: the caller of a request, the page it comes from, the host name it uses, and whether all that is allowed.
//!
//! Every way into the service passes [`enter`]: a command on the fast path, a command or an app's route on the full one, the request that
//! opens a WebSocket. Credentials are checked once: a loop remembers recent ones until the files they depend on change, or they expire.

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

/// The refusal without credentials. It does not count as an attack.
const NO_CREDENTIALS: &str = "This service has to know who asks: send its token as Authorization: Bearer, or connect with a client certificate it takes.";

/// Admits a request, and returns its caller.
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

/// Returns the caller; `None` if the service does not authenticate callers.
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

/// Waits until the key that signed a token is known, or is known not to be its issuer's. An issuer may sign with a new key at once.
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

/// Returns the caller of these credentials, and the time when they expire, in seconds since 1970.
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

/// Calls the service's authorization hook, if there is one.
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

/// An event filter, with the caller and the kind that it is called for.
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

/// True if a proxy has forwarded the request, so that it is not the proxy's own.
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
