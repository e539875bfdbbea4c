//! A request's body, within its limits of size and time.

use crate::{event_loop::Connection, limits::Limits, problem::Problem, request::headers};
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Incoming};
use std::{future::poll_fn, pin::Pin, task::Poll};

/// A body that is too large is still taken, up to this many times the limit, so that the client reads why.
const DRAIN_FACTOR: u64 = 8;

/// A request's body.
pub(crate) enum RequestBody {
    /// All of it, within the limit.
    Here(Bytes),
    /// As it comes.
    Coming(Incoming),
}

/// Reads the body. The usual one, small and there already, is neither copied nor waited for.
pub(crate) async fn read(
    body: RequestBody,
    headers: &HeaderMap,
    limits: &Limits,
    connection: &Connection,
) -> Result<Bytes, Box<Problem>> {
    let mut body = match body {
        RequestBody::Here(bytes) => return Ok(bytes),
        RequestBody::Coming(body) => body,
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let limit = limits.body_bytes_max;
    if let Some(length) = headers::content_length(headers).filter(|length| *length > limit as u64) {
        if length <= DRAIN_FACTOR * limit as u64 && !headers.contains_key(http::header::EXPECT) {
            while next(&mut body, limits, connection).await?.is_some() {}
        }
        return Err(Problem::body_too_large(Some(length), limit).boxed());
    }
    let Some(first) = next(&mut body, limits, connection).await? else {
        return Ok(Bytes::new());
    };
    if first.len() <= limit && body.is_end_stream() {
        return Ok(first);
    }
    let mut all = Vec::with_capacity(
        headers::content_length(headers)
            .map_or(2 * first.len(), |length| length as usize)
            .min(limit),
    );
    let mut seen = first.len() as u64;
    all.extend_from_slice(&first[..first.len().min(limit)]);
    while let Some(data) = next(&mut body, limits, connection).await? {
        seen += data.len() as u64;
        if seen <= limit as u64 {
            all.extend_from_slice(&data);
        } else if seen > DRAIN_FACTOR * limit as u64 {
            break;
        }
    }
    if seen > limit as u64 {
        return Err(Problem::body_too_large(None, limit).boxed());
    }
    Ok(all.into())
}

/// The next piece of it; `None` at its end.
async fn next(body: &mut Incoming, limits: &Limits, connection: &Connection) -> Result<Option<Bytes>, Box<Problem>> {
    poll_fn(|context| {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else {
                if connection.waits_for_body(context.waker()) {
                    return Poll::Pending;
                }
                return Poll::Ready(Err(Problem::request_timeout(limits.body_wait).boxed()));
            };
            return Poll::Ready(match frame {
                None => Ok(None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Ok(Some(data)),
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
