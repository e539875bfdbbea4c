//! One connection, from its first byte to its last.

use super::{Connection, Local, connection::Verdict, socket::Socket};
use crate::routes;
use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};
use tokio::net::TcpStream;

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

/// Serves a connection until its client or a verdict ends it.
pub(super) async fn serve(local: Rc<Local>, connection: Rc<Connection>, stream: TcpStream) {
    let socket = Socket::new(stream, connection.clone(), local.limits().header_bytes_max);
    let service = service_fn({
        let (local, connection) = (local.clone(), connection.clone());
        move |request| {
            let (local, connection) = (local.clone(), connection.clone());
            async move { Ok::<_, Infallible>(routes::answer(&local, &connection, request).await) }
        }
    });
    let mut serving = pin!(local.protocol().serve_connection(socket, service));
    let mut finishing = false;
    poll_fn(|context| {
        connection.set_waker(context.waker());
        match connection.verdict() {
            Verdict::Serve => {}
            Verdict::Finish if finishing => {}
            Verdict::Finish => {
                finishing = true;
                serving.as_mut().graceful_shutdown();
            }
            Verdict::Drop => return Poll::Ready(()),
        }
        serving.as_mut().poll(context).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!("a connection ended early: {error}");
            }
        })
    })
    .await;
}
