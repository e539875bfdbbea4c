//! HTTP/2 without TLS, by prior knowledge.

use super::client::PATIENCE;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io::{Read, Write},
    net::SocketAddr,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

/// The body of a request.
type Body = BoxBody<Bytes, Infallible>;

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: SendRequest<Body>,
}

impl Http2 {
    /// Opens a connection, whose task ends with it.
    pub(crate) async fn new(
        address: SocketAddr,
        set: impl FnOnce(&mut Builder<TokioExecutor>),
    ) -> (Self, JoinHandle<()>) {
        Self::over(TcpStream::connect(address).await.unwrap(), set).await
    }

    /// Opens a connection over any byte stream.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        set: impl FnOnce(&mut Builder<TokioExecutor>),
    ) -> (Self, JoinHandle<()>) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        set(&mut builder);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        (Self { sender }, tokio::spawn(async { drop(connection.await) }))
    }

    /// Opens a connection that the client keeps alive by pings in any case.
    pub(crate) async fn lively(address: SocketAddr, window: u32) -> (Self, JoinHandle<()>) {
        let every = Duration::from_millis(5);
        let set = |builder: &mut Builder<TokioExecutor>| {
            builder.initial_stream_window_size(window);
            builder.keep_alive_interval(every).keep_alive_while_idle(true);
        };
        Self::new(address, set).await
    }

    /// Sends a request whose body arrives in pieces, until their sender is dropped.
    pub(crate) fn upload(
        &self,
        path: &str,
    ) -> (
        mpsc::UnboundedSender<&'static str>,
        JoinHandle<hyper::Result<Response<Incoming>>>,
    ) {
        let (pieces, coming) = mpsc::unbounded_channel::<&'static str>();
        let body = stream::unfold(coming, |mut coming| async {
            let piece = coming.recv().await?;
            Some((Ok(Frame::data(Bytes::from_static(piece.as_bytes()))), coming))
        });
        let request = self.request("POST", path, &[], StreamBody::new(body).boxed());
        (pieces, tokio::spawn(request))
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: Body,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        let is_typed = fields.iter().any(|(name, _)| *name == "content-type");
        let json = (!is_typed).then_some(("content-type", "application/json"));
        let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
        let request = json
            .iter()
            .chain(fields)
            .fold(request, |request, (name, value)| request.header(*name, *value))
            .body(body)
            .unwrap();
        let mut sender = self.sender.clone();
        async move { sender.send_request(request).await }
    }

    /// Sends a request. Returns the head of its answer.
    pub(crate) async fn begin(&self, method: &str, path: &str, body: &str) -> Response<Incoming> {
        self.begin_with(method, path, &[], body).await
    }

    /// Does the same with further header fields.
    pub(crate) async fn begin_with(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        self.try_begin(method, path, fields, body).await.unwrap()
    }

    /// Does the same for a stream that may be reset.
    pub(crate) async fn try_begin(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> hyper::Result<Response<Incoming>> {
        let body = http_body_util::Full::from(body.to_owned()).boxed();
        patiently(self.request(method, path, fields, body)).await
    }

    /// Sends a request without a body. Returns the head of its answer.
    pub(crate) async fn head(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Response<Incoming> {
        let body = http_body_util::Empty::new().boxed();
        patiently(self.request(method, path, fields, body)).await.unwrap()
    }

    /// Sends a request. Returns its answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        read(self.begin(method, path, body).await).await
    }
}

/// The first bytes of every connection, with empty settings.
pub(crate) const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The head of a received frame.
pub(crate) struct FrameHead {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The frame type `HEADERS`.
pub(crate) const HEADERS: u8 = 1;
/// The flag of the last frame of a stream.
pub(crate) const END_STREAM: u8 = 1;

/// A connection with visible frames.
pub(crate) struct Frames<S> {
    stream: S,
    /// The number of the last request's stream.
    last: u32,
}

impl<S: Read + Write> Frames<S> {
    pub(crate) fn over(mut stream: S) -> Self {
        stream.write_all(HELLO).unwrap();
        Self { stream, last: 0 }
    }

    /// Reads the next frame.
    pub(crate) fn next(&mut self) -> FrameHead {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        self.stream.read_exact(&mut payload).unwrap();
        let [_, _, _, kind, flags, stream @ ..] = head;
        FrameHead {
            kind,
            flags,
            stream: u32::from_be_bytes(stream),
            payload,
        }
    }

    /// Sends a request without a body.
    pub(crate) fn send(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) {
        self.last = if self.last == 0 { 1 } else { self.last + 2 };
        let pseudo = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", path),
        ];
        let mut block = Vec::new();
        for (name, value) in pseudo.iter().chain(fields) {
            // A literal field without indexing, with lengths of at most seven bits.
            block.push(0);
            for text in [name, value] {
                assert!(text.len() < 127, "{text}");
                block.push(text.len() as u8);
                block.extend_from_slice(text.as_bytes());
            }
        }
        let [high, low] = (block.len() as u16).to_be_bytes();
        const END_HEADERS: u8 = 4;
        self.stream
            .write_all(&[0, high, low, HEADERS, END_STREAM | END_HEADERS])
            .unwrap();
        self.stream.write_all(&self.last.to_be_bytes()).unwrap();
        self.stream.write_all(&block).unwrap();
    }

    /// Sends a request without a body, and returns the first frame of its answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> FrameHead {
        self.send(method, path, fields);
        loop {
            let frame = self.next();
            if frame.stream != 0 {
                assert_eq!(frame.stream, self.last, "a frame of a request that was answered");
                return frame;
            }
        }
    }
}

/// Reads a whole answer.
pub(crate) async fn read(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = patiently(response.into_body().collect()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Waits for at most the time after which a test fails.
pub(crate) async fn patiently<T>(wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.expect("it came to an end in time")
}
