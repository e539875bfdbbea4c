//! The answer to a request, before it is written to a connection.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use throng::driver::Charge;
use tokio::sync::{Notify, mpsc};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// The header field that names the node which owns the answer's entity.
pub(crate) const OWNER: HeaderName = HeaderName::from_static("throng-owner");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// No script runs in it, and it is of no origin.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Forces a browser to treat an answer as data, whatever type its author has set: a page at the origin of administration would act with the
/// operator's rights.
pub(crate) fn as_data<B>(response: &mut Response<B>) {
    let headers = response.headers_mut();
    let is_data = |media: &str| {
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let data = [
            "application/json",
            "application/x-ndjson",
            "text/event-stream",
            "text/plain",
        ];
        data.contains(&&*media) || media.starts_with("application/") && media.ends_with("+json")
    };
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    if !media.is_some_and(is_data) {
        headers.insert(header::CONTENT_TYPE, TEXT);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
}

/// A response's body.
pub(crate) enum ResponseBody {
    /// All of it; `None` once it is taken.
    Whole(Option<Bytes>),
    /// The body that an app's handler returned.
    App(axum::body::Body),
    /// Live events, until their sender is dropped.
    Live(Pages),
}

/// A page of live events, charged to the memory of all pages.
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    pub(crate) charge: Charge,
}

/// The pages of a live stream, one at a time: the next one is made once the client has taken the one before.
pub(crate) struct Pages {
    made: mpsc::Receiver<Page>,
    asked: Arc<Notify>,
    is_asked: bool,
    /// The charge of the page that the client is taking.
    charge: Option<Charge>,
}

impl Pages {
    /// Returns the pages. `asked` is notified when the next one is wanted.
    pub(crate) fn new(made: mpsc::Receiver<Page>, asked: Arc<Notify>) -> Self {
        Self {
            made,
            asked,
            is_asked: false,
            charge: None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.charge = None;
        if !std::mem::replace(&mut self.is_asked, true) {
            self.asked.notify_one();
        }
        let page = ready!(self.made.poll_recv(context));
        self.is_asked = false;
        Poll::Ready(page.map(|Page { bytes, charge }| {
            self.charge = Some(charge);
            bytes
        }))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::App(body) => Pin::new(body).poll_frame(context),
            Self::Live(pages) => pages
                .poll(context)
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

/// A command's reply. The command is done, so the reply is sent even without memory for it.
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    /// The charge for a large reply.
    pub(crate) charge: Option<Charge>,
    /// The URL of the entity's owner, if clients get it. Boxed: most replies have none, and all are moved.
    pub(crate) owner: Option<Box<HeaderValue>>,
}

/// The charge of a reply, passed to the code that sends it.
#[derive(Clone)]
pub(crate) struct Charged(pub(crate) Arc<Charge>);

/// True if a response of this status has no body, and no header field with its length (RFC 9110 §6.4.1, §8.6).
pub(crate) fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Drops a body that the response must not have. The answer to `HEAD` still has the length that `GET` would have.
///
/// Dropping it ends a live stream before it begins.
pub(crate) fn without_forbidden_body(mut response: Response<ResponseBody>, is_head: bool) -> Response<ResponseBody> {
    if has_no_body(response.status()) {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    } else if is_head {
        // An app's router has set the length, and dropped the body.
        if let ResponseBody::Whole(bytes) = response.body() {
            let length = bytes.as_ref().map_or(0, Bytes::len);
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
    } else {
        return response;
    }
    response.map(|_| ResponseBody::Whole(None))
}

/// The methods of a path, 204.
pub(crate) fn options(allow: &str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(None));
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Ok(allow) = HeaderValue::try_from(allow) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// A whole body of a media type, 200.
pub(crate) fn bytes(body: impl Into<Bytes>, media_type: HeaderValue) -> Response<ResponseBody> {
    bytes_in(HeaderMap::with_capacity(6), body.into(), media_type)
}

/// Does the same in the map of the request's header fields, so that the hot path allocates none.
fn bytes_in(mut headers: HeaderMap, body: Bytes, media_type: HeaderValue) -> Response<ResponseBody> {
    headers.clear();
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let mut response = Response::new(ResponseBody::Whole((!body.is_empty()).then_some(body)));
    *response.headers_mut() = headers;
    response
}

/// A reply, 200, in the map of the request's header fields.
pub(crate) fn reply(headers: HeaderMap, Reply { body, charge, owner }: Reply) -> Response<ResponseBody> {
    let mut response = bytes_in(headers, body.into(), JSON);
    if let Some(owner) = owner {
        response.headers_mut().insert(OWNER, *owner);
    }
    if let Some(charge) = charge {
        response.extensions_mut().insert(Charged(Arc::new(charge)));
    }
    response
}

/// A reply, 200.
pub(crate) fn json(body: impl Into<Bytes>) -> Response<ResponseBody> {
    bytes(body, JSON)
}
