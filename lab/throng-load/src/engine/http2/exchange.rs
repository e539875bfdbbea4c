//! A request on its stream, and the received part of its answer.

use std::future::Future as _;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};

use super::super::connection::InFlight;
use super::super::parser::BODY_KEPT_BYTES_MAX;
use crate::{ErrorKind, ResponseParts};

pub(super) struct Exchange {
    pub(super) in_flight: InFlight,
    /// The bytes that the connection had received when the request was sent.
    pub(super) heard_before: u64,
    /// The request, in case the peer returns it.
    bytes: Box<[u8]>,
    stage: Stage,
    upload: Option<SendStream<Bytes>>,
    status: u16,
    head: Vec<u8>,
    body: Vec<u8>,
}

enum Stage {
    Head(ResponseFuture),
    Body(RecvStream),
    /// The request could not be sent.
    Broken(ErrorKind),
}

/// A request that has ended.
pub(crate) struct Finished {
    pub(crate) in_flight: InFlight,
    /// The bytes of the connection since the last exchange that ended, including frames of others.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    result: Result<(), ErrorKind>,
    given_back: Option<Box<[u8]>>,
    status: u16,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Finished {
    /// Takes the request if the peer's GOAWAY says that it was not processed (RFC 9113 §6.8). It may be sent again.
    pub(crate) fn take_given_back(&mut self) -> Option<Box<[u8]>> {
        self.given_back.take()
    }

    pub(crate) fn result(&self) -> Result<ResponseParts<'_>, ErrorKind> {
        self.result.map(|()| ResponseParts {
            status: self.status,
            head: &self.head,
            body: &self.body,
        })
    }
}

impl Exchange {
    pub(super) fn begin(
        sender: &mut SendRequest<Bytes>,
        in_flight: InFlight,
        heard_before: u64,
        bytes: &[u8],
        (request, body): (http::Request<()>, Bytes),
    ) -> Self {
        let sent = sender
            .send_request(request, body.is_empty())
            .and_then(|(response, mut upload)| {
                if !body.is_empty() {
                    // `h2` keeps the body until the peer's window has room.
                    upload.send_data(body, true)?;
                }
                Ok((response, upload))
            });
        match sent {
            Ok((response, upload)) => Exchange {
                in_flight,
                heard_before,
                bytes: bytes.into(),
                stage: Stage::Head(response),
                upload: Some(upload),
                status: 0,
                head: Vec::new(),
                body: Vec::new(),
            },
            Err(error) => Exchange::broken(in_flight, kind_of(&error, false), bytes),
        }
    }

    pub(super) fn broken(in_flight: InFlight, kind: ErrorKind, bytes: &[u8]) -> Self {
        Exchange {
            in_flight,
            heard_before: 0,
            bytes: bytes.into(),
            stage: Stage::Broken(kind),
            upload: None,
            status: 0,
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Reads what has arrived. Ready when the answer is complete or has failed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ErrorKind>> {
        loop {
            match &mut self.stage {
                Stage::Head(response) => match ready!(Pin::new(response).poll(context)) {
                    Ok(response) => {
                        let (parts, body) = response.into_parts();
                        self.status = parts.status.as_u16();
                        self.head = head(self.status, &parts.headers);
                        self.stage = Stage::Body(body);
                    }
                    Err(error) => return Poll::Ready(Err(kind_of(&error, false))),
                },
                Stage::Body(body) => match ready!(body.poll_data(context)) {
                    Some(Ok(data)) => {
                        // Fails only for more bytes than were received.
                        let _ = body.flow_control().release_capacity(data.len());
                        let room = BODY_KEPT_BYTES_MAX - self.body.len();
                        self.body.extend_from_slice(&data[..data.len().min(room)]);
                    }
                    None => return Poll::Ready(Ok(())),
                    Some(Err(error)) => return Poll::Ready(Err(kind_of(&error, true))),
                },
                Stage::Broken(kind) => return Poll::Ready(Err(*kind)),
            }
        }
    }

    /// Tells the peer that the answer is not needed any more.
    pub(super) fn cancel(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.send_reset(Reason::CANCEL);
        }
    }

    pub(super) fn finish(
        self,
        result: Result<(), ErrorKind>,
        is_given_back: bool,
        (bytes_in, bytes_out): (u64, u64),
    ) -> Finished {
        Finished {
            in_flight: self.in_flight,
            bytes_in,
            bytes_out,
            result,
            given_back: is_given_back.then_some(self.bytes),
            status: self.status,
            head: self.head,
            body: self.body,
        }
    }
}

/// Returns the head in the format of HTTP/1.1, for looking up a header.
fn head(status: u16, headers: &http::HeaderMap) -> Vec<u8> {
    let mut head = Vec::with_capacity(128);
    let _ = write!(head, "HTTP/2 {status}\r\n");
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Returns the kind of an error of `h2`. `midway` means that the answer had begun.
pub(super) fn kind_of(error: &h2::Error, midway: bool) -> ErrorKind {
    if error.is_io() {
        // `h2` has no socket below it. Its I/O error means that the input has ended.
        return if midway {
            ErrorKind::ClosedMidway
        } else {
            ErrorKind::Closed
        };
    }
    match (error.is_remote(), error.is_go_away(), error.reason()) {
        (true, true, _) => ErrorKind::GoAway,
        (true, false, Some(Reason::REFUSED_STREAM)) => ErrorKind::RefusedStream,
        (true, false, _) => ErrorKind::StreamReset,
        (false, ..) => ErrorKind::Protocol,
    }
}
