//! Problem details (RFC 9457): every error has a stable type and a sentence that a person understands.

mod catalog;
mod engine;
mod parse;

pub(crate) use catalog::{CATALOG, find};
pub(crate) use engine::{engine_problem, title};

use crate::{
    Limits,
    admission::Reason,
    answer::{self, ResponseBody},
};
use catalog::Entry;
use http::{HeaderValue, Response, header};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use std::{borrow::Cow, time::Duration};

/// An answer, or the problem in its place.
pub(crate) type Answered<T> = Result<T, Box<Problem>>;

/// An error answer: the content of `application/problem+json`.
///
/// Its `type` is a relative reference below `/problems/`, where the gateway explains it. An entity's rejection has the type
/// `/problems/{code}` with its [`Rejection::code`](throng::model::Rejection::code). An app's handlers return it with `?` from an `ask`:
///
/// ```
/// # use throng::{Engine, model::{Entity, Error}};
/// # use throng_http::Problem;
/// async fn add<E: Entity>(engine: Engine, id: E::Id, command: E::Command) -> Result<axum::Json<E::Reply>, Problem> {
///     Ok(axum::Json(engine.entity::<E>(id).ask(command).await?))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Problem {
    slug: Cow<'static, str>,
    title: Cow<'static, str>,
    status: u16,
    detail: String,
    field: Option<String>,
    line: Option<u64>,
    column: Option<u64>,
    instance: Option<String>,
    rejection: Option<Box<RawValue>>,
    retry_after: Option<Duration>,
    allow: Option<HeaderValue>,
    /// The URL of the owner of the entity that refused, if clients get it.
    owner: Option<Box<HeaderValue>>,
    /// True if the answer asks for an upgrade to WebSocket.
    upgrade: bool,
}

impl Problem {
    /// Returns a problem of an app's own: the last part of its type, the HTTP status and a sentence.
    #[must_use]
    pub fn new(
        slug: impl Into<Cow<'static, str>>,
        status: u16,
        title: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            slug: slug.into(),
            title: title.into(),
            status,
            detail: detail.into(),
            field: None,
            line: None,
            column: None,
            instance: None,
            rejection: None,
            retry_after: None,
            allow: None,
            owner: None,
            upgrade: false,
        }
    }

    fn of(entry: &'static Entry, detail: impl Into<String>) -> Self {
        Self::new(entry.slug, entry.status, entry.title, detail)
    }

    /// 400: the request cannot be read.
    #[must_use]
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::of(&catalog::MALFORMED, detail)
    }

    pub(crate) fn unknown_route(path: &str) -> Self {
        let shapes = "/api/{kind}/{id}, /api/{kind}/{id}/{command} and others; /docs lists them";
        Self::of(
            &catalog::UNKNOWN_ROUTE,
            format!("There is nothing at {path}. The routes are {shapes}."),
        )
    }

    pub(crate) fn only_administration() -> Self {
        let detail =
            "This listener is for administration: /admin/, /metrics, /health/. The service itself has another.";
        Self::of(&catalog::UNKNOWN_ROUTE, detail)
    }

    pub(crate) fn no_administration_here() -> Self {
        let detail =
            "Administration and metrics have a listener of their own; the service's log names it at the start.";
        Self::of(&catalog::UNKNOWN_ROUTE, detail)
    }

    pub(crate) fn unknown_kind(found: &str, known: &[&str]) -> Self {
        let known = listed(known.iter().copied());
        Self::of(
            &catalog::UNKNOWN_KIND,
            format!("There is no kind {found:?}. There are: {known}."),
        )
    }

    pub(crate) fn only_commands(kind: &str) -> Self {
        Self::of(
            &catalog::UNKNOWN_QUERY,
            format!("The kind {kind} is one of actors: it has commands only, no queries, no events, no list."),
        )
    }

    pub(crate) fn unknown_command<'a>(kind: &str, found: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known = listed(known);
        Self::of(
            &catalog::UNKNOWN_COMMAND,
            format!("The kind {kind} has no command {found:?}. It has: {known}."),
        )
    }

    pub(crate) fn not_public(kind: &str, command: &str) -> Self {
        let detail = format!(
            "Clients cannot ask the command {command:?} of the kind {kind}: it is not in the kind's PUBLIC. Nothing was done."
        );
        Self::of(&catalog::NOT_PUBLIC, detail)
    }

    pub(crate) fn unknown_query<'a>(kind: &str, found: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known = listed(known);
        Self::of(
            &catalog::UNKNOWN_QUERY,
            format!("The kind {kind} has no query {found:?}. It has: {known}."),
        )
    }

    /// True if it concerns a kind, command or query that this program does not know.
    pub(crate) fn is_unknown_name(&self) -> bool {
        let entries = [
            &catalog::UNKNOWN_KIND,
            &catalog::UNKNOWN_COMMAND,
            &catalog::UNKNOWN_QUERY,
        ];
        entries.iter().any(|entry| entry.slug == self.slug)
    }

    pub(crate) fn unknown_problem(found: &str) -> Self {
        Self::of(
            &catalog::UNKNOWN_ROUTE,
            format!("{found:?} is not a problem type of the gateway. An entity's own are explained by its kind."),
        )
    }

    pub(crate) fn unknown_entity(kind: &str, id: &str) -> Self {
        Self::of(&catalog::UNKNOWN_ENTITY, format!("There is no {kind} {id:?}."))
    }

    pub(crate) fn method_not_allowed(method: &http::Method, allow: &str) -> Self {
        // `HEAD` is answered as `GET` is, to the byte of its length.
        let method = if method == http::Method::HEAD {
            &http::Method::GET
        } else {
            method
        };
        let mut problem = Self::of(
            &catalog::METHOD_NOT_ALLOWED,
            format!("{method} is not possible here; {allow} is."),
        );
        problem.allow = HeaderValue::from_str(allow).ok();
        problem
    }

    pub(crate) fn request_timeout(limits: &Limits) -> Self {
        let (seconds, grace) = (limits.body_wait.as_secs_f64(), limits.body_grace.as_secs_f64());
        let rate = limits.body_rate_min;
        let detail = format!(
            "The body did not arrive within {seconds} s, or with less than {rate} bytes a second after {grace} s. Nothing was done; send it again."
        );
        Self::of(&catalog::REQUEST_TIMEOUT, detail)
    }

    pub(crate) fn unsupported_media(found: &str) -> Self {
        let detail = match found {
            "" => "The request has no Content-Type; it has to be application/json.".into(),
            found => format!("The body's Content-Type is {found:?}; it has to be application/json."),
        };
        Self::of(&catalog::UNSUPPORTED_MEDIA, detail).at_field("Content-Type")
    }

    pub(crate) fn unsupported_charset(found: &str) -> Self {
        let detail = format!("The body's Content-Type says the charset {found:?}; JSON is UTF-8. Nothing was done.");
        Self::of(&catalog::UNSUPPORTED_MEDIA, detail).at_field("Content-Type")
    }

    pub(crate) fn unsupported_coding(found: &str) -> Self {
        let detail = format!(
            "The body's Content-Encoding is {found:?}; only identity is taken. Nothing was done; send the body as it is, not compressed."
        );
        Self::of(&catalog::UNSUPPORTED_MEDIA, detail).at_field("Content-Encoding")
    }

    pub(crate) fn misdirected(host: &str) -> Self {
        let detail = format!(
            "This service is not known as {host:?}, but as localhost, by its address, and by the names it was told. Nothing was done."
        );
        Self::of(&catalog::MISDIRECTED, detail).at_field("Host")
    }

    pub(crate) fn body_too_large(found: Option<u64>, limit: usize) -> Self {
        let found = found.map_or_else(|| format!("more than {limit}"), |found| found.to_string());
        Self::of(
            &catalog::TOO_LARGE,
            format!("The body has {found} bytes, at most {limit} are allowed. Nothing was done."),
        )
    }

    pub(crate) fn too_many_messages(most: usize) -> Self {
        let detail = format!("A frame may hold {most} messages, and this one holds more. None of them was executed.");
        Self::of(&catalog::TOO_LARGE, detail)
    }

    pub(crate) fn header_too_large(limit: usize) -> Self {
        let detail = format!(
            "The request line and header fields have more than {limit} bytes or 100 fields. Nothing was done; shorten them."
        );
        Self::of(&catalog::HEADER_TOO_LARGE, detail)
    }

    /// Returns the problem of a request that admission refused; `wait` is the present wait of other requests.
    pub(crate) fn refused(reason: Reason, wait: Duration) -> Self {
        match reason {
            Reason::Overload => Self::overloaded("Too much is waiting. Nothing was done; try again later.", wait),
            Reason::Share => {
                let detail = "Too much is waiting, and this client has its share of it. Nothing was done; send fewer requests at a time, or later.";
                let mut problem = Self::of(&catalog::TOO_MANY_REQUESTS, detail);
                problem.retry_after = Some(wait);
                problem
            }
        }
    }

    /// Returns the problem of a client that has exceeded its rate.
    pub(crate) fn too_often(who: &str, what: &str, a_second: u32, retry_after: Duration) -> Self {
        let detail = format!("{who} may {what} {a_second} times a second, and did more often. Nothing was done.");
        let mut problem = Self::of(&catalog::TOO_MANY_REQUESTS, detail);
        problem.retry_after = Some(retry_after);
        problem
    }

    pub(crate) fn upgrade_required(detail: &str) -> Self {
        let mut problem = Self::of(&catalog::UPGRADE_REQUIRED, detail);
        problem.upgrade = true;
        problem
    }

    /// Returns a 401: the caller is not authenticated, for this reason.
    #[must_use]
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::of(&catalog::UNAUTHORIZED, detail).at_field("Authorization")
    }

    /// Returns a 403: the caller may not do this, for this reason.
    #[must_use]
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::of(&catalog::FORBIDDEN, detail)
    }

    pub(crate) fn not_kept(detail: impl Into<String>) -> Self {
        Self::of(&catalog::NOT_KEPT, detail)
    }

    pub(crate) fn not_applied(detail: impl Into<String>) -> Self {
        Self::of(&catalog::NOT_APPLIED, detail)
    }

    pub(crate) fn no_administration() -> Self {
        let detail = "This service has no token for administration, and so lets only programs of its own machine administrate, by a listener bound to loopback, and not through a proxy.";
        Self::of(&catalog::NO_ADMINISTRATION, detail)
    }

    pub(crate) fn forbidden_origin(origin: &str) -> Self {
        let detail = format!("A page of {origin:?} may not ask this; the service would have to allow that origin.");
        Self::of(&catalog::FORBIDDEN_ORIGIN, detail).at_field("Origin")
    }

    pub(crate) fn history_lost(cursor: &str) -> Self {
        let detail = format!("The cursor {cursor:?} is not a place in this service's history. Begin anew.");
        Self::of(&catalog::HISTORY_LOST, detail).at_field("after")
    }

    pub(crate) fn slow_reader(waited: Duration) -> Self {
        let seconds = waited.as_secs_f64();
        let detail = format!(
            "Events waited {seconds} s for credit. Subscribe again after the cursor, and grant credit in time."
        );
        Self::of(&catalog::SLOW_READER, detail)
    }

    /// JSON that cannot be read.
    pub(crate) fn of_json(what: &str, why: &serde_json::Error) -> Self {
        let mut problem = Self::of_malformed(&why.to_string());
        problem.detail = format!("{what}: {why}.");
        problem
    }

    pub(crate) fn overloaded(detail: impl Into<String>, retry_after: Duration) -> Self {
        let mut problem = Self::of(&catalog::OVERLOADED, detail);
        problem.retry_after = Some(retry_after);
        problem
    }

    pub(crate) fn unavailable(detail: &str, retry_after: Duration) -> Self {
        let mut problem = Self::of(&catalog::UNAVAILABLE, detail);
        problem.retry_after = Some(retry_after);
        problem
    }

    pub(crate) fn expired() -> Self {
        Self::of(
            &catalog::EXPIRED,
            "The deadline passed before the request was looked at. Nothing was done; ask again.",
        )
    }

    pub(crate) fn crashed(reason: &str) -> Self {
        Self::of(
            &catalog::CRASHED,
            format!("The handler of this request crashed: {reason}."),
        )
    }

    /// Sets `Retry-After`, in whole seconds.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Names the field at fault.
    #[must_use]
    pub fn at_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets the request that it belongs to.
    #[must_use]
    pub fn at_instance(mut self, path: impl Into<String>) -> Self {
        self.instance = Some(path.into());
        self
    }

    /// Sets the owner of the entity that refused.
    pub(crate) fn owned_by(&mut self, owner: Option<HeaderValue>) {
        self.owner = owner.map(Box::new);
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the sentence that explains the error.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The last part of its type.
    #[must_use]
    pub fn slug(&self) -> &str {
        &self.slug
    }

    /// Returns the allowed methods, for a request with another one.
    pub(crate) fn allowed(&self) -> Option<&str> {
        self.allow.as_ref()?.to_str().ok()
    }

    pub(crate) fn boxed(self) -> Box<Self> {
        Box::new(self)
    }

    pub(crate) fn is_overload(&self) -> bool {
        self.retry_after.is_some()
    }

    pub(crate) fn http_status(&self) -> http::StatusCode {
        http::StatusCode::from_u16(self.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The problem as a response of the gateway.
    pub(crate) fn response(&self) -> Response<ResponseBody> {
        let body = serde_json::to_vec(self).unwrap_or_default();
        let mut response = answer::bytes(body, answer::PROBLEM_JSON);
        *response.status_mut() = self.http_status();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(allow) = &self.allow {
            headers.insert(header::ALLOW, allow.clone());
        }
        if let Some(owner) = &self.owner {
            headers.insert(answer::OWNER, (**owner).clone());
        }
        if self.status == catalog::UNAUTHORIZED.status {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.upgrade {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds_up(after)));
        }
        response
    }
}

/// Returns whole seconds, rounded up, at least one, for `Retry-After`.
fn seconds_up(duration: Duration) -> u64 {
    (duration.as_secs() + u64::from(duration.subsec_nanos() > 0)).max(1)
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &format_args!("/problems/{}", self.slug))?;
        map.serialize_entry("title", &self.title)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("detail", &self.detail)?;
        let Self {
            field,
            line,
            column,
            instance,
            rejection,
            ..
        } = self;
        field
            .as_ref()
            .map_or(Ok(()), |field| map.serialize_entry("field", field))?;
        line.map_or(Ok(()), |line| map.serialize_entry("line", &line))?;
        column.map_or(Ok(()), |column| map.serialize_entry("column", &column))?;
        instance
            .as_ref()
            .map_or(Ok(()), |instance| map.serialize_entry("instance", instance))?;
        rejection
            .as_ref()
            .map_or(Ok(()), |rejection| map.serialize_entry("rejection", rejection))?;
        if let Some(after) = self.retry_after {
            map.serialize_entry("retry_after_s", &seconds_up(after))?;
        }
        map.end()
    }
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.response().map(axum::body::Body::new)
    }
}
