//! Connections to servers, each with at most one request in flight, and the pool of idle ones.

use crate::hosts::Origin;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::{
    collections::HashMap,
    error::Error,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The time for which an idle connection may be used again: less than the five seconds after which common servers close it.
const IDLE: Duration = Duration::from_secs(4);
/// The most idle connections of a client.
const IDLE_CONNECTIONS_MAX: usize = 64;

/// A byte stream to a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that records whether bytes of a request may have been sent.
struct Watched {
    stream: Box<dyn Stream>,
    /// True for a TLS stream: a write to it that fails may have sent some bytes.
    is_tls: bool,
    /// Set by each write, cleared before each request. Both happen in the one task that owns the connection.
    is_written: Arc<AtomicBool>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if self.is_tls || matches!(written, Poll::Ready(Ok(1..))) {
            self.is_written.store(true, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A connection. It is polled only by the attempt that owns it, so nothing is written after that attempt ended.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    is_closed: bool,
    is_written: Arc<AtomicBool>,
    idle_since: Instant,
}

impl Connection {
    pub(crate) async fn over(stream: Box<dyn Stream>, is_tls: bool) -> Result<Self, String> {
        let is_written = Arc::new(AtomicBool::new(false));
        let watched = Watched {
            stream,
            is_tls,
            is_written: is_written.clone(),
        };
        let (sender, driver) = handshake(TokioIo::new(watched)).await.map_err(|why| whole(&why))?;
        Ok(Self {
            sender,
            driver: Box::pin(driver),
            is_closed: false,
            is_written,
            idle_since: Instant::now(),
        })
    }

    /// Tells whether bytes of the last request may have reached the server.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Relaxed)
    }

    /// Sends a request and reads its complete answer.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, String> {
        self.is_written.store(false, Relaxed);
        let Self {
            sender,
            driver,
            is_closed,
            ..
        } = self;
        let mut answering =
            pin!(async {
                sender.ready().await.map_err(|why| whole(&why))?;
                let answer = sender.send_request(request).await.map_err(|why| whole(&why))?;
                let (parts, body) = answer.into_parts();
                let body = Limited::new(body, bytes_max).collect().await.map_err(|why| {
                    match why.is::<LengthLimitError>() {
                        true => format!("the answer has more than {bytes_max} bytes, see HttpClient::answer_bytes_max"),
                        false => whole(&*why),
                    }
                })?;
                Ok(Response::from_parts(parts, body.to_bytes()))
            });
        let answer = poll_fn(|context| {
            let answer = answering.as_mut().poll(context);
            if answer.is_pending() && !*is_closed {
                // Work of the driver for the answer wakes this task again.
                *is_closed = driver.as_mut().poll(context).is_ready();
            }
            answer
        });
        let answer = answer.await;
        self.idle_since = Instant::now();
        answer
    }

    /// Tells whether the server has left the connection open.
    async fn is_open(&mut self) -> bool {
        let Self { driver, is_closed, .. } = self;
        poll_fn(|context| {
            *is_closed = *is_closed || driver.as_mut().poll(context).is_ready();
            Poll::Ready(!*is_closed)
        })
        .await
    }
}

/// Returns the text of an error with its causes.
pub(crate) fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The idle connections of a client.
#[derive(Default)]
pub(crate) struct Pool(Mutex<HashMap<Origin, Vec<Connection>>>);

impl Pool {
    /// Takes the open connection that was used last.
    pub(crate) async fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let mut connection = {
                let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                idle.get_mut(origin)?.pop()?
            };
            if connection.idle_since.elapsed() < IDLE && connection.is_open().await {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose answer was read, and closes those that were idle for too long.
    pub(crate) fn put(&self, origin: Origin, connection: Connection) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, connections| {
            connections.retain(|connection| connection.idle_since.elapsed() < IDLE);
            !connections.is_empty()
        });
        let count: usize = idle.values().map(Vec::len).sum();
        if count < IDLE_CONNECTIONS_MAX && !connection.is_closed {
            idle.entry(origin).or_default().push(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_testing::block_on;

    /// A stream that takes so many bytes, and then fails.
    struct Broken {
        takes: usize,
    }

    impl AsyncRead for Broken {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(std::mem::take(&mut self.takes));
            Poll::Ready(if taken > 0 {
                Ok(taken)
            } else {
                Err(io::Error::other("broken"))
            })
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn request_is_written_once_a_byte_may_have_left() {
        for (takes, is_tls, is_written) in [(0, false, false), (1, false, true), (0, true, true)] {
            let mut connection = block_on(Connection::over(Box::new(Broken { takes }), is_tls)).unwrap();
            let request = Request::post("/")
                .body(Full::new(Bytes::from_static(b"hello")))
                .unwrap();
            let failed = block_on(connection.exchange(request, 100)).unwrap_err();
            assert!(failed.contains("broken"), "{failed}");
            assert_eq!(connection.is_written(), is_written, "{takes} {is_tls}");
        }
    }
}
