//! One connection, from its first byte to its last.

use super::{
    EventLoop, OpenConnection,
    socket::{RefusedHead, Socket, plain},
};
use crate::{
    access_log::{Entry, UNKNOWN},
    answer::{self, Sent},
    connection::{Connection, InFlight, Stream, Verdict, linger, spawn_stream},
    console,
    lane::{self, Extent, Judged},
    request::body::RequestBody,
    routes::{self, Answering},
    server::Server,
    websocket,
};
use bytes::Bytes;
use http::{Method, Request, Response, Version};
use hyper::{
    body::{Body, Incoming},
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWriteExt;

/// Runs what an HTTP/2 connection does beside, on the same loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTasks;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalTasks
where
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn_stream(future);
    }
}

/// Bytes of bodies of an HTTP/2 connection that its client may send before they are read.
const WINDOW_BYTES: u32 = 256 << 10;

/// How HTTP is spoken.
pub(super) struct Protocols {
    pub(super) http1: http1::Builder,
    http2: http2::Builder<LocalTasks>,
}

impl Protocols {
    pub(super) fn new(limits: &crate::Limits) -> Self {
        let head = limits.header_bytes_max.max(crate::limits::HEADER_BYTES_MIN);
        let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(LocalTasks));
        // Waits are bounded by the sweep, not by timers of the parser: a timer a request costs more than its parsing.
        http1.max_buf_size(head).header_read_timeout(None).half_close(false);
        http2
            .max_concurrent_streams(limits.streams_max)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
        Self { http1, http2 }
    }
}

/// Serves a connection until its client or a verdict ends it: in the lane of plain requests, until it is direct again; the full
/// implementation answers a request that is none.
pub(crate) async fn serve(open: OpenConnection, wire: lane::Wire, work: lane::Work) {
    let (event_loop, connection) = (open.event_loop.clone(), open.connection.clone());
    let lane = unless_dropped(&connection, pin!(lane::serve(&event_loop, &connection, wire, work))).await;
    match lane {
        None | Some(Ok(lane::End::Over)) => {}
        Some(Ok(lane::End::Linger(stream))) => end(open, stream).await,
        Some(Ok(lane::End::Direct(wire))) => event_loop.door.enter(open, wire),
        Some(Ok(lane::End::HandOver(stream, came))) => Box::pin(full(open, stream, came)).await,
        Some(Err(error)) => tracing::debug!("a connection ended early: {error}"),
    }
}

/// Ends a connection whose last answer has gone.
pub(crate) async fn end(open: OpenConnection, mut stream: Stream) {
    let wait = open.event_loop.server.limits().linger_wait;
    unless_dropped(&open.connection, pin!(linger(&mut stream, wait))).await;
}

/// What the lane does not answer itself.
async fn full(open: OpenConnection, stream: Stream, came: Bytes) {
    let (event_loop, connection) = (open.event_loop.clone(), open.connection.clone());
    let extent = match lane::judge(&came, event_loop.server.limits()) {
        Judged::Http2 => return http2(&event_loop, &connection, stream, came).await,
        Judged::Unreadable => Extent::All,
        Judged::Request(extent) => extent,
        Judged::Wrong(problem) => {
            event_loop.server.metrics().problem(problem.slug());
            if event_loop.server.logs_next() {
                Entry::new(&connection, UNKNOWN, UNKNOWN).refused(&event_loop.server, &problem, None);
            }
            let mut stream = stream;
            let refused = RefusedHead::read(&came, &event_loop.server, connection.entrance());
            let bytes = plain(&problem, &refused);
            let told = unless_dropped(&connection, pin!(tell(&mut stream, &bytes))).await;
            if let Some(Ok(())) = told {
                end(open, stream).await;
            }
            return;
        }
    };
    match exchange(&event_loop, &connection, stream, came, extent).await {
        After::Over => {}
        After::Linger(stream) => end(open, stream).await,
        After::Next(stream, came) => {
            let wire = lane::Wire::new(stream, event_loop.clone(), connection).with(came);
            event_loop.door.enter(open, wire);
        }
        // A task of its own: nothing of what a request needs is kept with it.
        After::Socket(stream, came) if connection.is_console() => {
            tokio::task::spawn_local(async move {
                let socket = console::live::run(event_loop, connection, stream, came);
                unless_dropped(&open.connection, pin!(socket)).await;
            });
        }
        After::Socket(stream, came) => {
            let opened = websocket::Opened::new(&event_loop, &connection);
            tokio::task::spawn_local(serve_socket(open, stream, opened, websocket::Left::new(came)));
        }
    }
}

/// Serves a WebSocket until its client or a verdict ends it, or it is the lane's.
pub(crate) async fn serve_socket(
    open: OpenConnection,
    stream: Stream,
    opened: websocket::Opened,
    left: websocket::Left,
) {
    let (event_loop, connection) = (open.event_loop.clone(), open.connection.clone());
    let socket = websocket::run(event_loop.clone(), connection.clone(), stream, opened, left);
    if let Some(Some((stream, came, opened))) = unless_dropped(&connection, pin!(socket)).await {
        let wire = lane::Wire::new(stream, event_loop.clone(), connection).with(came);
        event_loop.door.enter_socket(open, wire, opened);
    }
}

async fn tell(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// What comes after an HTTP/1 exchange.
enum After {
    Over,
    /// The client was told that it is over.
    Linger(Stream),
    /// The next request, of which this has come.
    Next(Stream, Bytes),
    Socket(Stream, Bytes),
}

/// Answers one HTTP/1 request that is not plain.
async fn exchange(
    event_loop: &Rc<EventLoop>,
    connection: &Rc<Connection>,
    stream: Stream,
    came: Bytes,
    extent: Extent,
) -> After {
    connection.exchanges();
    let socket = Socket::new(stream, came, extent, connection.clone(), &event_loop.server);
    let mut serving = event_loop
        .protocols
        .http1
        .serve_connection(socket, service_of(&event_loop.server, connection));
    let mut finishing = false;
    let polling = poll_fn(|context| {
        if connection.is_ending() && !finishing {
            finishing = true;
            Pin::new(&mut serving).graceful_shutdown();
        }
        match serving.poll_without_shutdown(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if connection.is_written() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    let ended = unless_dropped(connection, pin!(polling)).await;
    let Some(ended) = ended else { return After::Over };
    let parts = serving.into_parts();
    let is_over = parts.io.is_over() && parts.read_buf.is_empty();
    let (stream, came) = parts.io.into_parts();
    match ended {
        Some(Ok(())) if connection.is_socket() => After::Socket(stream, came),
        None if is_over && !connection.is_ending() => After::Next(stream, came),
        Some(Err(error)) => {
            tracing::debug!("a connection ended early: {error}");
            After::Linger(stream)
        }
        _ => After::Linger(stream),
    }
}

async fn unless_dropped<T>(connection: &Connection, mut serving: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| {
        connection.set_waker(context.waker());
        if connection.verdict() == Verdict::Drop {
            return Poll::Ready(None);
        }
        serving.as_mut().poll(context).map(Some)
    })
    .await
}

/// What both versions of HTTP do with a request.
struct Exchange {
    answering: Answering,
    /// Until it is answered.
    in_flight: Option<InFlight<Rc<Connection>>>,
    connection: Rc<Connection>,
    server: Rc<Server>,
    version: Version,
    is_head: bool,
}

impl Future for Exchange {
    type Output = Result<Response<Sent>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.answering).poll(context));
        let response = answer::without_forbidden_body(response, self.is_head);
        self.in_flight = None;
        let is_http2 = self.version == Version::HTTP_2;
        if !is_http2 && response.body().size_hint().exact().is_none() {
            self.connection.streams();
        }
        let (response, charge) = answer::charged(&self.server, response);
        let connection = self.connection.clone();
        Poll::Ready(Ok(response.map(|body| Sent::new(body, connection, is_http2, charge))))
    }
}

fn service_of(
    server: &Rc<Server>,
    connection: &Rc<Connection>,
) -> impl Service<Request<Incoming>, Response = Response<Sent>, Error = Infallible, Future: Unpin> + Unpin + use<> {
    let (server, connection) = (server.clone(), connection.clone());
    service_fn(move |request: Request<Incoming>| {
        let (version, is_head) = (request.version(), request.method() == Method::HEAD);
        let in_flight = InFlight::begin(connection.clone(), version);
        Exchange {
            answering: routes::answer(&server, &connection, request.map(RequestBody::Coming)),
            in_flight: Some(in_flight),
            connection: connection.clone(),
            server: server.clone(),
            version,
            is_head,
        }
    })
}

async fn http2(event_loop: &Rc<EventLoop>, connection: &Rc<Connection>, stream: Stream, came: Bytes) {
    connection.speaks_http2();
    let socket = Socket::new(stream, came, Extent::All, connection.clone(), &event_loop.server);
    let mut serving = pin!(
        event_loop
            .protocols
            .http2
            .serve_connection(socket, service_of(&event_loop.server, connection))
    );
    let mut finishing = false;
    let polling = poll_fn(|context| {
        if connection.is_ending() && !finishing {
            finishing = true;
            serving.as_mut().graceful_shutdown();
        }
        serving.as_mut().poll(context)
    });
    if let Some(Err(error)) = unless_dropped(connection, pin!(polling)).await {
        tracing::debug!("a connection ended early: {error}");
    }
}
