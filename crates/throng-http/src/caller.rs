//! The caller of a request, the access it asks for, and the header fields that identify it.

use crate::{
    admission::Client,
    problem::{Answered, Problem},
};
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header, request::Parts, uri::Authority};
use serde_json::{Map, Value};
use std::{
    convert::Infallible,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

/// An authenticated caller. An app's handler takes it as an extractor: `Option<Caller>`, or `Caller` to refuse all others with 401.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Known>);

#[derive(Debug)]
struct Known {
    name: String,
    means: Means,
    claims: Map<String, Value>,
}

/// The kind of credentials by which a caller was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A token of the service's own file.
    Token,
    /// A JSON web token.
    Jwt,
    /// The certificate of its TLS connection.
    Certificate,
}

/// True if a text can be a caller's name. Control characters, or blanks around it, could make it look like another name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.trim() == name && !name.chars().any(char::is_control)
}

impl Caller {
    pub(crate) fn new(name: impl Into<String>, means: Means, claims: Map<String, Value>) -> Self {
        Self(Arc::new(Known {
            name: name.into(),
            means,
            claims,
        }))
    }

    /// Returns the name: the token's in its file, the `sub` of a JSON web token, the subject of a certificate. Entities see it as
    /// [`Asker::Client`](throng::model::Asker::Client).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the number by which its requests are counted.
    pub(crate) fn client(&self) -> Client {
        let mut hasher = std::hash::DefaultHasher::new();
        ("caller", self.name()).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the kind of credentials.
    #[must_use]
    pub fn means(&self) -> Means {
        self.0.means
    }

    /// Returns all claims of a JSON web token; empty for other callers.
    #[must_use]
    pub fn claims(&self) -> &Map<String, Value> {
        &self.0.claims
    }
}

/// A role in administration. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May read `/metrics`, and nothing else.
    Metrics,
    /// Reads all that administration shows: the console, states, histories, dead messages, the audit.
    Viewer,
    /// Acts: retries, drops, quarantines, releases, rebuilds, sends commands.
    Operator,
    /// Removes for good: erases entities, prunes history.
    Owner,
}

const NAMES: [(&str, Role); 4] = [
    ("metrics", Role::Metrics),
    ("viewer", Role::Viewer),
    ("operator", Role::Operator),
    ("owner", Role::Owner),
];

impl Role {
    /// Returns its name, as files, flags and claims write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, role)| *role == self)
            .map_or("", |(name, _)| name)
    }

    /// Returns the role that a request of this method needs by default: reading needs a viewer.
    pub(crate) fn of_method(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Self::Viewer,
            _ => Self::Operator,
        }
    }

    /// Returns the role that a path below `/admin/` needs.
    pub(crate) fn of_path(method: &Method, path: &str) -> Self {
        match path {
            "/admin/erase" | "/admin/prune" => Self::Owner,
            // A trial records nothing.
            _ if path.ends_with("/what-if") => Self::Viewer,
            _ => Self::of_method(method),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, role)| *role)
            .ok_or_else(|| format!("{text:?} is no role: write metrics, viewer, operator or owner"))
    }
}

/// A person or program that has a role in administration.
#[derive(Clone, Debug)]
pub(crate) struct Administrates {
    /// The caller's name, the token's name in its file, `token` for the one of `--admin-token`, `local` for a program of this machine.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Administrates {
    /// Refuses what needs a greater role.
    pub(crate) fn need(self, needed: Role) -> Answered<Self> {
        if self.role >= needed {
            return Ok(self);
        }
        let Self { name, role } = self;
        let detail = format!("{name} has the role {role} in administration, and this needs {needed}.");
        Err(Problem::forbidden(detail).boxed())
    }
}

/// Whoever sends this may administrate, and sends it where administration comes in. An app's handler takes it as an extractor; everybody else
/// is refused with 404, as by the gateway's own routes for administration.
///
/// A viewer is one in requests that read (GET, HEAD); all others need an operator. A route whose GET changes something takes [`MayAct`], too.
#[derive(Clone, Copy, Debug)]
pub struct Administrator(pub(crate) Role);

impl Administrator {
    /// Returns the role in administration.
    #[must_use]
    pub fn role(self) -> Role {
        self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Administrator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts
            .extensions
            .get()
            .copied()
            .ok_or_else(Problem::no_administration_here)
    }
}

/// Refuses a viewer on the listener for administration, with 403. An app's handler takes it as an extractor where a GET changes something;
/// [`Once`](crate::Once) does so by itself. It lets all others in: what callers of the service may is for the service to say.
#[derive(Clone, Copy, Debug)]
pub struct MayAct(());

impl<S: Send + Sync> FromRequestParts<S> for MayAct {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let by = parts.extensions.get::<Administrates>().cloned();
        by.map_or(Ok(()), |by| by.need(Role::Operator).map(drop))
            .map_err(|problem| *problem)?;
        Ok(Self(()))
    }
}

/// This service knows callers by their credentials, whether or not this one has shown any. An app's handler takes it as an extractor,
/// `Option<KnowsCallers>`: nobody is to be told more than somebody.
#[derive(Clone, Copy, Debug)]
pub struct KnowsCallers(pub(crate) ());

impl<S: Send + Sync> OptionalFromRequestParts<S> for KnowsCallers {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().copied())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(|| Problem::unauthorized("This needs to know who asks."))
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// An access to an entity or a kind by its generic routes, for a service's hook ([`Gateway::authorize`](crate::Gateway::authorize)).
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The caller, if it is known.
    pub caller: Option<&'a Caller>,
    /// The name of the kind that is asked.
    pub kind: &'a str,
    /// The entity or actor; `None`: all of the kind.
    pub id: Option<&'a str>,
    /// The operation that the caller asks for.
    pub action: Action<'a>,
}

/// An operation on an entity or a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A command, by its serde name.
    Command(&'a str),
    /// A query, by its name.
    Query(&'a str),
    /// The events: past ones, and new ones as they are recorded.
    Events,
    /// The list of ids.
    List,
}

/// Fields of a request's head about its sender and its target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sender<'a> {
    pub(crate) host: Option<&'a [u8]>,
    /// The authority in the request's target, if any: HTTP/2, absolute form.
    pub(crate) authority: Option<&'a str>,
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) authorization: Option<&'a [u8]>,
    /// True if the `Content-Type` says JSON.
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

/// Credentials that a client has shown, and the caller they belong to.
pub(crate) struct ShownCredentials {
    pub(crate) shown: HeaderValue,
    pub(crate) caller: Caller,
}

impl ShownCredentials {
    /// Returns the credentials of a request admitted as this caller. `None`: there was no token that could expire.
    pub(crate) fn of(headers: &HeaderMap, caller: Option<&Caller>) -> Option<Self> {
        Some(Self {
            shown: headers.get(header::AUTHORIZATION)?.clone(),
            caller: caller?.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_no_control_characters_or_outer_blanks() {
        assert!(is_name("ann") && is_name("Ann Smith") && is_name("spiffe://example/desk"));
        for name in ["", " ", "ann ", " ann", "ann\r\nroot", "ann\u{1b}[0m", "a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn each_role_has_its_name_and_its_place() {
        for (name, role) in NAMES {
            assert_eq!((name.parse::<Role>(), role.name()), (Ok(role), name));
        }
        assert!(NAMES.is_sorted_by_key(|(_, role)| *role));
        assert!("Owner".parse::<Role>().unwrap_err().contains("metrics, viewer"));
    }
}
