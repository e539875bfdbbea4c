//! A request's body, within its limits of size and time.

use super::Server;
use crate::{
    connection::{Coming, Connection},
    problem::Problem,
    request::headers,
};
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Incoming};
use std::{future::poll_fn, pin::Pin, task::Poll};
use throng::driver::Charge;

/// The multiple of the limit up to which a body that is too large is still read, so that the client gets the refusal.
const DRAIN_FACTOR: u64 = 8;

/// A request's body.
pub(crate) enum RequestBody {
    /// All of it, within the limit.
    Here(Bytes),
    /// A body that hyper still receives.
    Coming(Incoming),
}

/// A body that was read, charged to the memory of all bodies.
struct Kept<T> {
    bytes: T,
    _taken: Charge,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Kept<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Reads the body. It counts as in flight until its bytes are dropped.
pub(crate) async fn read(
    body: &mut RequestBody,
    headers: &HeaderMap,
    server: &Server,
    connection: &Connection,
) -> Result<Bytes, Box<Problem>> {
    let body = match body {
        RequestBody::Here(bytes) => return Ok(std::mem::take(bytes)),
        RequestBody::Coming(body) => body,
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let limits = server.limits();
    let limit = limits.body_bytes_max;
    let mut reader = Reader {
        body,
        coming: Coming::new(connection),
        server,
    };
    if let Some(length) = headers::content_length(headers).filter(|length| *length > limit as u64) {
        if length <= DRAIN_FACTOR * limit as u64 && !headers.contains_key(http::header::EXPECT) {
            while reader.next().await?.is_some() {}
        }
        return Err(Problem::body_too_large(Some(length), limit).boxed());
    }
    let Some(first) = reader.next().await? else {
        return Ok(Bytes::new());
    };
    let mut taken = server.takes_body(None, first.len())?;
    if first.len() <= limit && reader.body.is_end_stream() {
        return Ok(Bytes::from_owner(Kept {
            bytes: first,
            _taken: taken,
        }));
    }
    let mut bytes = Vec::new();
    let (mut seen, mut next) = (0, Some(first));
    while let Some(data) = next {
        seen += data.len() as u64;
        if seen <= limit as u64 {
            bytes.extend_from_slice(&data);
            taken = server.takes_body(Some(taken), bytes.capacity())?;
        } else if seen > DRAIN_FACTOR * limit as u64 {
            break;
        }
        drop(data);
        next = reader.next().await?;
    }
    if seen > limit as u64 {
        return Err(Problem::body_too_large(None, limit).boxed());
    }
    Ok(Bytes::from_owner(Kept { bytes, _taken: taken }))
}

struct Reader<'a> {
    body: &'a mut Incoming,
    coming: Coming<&'a Connection>,
    server: &'a Server,
}

impl Reader<'_> {
    /// The next piece; `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Box<Problem>> {
        poll_fn(|context| {
            loop {
                let Poll::Ready(frame) = Pin::new(&mut *self.body).poll_frame(context) else {
                    if self.coming.waits(context.waker()) {
                        return Poll::Pending;
                    }
                    return Poll::Ready(Err(self.server.late_body()));
                };
                return Poll::Ready(match frame {
                    None => Ok(None),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            self.coming.came(data.len());
                            Ok(Some(data))
                        }
                        Err(_trailers) => continue,
                    },
                    Some(Err(_)) => {
                        Err(Problem::malformed("The body ended before it was complete. Nothing was done.").boxed())
                    }
                });
            }
        })
        .await
    }
}
