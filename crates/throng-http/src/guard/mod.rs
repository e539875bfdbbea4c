//! Names, tokens, keys and certificates that decide who is admitted, and the files that hold them.

mod browsers;
mod der;
pub(crate) mod expiry;
mod files;
pub(crate) mod jwt;
mod names;
mod recent;
mod roles;
pub(crate) mod tls;
mod tokens;
mod wrong;

pub(crate) use browsers::{BEARER, TICKET_LIFE, Tickets, take_offered};
use expiry::Expiry;
pub(crate) use files::{LOOK_EVERY, Refresh};
use files::{Version, Watched};
pub use jwt::Jwt;
pub(crate) use names::{Names, Part};
pub(crate) use recent::Recent;
use roles::Roles;
pub use tls::{Tls, check_private_key};
use tokens::Tokens;
pub use tokens::make_token;
pub(crate) use wrong::Wrong;

use crate::{
    caller::{Access, Caller},
    error::FileError,
    openapi::Credentials,
    problem::Problem,
};
use rustls::ServerConfig;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use throng::{
    journal::StoredEvent,
    services::health::{Check, Reason, Status},
};

/// A service's hook that decides about each access.
pub(crate) type Hook = Box<dyn Fn(&Access<'_>) -> Result<(), Box<Problem>> + Send + Sync>;

/// A service's hook that decides whether an event is shown in an access.
pub(crate) type EventFilter = Arc<dyn Fn(&Access<'_>, &StoredEvent) -> bool + Send + Sync>;

/// The rules and credentials that decide who is admitted.
#[derive(Default)]
pub(crate) struct Guard {
    pub(crate) names: Names,
    pub(crate) authorize: Option<Hook>,
    pub(crate) filter_events: Option<EventFilter>,
    pub(crate) tokens: Option<Arc<Watched<Tokens>>>,
    pub(crate) jwt: Option<Arc<jwt::Verifier>>,
    pub(crate) tls: Option<Arc<Watched<Arc<ServerConfig>>>>,
    /// True if clients may authenticate by certificates.
    pub(crate) has_certificates: bool,
    /// Requests without credentials are let in, without a caller.
    pub(crate) lets_anonymous: bool,
    /// The roles in administration.
    pub(crate) roles: Roles,
    /// Administration has a listener of its own.
    pub(crate) has_admin_listener: bool,
    /// The tickets by which browsers follow events.
    pub(crate) tickets: Tickets,
    /// Counts the changes of files and URLs.
    pub(crate) version: Version,
    /// The number of sources whose last reading failed. Written by the thread that reads them.
    pub(crate) unread: Arc<AtomicUsize>,
    /// All that is read again.
    pub(crate) watched: Vec<Arc<dyn Refresh>>,
}

/// The files and URLs with credentials.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) tokens: Option<PathBuf>,
    /// Tokens for administration.
    pub(crate) admin_tokens: Option<PathBuf>,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) tls: Option<Tls>,
    /// Files with another reader.
    pub(crate) others: Vec<OtherFiles>,
}

/// Takes the contents of these files; the error says what is wrong with them.
type ReadFiles = Box<dyn Fn(&[Vec<u8>]) -> Result<(), String> + Send + Sync>;

/// Files besides those of the gateway, and the function that takes their contents.
pub(crate) struct OtherFiles {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) read: ReadFiles,
}

impl Guard {
    /// Reads the sources. Those that have to be read again when they change are [`watched`](Self::watched).
    pub(crate) fn read(&mut self, sources: Sources) -> Result<(), FileError> {
        let mut watched: Vec<Arc<dyn Refresh>> = Vec::new();
        if let Some(file) = sources.tokens {
            let read = |files: &[Vec<u8>]| Tokens::parse(&String::from_utf8_lossy(&files.concat()));
            let tokens = Arc::new(Watched::new(vec![file], read)?);
            watched.push(tokens.clone());
            self.tokens = Some(tokens);
        }
        if let Some(file) = sources.admin_tokens {
            let read = |files: &[Vec<u8>]| Tokens::parse_administration(&String::from_utf8_lossy(&files.concat()));
            let tokens = Arc::new(Watched::new(vec![file], read)?);
            watched.push(tokens.clone());
            self.roles.tokens = Some(tokens);
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
        for OtherFiles { paths, read } in sources.others {
            watched.push(Arc::new(Watched::new(paths, read)?));
        }
        self.watched = watched;
        Ok(())
    }

    /// Reports sources that could not be read, so that revoked credentials may still be valid. The log names them and the reason.
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

    /// Returns a function that lists the expiries of the certificates, one for each file.
    pub(crate) fn expiries(&self) -> impl Fn() -> Vec<Expiry> + Clone + Send + Sync + use<> {
        let watched = self.watched.clone();
        move || {
            let mut expiries: Vec<Expiry> = watched.iter().flat_map(|watched| watched.expiries()).collect();
            expiries.sort_by(|one, other| (&one.file, one.at).cmp(&(&other.file, other.at)));
            expiries.dedup_by(|one, other| one.file == other.file);
            expiries
        }
    }

    /// Returns the ways in which a caller is authenticated.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            by_token: self.tokens.is_some() || self.jwt.is_some(),
            by_certificate: self.has_certificates,
            is_optional: self.lets_anonymous,
        }
    }

    /// True if the service authenticates callers.
    pub(crate) fn authenticates(&self) -> bool {
        self.tokens.is_some() || self.jwt.is_some() || self.has_certificates
    }

    /// Returns the caller of an `Authorization` header, and when its credentials expire, in seconds since 1970.
    pub(crate) fn look_up(&self, authorization: &[u8]) -> Result<(Caller, Option<i64>), jwt::Refusal> {
        let no = |why: &str| jwt::Refusal::passing(Problem::unauthorized(why).boxed());
        let Some(token) = bearer_token(authorization) else {
            return Err(no("The header Authorization is not Bearer, with a token."));
        };
        // The service's own tokens have no dot.
        if let Some(jwt) = self.jwt.as_ref().filter(|_| token.contains(&b'.')) {
            return jwt.verify(token);
        }
        let found = self.tokens.as_ref().and_then(|tokens| tokens.get().find(token));
        found.ok_or_else(|| no("The token is not one that this service takes."))
    }
}

/// The token of a header field `Authorization`.
pub(crate) fn bearer_token(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}
