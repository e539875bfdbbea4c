//! The next action that the received bytes ask for.

use super::{
    head::{self, Head, Parsed, Room},
    judge::PREFACE,
};
use crate::{
    caller::Sender,
    limits::Limits,
    request::{
        headers,
        path::{self, ApiPath},
    },
    routes::HttpCommand,
    server::body::RequestBody,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// A plain request's body at most.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

/// The next action that the received bytes ask for.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for the length of a look, on the stack"
)]
pub(super) enum Next<'a> {
    Command(PlainCommand<'a>),
    Else(Else),
}

/// An action that waits until earlier commands are answered.
pub(super) enum Else {
    Read,
    /// The request ends at this byte, and not all of it has arrived.
    ReadTo(usize),
    Other(Other),
    /// The request is for hyper, not for the fast path.
    HandOver,
}

/// A command, among the bytes that have come.
pub(super) struct PlainCommand<'a> {
    path: &'a str,
    place: (&'a str, &'a str, &'a str),
    sender: Sender<'a>,
    pub(super) headers: HeaderMap,
    pub(super) body: &'a [u8],
    pub(super) end: usize,
    pub(super) closes: bool,
}

impl PlainCommand<'_> {
    pub(super) fn head(&self) -> HttpCommand<'_> {
        HttpCommand {
            path: self.path,
            place: self.place,
            headers: &self.headers,
            sender: self.sender,
        }
    }
}

/// A request for any other route.
pub(super) struct Other {
    pub(super) request: Box<Request<RequestBody>>,
    /// The request has a header with a timeout of its own.
    pub(super) says_timeout: bool,
    pub(super) end: usize,
    pub(super) closes: bool,
}

/// Examines the received bytes.
pub(super) fn look<'a>(input: &'a [u8], known_host: Option<&'a [u8]>, limits: &Limits) -> Next<'a> {
    let mut room = Room::new(known_host);
    let (head, body) = match request(input, &mut room, limits) {
        Ok(request) => request,
        Err(other) => return Next::Else(other),
    };
    if head.method == "POST"
        // A page's request needs further header fields in the answer.
        && head.sender.origin.is_none()
        && let Some(ApiPath::Member(kind, id, name)) = path::place(head.path)
    {
        return Next::Command(PlainCommand {
            path: head.path,
            place: (kind, id, name),
            sender: head.sender,
            headers: head.telling(),
            body,
            end: head.body.end,
            closes: head.closes,
        });
    }
    Next::Else(other(&head, body))
}

/// Examines a command like any other request: it has to wait for more than its commit, or is refused.
pub(super) fn look_beyond_command(input: &[u8], limits: &Limits) -> Else {
    request(input, &mut Room::new(None), limits).map_or_else(|other| other, |(head, body)| other(&head, body))
}

/// Reads a complete request; otherwise returns what to do instead.
fn request<'a, 'room>(
    input: &'a [u8],
    room: &'room mut Room<'a>,
    limits: &Limits,
) -> Result<(Head<'a, 'room>, &'a [u8]), Else> {
    if input.is_empty() {
        return Err(Else::Read);
    }
    let body_bytes_max = limits.body_bytes_max.min(BODY_BYTES_MAX);
    let head = match head::parse(input, room, limits.header_bytes_max, body_bytes_max) {
        Parsed::Partial => return Err(Else::Read),
        // Half an HTTP/2 preface may still become another head.
        Parsed::Odd if input.len() < PREFACE.len() && PREFACE.starts_with(input) => return Err(Else::Read),
        Parsed::Odd => return Err(Else::HandOver),
        Parsed::Plain(head) => head,
    };
    match input.get(head.body.clone()) {
        Some(body) => Ok((head, body)),
        None => Err(Else::ReadTo(head.body.end)),
    }
}

/// A request that is no plain command.
fn other(head: &Head<'_, '_>, body: &[u8]) -> Else {
    owned(head, body).map_or(Else::HandOver, |request| {
        let says_timeout = head.fields().any(|(name, _)| headers::is_timeout(name));
        Else::Other(Other {
            request,
            says_timeout,
            end: head.body.end,
            closes: head.closes,
        })
    })
}

/// Returns a request as the routes take it; `None` if a part of it is invalid, which the full implementation explains.
fn owned(head: &Head<'_, '_>, body: &[u8]) -> Option<Box<Request<RequestBody>>> {
    let body = if body.is_empty() {
        Bytes::new()
    } else {
        Bytes::copy_from_slice(body)
    };
    let mut request = Box::new(Request::new(RequestBody::Here(body)));
    *request.method_mut() = Method::from_bytes(head.method.as_bytes()).ok()?;
    *request.uri_mut() = Uri::try_from(head.target).ok()?;
    let fields = head.fields();
    let headers = request.headers_mut();
    headers.reserve(fields.len());
    for (name, value) in fields {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).ok()?,
            HeaderValue::from_bytes(value).ok()?,
        );
    }
    Some(request)
}
