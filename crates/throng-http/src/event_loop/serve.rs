//! Connections that the fast path does not serve: HTTP/2, other HTTP/1 requests, and WebSockets.

use super::{
    sent::Sent,
    shared::EventLoop,
    socket::{RefusedHead, Socket, plain},
};
use crate::{
    access_log::{Entry, UNKNOWN},
    answer,
    connection::{Connection, InFlight, OpenConnection, Stream},
    http1::{self, Departure, Extent, Judged},
    routes::{self, Answering},
    server::{Server, body::RequestBody},
    websocket::{self, Left, Opened},
};
use bytes::Bytes;
use http::{Method, Request, Response, Version};
use hyper::{
    body::{Body, Incoming},
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

/// Serves a connection that has left the fast path, in a task of its own.
pub(super) fn take_over(event_loop: Rc<EventLoop>, departure: Departure) {
    match departure {
        Departure::Full(open, stream, came) => drop(tokio::task::spawn_local(full(event_loop, open, stream, came))),
        Departure::Socket(open, stream, opened, left) => {
            drop(tokio::task::spawn_local(serve_socket(
                event_loop, open, stream, opened, left,
            )));
        }
    }
}

/// Serves an HTTP/2 connection, or one HTTP/1 request that the fast path does not answer.
async fn full(event_loop: Rc<EventLoop>, open: OpenConnection, stream: Stream, came: Bytes) {
    let connection = open.connection.clone();
    let wait = event_loop.server.limits().linger_wait;
    let extent = match http1::judge(&came, event_loop.server.limits()) {
        Judged::Http2 => return http2(&event_loop, &connection, stream, came).await,
        Judged::Unreadable => Extent::All,
        Judged::Request(extent) => extent,
        Judged::Wrong(problem) => {
            event_loop.server.metrics().problem(problem.slug());
            if event_loop.server.logs_next() {
                Entry::new(&connection, UNKNOWN, UNKNOWN).refused(&event_loop.server, &problem, None);
            }
            let mut stream = stream;
            let refused = RefusedHead::read(&came, &event_loop.server, connection.accepted_by());
            let bytes = plain(&problem, &refused);
            let told = connection.unless_dropped(pin!(tell(&mut stream, &bytes))).await;
            if let Some(Ok(())) = told {
                open.linger(stream, wait).await;
            }
            return;
        }
    };
    match exchange(&event_loop, &connection, stream, came, extent).await {
        After::Over => {}
        After::Linger(stream) => open.linger(stream, wait).await,
        After::Next(stream, came) => {
            let wire = http1::Wire::new(stream, event_loop.server.clone(), connection).with(came);
            event_loop.intake.enter(open, wire);
        }
        // A separate task, so that nothing that a request needs is kept with it.
        After::Socket(stream, came) if connection.is_console() => {
            tokio::task::spawn_local(async move {
                let socket = websocket::console::run(event_loop.server.clone(), connection, stream, came);
                open.connection.unless_dropped(pin!(socket)).await;
            });
        }
        After::Socket(stream, came) => {
            let (opened, left) = (Opened::new(&event_loop.server, &connection), Left::new(came));
            tokio::task::spawn_local(serve_socket(event_loop, open, stream, opened, left));
        }
    }
}

/// Serves a WebSocket until its client or a limit ends it, or until it returns to the fast path.
async fn serve_socket(event_loop: Rc<EventLoop>, open: OpenConnection, stream: Stream, opened: Opened, left: Left) {
    let (server, connection) = (event_loop.server.clone(), open.connection.clone());
    let socket = websocket::run(server.clone(), connection.clone(), stream, opened, left);
    if let Some(Some((stream, came, opened))) = connection.unless_dropped(pin!(socket)).await {
        let wire = http1::Wire::new(stream, server, connection).with(came);
        event_loop.intake.enter_socket(open, wire, opened);
    }
}

async fn tell(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The state of a connection after an HTTP/1 exchange.
enum After {
    Over,
    /// The client got the announced end.
    Linger(Stream),
    /// The next request, of which these bytes have arrived.
    Next(Stream, Bytes),
    Socket(Stream, Bytes),
}

/// Answers one HTTP/1 request that the fast path does not.
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
    let ended = connection.unless_dropped(pin!(polling)).await;
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

/// The handling of one request, common to HTTP/1 and HTTP/2.
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
        let (response, charge) = self.server.charged(response);
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
    if let Some(Err(error)) = connection.unless_dropped(pin!(polling)).await {
        tracing::debug!("a connection ended early: {error}");
    }
}
