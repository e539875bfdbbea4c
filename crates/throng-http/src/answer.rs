//! Responses.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use hyper::body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// A response's body.
pub(crate) enum Answer {
    /// All of it; `None` once it is taken.
    Whole(Option<Bytes>),
    /// Of an app's handler.
    App(axum::body::Body),
    /// Live events, until their sender is dropped.
    Live(mpsc::Receiver<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::App(body) => Pin::new(body).poll_frame(context),
            Self::Live(receiver) => receiver
                .poll_recv(context)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::App(body) => body.is_end_stream(),
            Self::Live(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::App(body) => body.size_hint(),
            Self::Live(_) => SizeHint::default(),
        }
    }
}

/// A whole body of a media type, 200.
pub(crate) fn bytes(body: impl Into<Bytes>, media_type: HeaderValue) -> Response<Answer> {
    bytes_in(HeaderMap::with_capacity(6), body.into(), media_type)
}

/// The same, in the map of the request's header fields: the hot path allocates none.
fn bytes_in(mut headers: HeaderMap, body: Bytes, media_type: HeaderValue) -> Response<Answer> {
    headers.clear();
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let mut response = Response::new(Answer::Whole((!body.is_empty()).then_some(body)));
    *response.headers_mut() = headers;
    response
}

/// A reply, 200, in the map of the request's header fields.
pub(crate) fn reply(headers: HeaderMap, body: Vec<u8>) -> Response<Answer> {
    bytes_in(headers, body.into(), JSON)
}

/// A reply, 200.
pub(crate) fn json(body: impl Into<Bytes>) -> Response<Answer> {
    bytes(body, JSON)
}
