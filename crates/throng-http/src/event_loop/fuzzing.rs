//! Reads requests with hyper, as the connections do, but from bytes in memory. Fuzzing compares the fast path with it.

use super::shared::Protocols;
use crate::limits::Limits;
use http::{Request, Response};
use hyper::{
    body::{Body as _, Incoming},
    rt::{Read, ReadBufCursor, Write},
    service::service_fn,
};
use std::{
    cell::RefCell,
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

/// The most polls until a request has to be answered.
const LOOKS_MAX: usize = 16;

/// A request as its handler sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HandledRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// In the order of their names.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    /// `None` if it did not come to its end.
    pub(crate) body: Option<Vec<u8>>,
}

/// Bytes that arrive at once, and then nothing, in place of a connection. Written bytes are dropped.
struct Bytes<'a>(&'a [u8]);

impl Read for Bytes<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let (given, left) = self.0.split_at(self.0.len().min(buffer.remaining()));
        buffer.put_slice(given);
        self.0 = left;
        Poll::Ready(Ok(()))
    }
}

impl Write for Bytes<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn all(mut body: Incoming) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            all.extend_from_slice(&data);
        }
    }
    Some(all)
}

/// The first request of these bytes.
pub(crate) fn request(bytes: &[u8], limits: &Limits) -> Option<HandledRequest> {
    let seen = RefCell::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        let seen = &seen;
        async move {
            let (parts, body) = request.into_parts();
            let mut fields: Vec<_> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
                .collect();
            fields.sort();
            let body = all(body).await;
            seen.borrow_mut().get_or_insert(HandledRequest {
                method: parts.method.to_string(),
                target: parts.uri.to_string(),
                fields,
                body,
            });
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let protocols = Protocols::new(limits);
    let mut serving = pin!(protocols.http1.serve_connection(Bytes(bytes), service));
    let mut context = Context::from_waker(Waker::noop());
    // All is there at once: a few looks are enough.
    for _ in 0..LOOKS_MAX {
        if seen.borrow().is_some() || serving.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    seen.take()
}
