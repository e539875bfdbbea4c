//! A response's body on its way through hyper.

use crate::{
    answer::ResponseBody,
    connection::{Connection, Going},
};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use throng::driver::Charge;

/// A body being sent in pieces. What the client does not take stays here. On HTTP/2 this reports the client's progress to the connection;
/// an HTTP/1 connection sees that itself, and only learns when all was passed on.
pub(crate) struct Sent {
    body: ResponseBody,
    /// Bytes taken from the body and not passed to hyper yet.
    rest: Bytes,
    going: Option<Going>,
    connection: Rc<Connection>,
    /// The memory of a large answer, until it is given.
    _charge: Option<Charge>,
}

/// The most bytes of one piece: a frame of HTTP/2.
const PIECE_BYTES: usize = 16 << 10;
/// The length above which a body of known length has a last piece of one byte. That piece is taken only after all before it, which reveals
/// a body that stays in the protocol's implementation.
const UNNOTICED_BYTES: usize = 256;

impl Sent {
    pub(crate) fn new(body: ResponseBody, connection: Rc<Connection>, is_http2: bool, charge: Option<Charge>) -> Self {
        Self {
            body,
            _charge: charge,
            rest: Bytes::new(),
            going: is_http2.then(|| Going::new(connection.clone())),
            connection,
        }
    }

    fn piece(&mut self) -> Bytes {
        let length = self.rest.len();
        let is_last = self.body.is_end_stream() && self.body.size_hint().exact().is_some();
        let fits = match length {
            2.. if is_last && length <= PIECE_BYTES && length > UNNOTICED_BYTES => length - 1,
            _ => length.min(PIECE_BYTES),
        };
        self.rest.split_to(fits)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if self.going.is_none() {
            self.connection.gave();
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Some(going) = &this.going {
            going.asked();
        }
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = this.piece();
        if let Some(going) = &this.going {
            going.given(piece.len());
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        match hint.exact() {
            Some(length) => hint.set_exact(length + rest),
            None => hint.set_lower(hint.lower() + rest),
        }
        hint
    }
}
