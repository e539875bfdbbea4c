//! The lane of plain requests: HTTP/1.1, a body of a known, small length, nothing to negotiate.
//!
//! Nearly every request of a service is one, and reading and writing it takes a fraction of what a full protocol
//! implementation spends on it. The lane does nothing else: at the first request that is not plainly its own it hands over
//! the connection, with the bytes that have come, to the [full lane](crate::event_loop), which judges it.
//!
//! Commands that came together (pipelined) are executed one after the other in one turn; their answers leave together, once
//! all of them are durable.

mod buffers;
mod head;
mod response;
mod wire;

use crate::{
    answer::Answer,
    event_loop::{Connection, Local},
    limits::Limits,
    request::{
        body::RequestBody,
        path::{self, Place},
    },
    routes,
};
pub(crate) use buffers::Buffers;

use bytes::Bytes;
use head::{Head, Parsed, Room};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Body;
use response::Framing;
use std::{future::poll_fn, io, pin::Pin, rc::Rc, task::Poll};
use tokio::net::TcpStream;
use wire::{Came, Wire};

/// A plain request's body at most.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Commands of one connection that are answered together at most.
const TOGETHER_MAX: usize = 32;
/// Bytes of answers that wait to leave together at most.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// How the lane is left.
pub(crate) enum End {
    /// The connection is over.
    Over,
    /// The next request is not the lane's: the connection, and what has come of the request.
    HandOver(TcpStream, Bytes),
}

/// Answers the plain requests of a connection.
pub(crate) async fn serve(local: &Rc<Local>, connection: &Rc<Connection>, stream: TcpStream) -> End {
    let mut wire = Wire::new(stream, local.clone(), connection.clone());
    match run(local, connection, &mut wire).await {
        Ok(true) => {
            let (stream, came) = wire.into_parts();
            End::HandOver(stream, came)
        }
        Ok(false) => End::Over,
        Err(error) => {
            tracing::debug!("a connection ended early: {error}");
            End::Over
        }
    }
}

/// What the bytes that have come ask for.
enum Next<'a> {
    Command(Command<'a>),
    Else(Else),
}

/// What waits until the commands before it are answered.
enum Else {
    /// More bytes.
    Read,
    /// So many bytes.
    ReadTo(usize),
    Other(Other),
    /// The full lane.
    HandOver,
}

/// A command, among the bytes that have come.
struct Command<'a> {
    path: &'a str,
    place: (&'a str, &'a str, &'a str),
    headers: HeaderMap,
    body: &'a [u8],
    end: usize,
    closes: bool,
}

/// A request for any other route.
struct Other {
    request: Box<Request<RequestBody>>,
    end: usize,
    closes: bool,
}

fn look<'a>(input: &'a [u8], limits: &Limits) -> Next<'a> {
    let body_bytes_max = limits.body_bytes_max.min(BODY_BYTES_MAX);
    let mut room = Room::new();
    let head = match head::parse(input, &mut room, limits.header_bytes_max, body_bytes_max) {
        Parsed::Partial => return Next::Else(Else::Read),
        Parsed::Odd => return Next::Else(Else::HandOver),
        Parsed::Plain(head) => head,
    };
    let (end, closes) = (head.body.end, head.closes);
    let Some(body) = input.get(head.body.clone()) else {
        return Next::Else(Else::ReadTo(end));
    };
    let path = head.path();
    if head.method == "POST"
        && let Some(Place::Member(kind, id, name)) = path::place(path)
    {
        return Next::Command(Command {
            path,
            place: (kind, id, name),
            headers: telling(&head),
            body,
            end,
            closes,
        });
    }
    Next::Else(request(&head, body).map_or(Else::HandOver, |request| Else::Other(Other { request, end, closes })))
}

/// The header fields that can tell a command something: all but those every client sends.
fn telling(head: &Head<'_, '_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in head.fields() {
        let is_usual = match name.len() {
            4 => name.eq_ignore_ascii_case("host"),
            6 => name.eq_ignore_ascii_case("accept"),
            10 => name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("user-agent"),
            12 => value == b"application/json" && name.eq_ignore_ascii_case("content-type"),
            14 => name.eq_ignore_ascii_case("content-length"),
            15 => name.eq_ignore_ascii_case("accept-encoding") || name.eq_ignore_ascii_case("accept-language"),
            _ => false,
        };
        if !is_usual
            && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.append(name, value);
        }
    }
    headers
}

/// A request as the routes take it; `None` if a part of it is not what it has to be, which the full lane explains.
fn request(head: &Head<'_, '_>, body: &[u8]) -> Option<Box<Request<RequestBody>>> {
    let mut request = Box::new(Request::new(RequestBody::Here(Bytes::copy_from_slice(body))));
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

/// `true`: what comes next is not the lane's.
async fn run(local: &Rc<Local>, connection: &Rc<Connection>, wire: &mut Wire) -> io::Result<bool> {
    let limits = local.limits();
    let mut together: Vec<routes::Staged> = Vec::new();
    let mut in_flight = None;
    loop {
        let next = match look(&wire.input, limits) {
            Next::Else(next) => next,
            Next::Command(command) => {
                in_flight.get_or_insert_with(|| connection.begin(Version::HTTP_11));
                let Command {
                    path,
                    place,
                    headers,
                    body,
                    end,
                    closes,
                } = command;
                let body = RequestBody::Here(Bytes::copy_from_slice(body));
                // Boxed: what it needs is done with before the next connection's, so that all use the same memory.
                let stage = Box::pin(routes::stage(local, connection, path, place, &headers, body));
                together.push(stage.await);
                wire.advance(end);
                if closes || wire.input.is_empty() || together.len() == TOGETHER_MAX {
                    settle(local, connection, wire, &mut together, closes).await?;
                    in_flight = None;
                    wire.flush().await?;
                    if closes || connection.is_ending() {
                        return Ok(false);
                    }
                }
                continue;
            }
        };
        settle(local, connection, wire, &mut together, false).await?;
        in_flight = None;
        wire.flush().await?;
        match next {
            Else::HandOver => return Ok(true),
            Else::Read => {
                if connection.is_ending() || wire.read().await? == Came::End {
                    return Ok(false);
                }
            }
            Else::ReadTo(end) => {
                in_flight = Some(connection.begin(Version::HTTP_11));
                if let Err(problem) = wire.read_to(end, limits).await? {
                    Box::pin(respond(local, connection, wire, problem.response(), true)).await?;
                    wire.flush().await?;
                    return Ok(false);
                }
            }
            Else::Other(Other { request, end, closes }) => {
                let in_flight = connection.begin(Version::HTTP_11);
                wire.advance(end);
                let response = Box::pin(routes::answer(local, connection, *request)).await;
                let closes = Box::pin(respond(local, connection, wire, response, closes)).await?;
                drop(in_flight);
                wire.flush().await?;
                if closes {
                    return Ok(false);
                }
            }
        }
    }
}

/// Waits until what was executed together is durable, and writes the answers down.
async fn settle(
    local: &Rc<Local>,
    connection: &Connection,
    wire: &mut Wire,
    together: &mut Vec<routes::Staged>,
    closes: bool,
) -> io::Result<()> {
    let count = together.len();
    for (at, staged) in together.iter_mut().enumerate() {
        let settled = routes::settle(local, staged).await;
        let closes = at + 1 == count && (closes || connection.is_ending());
        match settled {
            Ok(body) => local
                .date
                .with(|date| response::reply(wire.output(), &body, date, closes)),
            Err(problem) => {
                Box::pin(respond(local, connection, wire, problem.response(), closes)).await?;
            }
        }
    }
    together.clear();
    Ok(())
}

/// Writes a response down, or sends as much of it as there is; `true` if it is the connection's last.
async fn respond(
    local: &Rc<Local>,
    connection: &Connection,
    wire: &mut Wire,
    response: Response<Answer>,
    closes: bool,
) -> io::Result<bool> {
    let (parts, mut body) = response.into_parts();
    let closes = closes || connection.is_ending();
    let framing = match (parts.status, body.size_hint().exact()) {
        (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED, _) => Framing::Nothing,
        (status, _) if status.is_informational() => Framing::Nothing,
        (_, Some(length)) => Framing::Length(length as usize),
        (_, None) => Framing::Chunked,
    };
    local.date.with(|date| {
        response::head(wire.output(), parts.status, &parts.headers, framing, date, closes);
    });
    if framing == Framing::Nothing {
        return Ok(closes);
    }
    let mut left = match framing {
        Framing::Length(length) => Some(length),
        _ => None,
    };
    loop {
        let frame = poll_fn(|context| match Pin::new(&mut body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            // While nothing comes from the app, what has come of it leaves, and a client that goes away is noticed.
            Poll::Pending => wire.poll_gone(context).map(Err),
        })
        .await;
        match frame {
            Err(gone) => return Err(gone),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(io::Error::other(error)),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                match &mut left {
                    None => response::chunk(wire.output(), &data),
                    Some(left) => {
                        *left = left
                            .checked_sub(data.len())
                            .ok_or_else(|| io::Error::other("a response is longer than it said"))?;
                        wire.output().extend_from_slice(&data);
                    }
                }
                if wire.output().len() > OUTPUT_BYTES_MAX {
                    wire.flush().await?;
                }
            }
        }
    }
    match left {
        None => response::last_chunk(wire.output()),
        Some(0) => {}
        Some(_) => return Err(io::Error::other("a response is shorter than it said")),
    }
    Ok(closes)
}
