//! One connection, from its first byte to its last.

use super::{Connection, Guest, Local, connection::Verdict, socket::Socket, stream::Stream};
use crate::{lane, request::body::RequestBody, routes, websocket};
use bytes::Bytes;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::server::conn::auto;
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
};

/// Runs what an HTTP/2 connection does beside, on the same loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here;

impl<F: Future + 'static> hyper::rt::Executor<F> for Here
where
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// How HTTP is spoken.
pub(super) fn protocol(limits: &crate::Limits) -> auto::Builder<Here> {
    let mut builder = auto::Builder::new(Here);
    let head = limits.header_bytes_max.max(crate::limits::HEADER_BYTES_MIN);
    // Waits are bounded by the sweep, not by timers of the parser: a timer a request costs more than its parsing.
    builder
        .http1()
        .max_buf_size(head)
        .header_read_timeout(None)
        .half_close(false);
    builder
        .http2()
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
    builder
}

/// Serves a connection until its client or a verdict ends it: in the lane of plain requests, until it is direct again, or in the
/// full one from the first request on that is none.
pub(crate) async fn serve(guest: Guest, wire: lane::Wire, work: lane::Work) {
    let (local, connection) = (guest.local.clone(), guest.connection.clone());
    let lane = unless_dropped(&connection, pin!(lane::serve(&local, &connection, wire, work))).await;
    match lane {
        None | Some(lane::End::Over) => {}
        Some(lane::End::Direct(wire)) => local.door.enter(guest, wire),
        Some(lane::End::HandOver(stream, came)) => {
            Box::pin(full(local.clone(), connection.clone(), stream, came)).await;
            if let Some(stream) = connection.handed_over() {
                Box::pin(socket(local, connection, stream)).await;
            }
        }
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

/// A WebSocket, on the stream of a connection that became one.
async fn socket(local: Rc<Local>, connection: Rc<Connection>, stream: Stream) {
    unless_dropped(&connection, pin!(websocket::run(local, connection.clone(), stream))).await;
}

async fn full(local: Rc<Local>, connection: Rc<Connection>, stream: Stream, came: Bytes) {
    let socket = Socket::new(stream, came, connection.clone(), local.limits().header_bytes_max);
    let service = service_fn({
        let (local, connection) = (local.clone(), connection.clone());
        move |request: Request<Incoming>| {
            let (local, connection) = (local.clone(), connection.clone());
            async move {
                let _in_flight = connection.begin(request.version());
                let request = request.map(RequestBody::Coming);
                Ok::<_, Infallible>(routes::answer(&local, &connection, request).await)
            }
        }
    });
    let mut serving = pin!(local.protocol().serve_connection(socket, service));
    let mut finishing = false;
    let ended = unless_dropped(
        &connection,
        pin!(poll_fn(|context| {
            if connection.is_ending() && !finishing {
                finishing = true;
                serving.as_mut().graceful_shutdown();
            }
            serving.as_mut().poll(context)
        })),
    )
    .await;
    if let Some(Err(error)) = ended {
        tracing::debug!("a connection ended early: {error}");
    }
}
