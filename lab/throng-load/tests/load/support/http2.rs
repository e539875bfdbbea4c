//! An HTTP/2 server that does what a test tells it to, over TLS or with prior knowledge.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::{Reason, RecvStream, server};
use http::{Request, Response};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};

/// The server's treatment of a request.
pub(crate) enum Reply {
    /// Sends a complete answer with this status and body.
    Answer(u16, Bytes),
    /// Answers with the request's body, and with its length and one header as headers.
    Echo,
    /// Sends headers and a part of the announced body, and then ends the connection.
    HalfThenClose(Bytes),
    /// Ends the connection.
    Close,
    /// Resets the stream.
    Reset(Reason),
    /// Takes the request and never answers.
    Hang,
    /// Answers, and announces the end of the connection after the accepted streams.
    AnswerAndGoAway,
    /// Sends GOAWAY at once.
    GoAway(Reason),
}

/// The requests that the server saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The most streams at once on one connection.
    pub(crate) streams_max: AtomicUsize,
    /// Requests by connection.
    pub(crate) requests: Mutex<HashMap<usize, usize>>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    /// The certificate in PEM, if the server uses TLS.
    pub(crate) certificate: Option<String>,
}

type Respond = dyn Fn(usize, &Request<RecvStream>) -> Reply + Send + Sync;

impl Server {
    /// Starts a server. `reply` gets the number of the request (over all connections, from 0) and the request.
    pub(crate) fn start(reply: impl Fn(usize, &Request<RecvStream>) -> Reply + Send + Sync + 'static) -> Server {
        Self::start_with(None, 1000, reply)
    }

    /// Starts a server with TLS that offers these protocols, if given, and with at most `streams_max` streams on a connection.
    pub(crate) fn start_with(
        tls: Option<&[&str]>,
        streams_max: u32,
        reply: impl Fn(usize, &Request<RecvStream>) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Seen> = Arc::default();
        let (certificate, acceptor) = match tls.map(acceptor) {
            Some((certificate, acceptor)) => (Some(certificate), Some(acceptor)),
            None => (None, None),
        };
        let noted = seen.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .unwrap();
            let tasks = tokio::task::LocalSet::new();
            let reply: Arc<Respond> = Arc::new(reply);
            let count = Arc::new(AtomicUsize::new(0));
            tasks.block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                for number in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let (seen, reply, count) = (noted.clone(), reply.clone(), count.clone());
                    let acceptor = acceptor.clone();
                    tokio::task::spawn_local(async move {
                        match acceptor {
                            None => serve(stream, number, streams_max, seen, reply, count).await,
                            Some(acceptor) => {
                                if let Ok(stream) = acceptor.accept(stream).await {
                                    serve(stream, number, streams_max, seen, reply, count).await;
                                }
                            }
                        }
                    });
                }
            });
        });
        Server {
            address,
            seen,
            certificate,
        }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub(crate) fn options(&self, connections: usize, streams: usize) -> throng_load::Options {
        let mut options = throng_load::Options::new(throng_load::Target::resolve(&self.url(), false).unwrap());
        options.connections = connections;
        options.http2 = Some(streams);
        options.connect_timeout = std::time::Duration::from_secs(10);
        options.tls.insecure = true;
        options
    }
}

fn acceptor(protocols: &[&str]) -> (String, tokio_rustls::TlsAcceptor) {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_string()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    (certified.cert.pem(), Arc::new(config).into())
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    number: usize,
    streams_max: u32,
    seen: Arc<Seen>,
    reply: Arc<Respond>,
    count: Arc<AtomicUsize>,
) {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(streams_max);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    let under_way: Arc<AtomicUsize> = Arc::default();
    let (close, mut closed) = tokio::sync::mpsc::unbounded_channel::<()>();
    let mut hanging = Vec::new();
    loop {
        // A stream that is to end midway ends with the connection, once its first half was sent.
        let accepted = std::future::poll_fn(|context| {
            if let std::task::Poll::Ready(accepted) = connection.poll_accept(context) {
                return std::task::Poll::Ready(accepted);
            }
            closed.poll_recv(context).map(|_| None)
        });
        let Some(Ok((request, mut respond))) = accepted.await else {
            return;
        };
        *seen.requests.lock().unwrap().entry(number).or_default() += 1;
        let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
        seen.streams_max.fetch_max(now, Ordering::SeqCst);
        let answer = |status: u16| Response::builder().status(status).body(()).unwrap();
        match reply(count.fetch_add(1, Ordering::SeqCst), &request) {
            Reply::Answer(status, body) => {
                under_way.fetch_sub(1, Ordering::SeqCst);
                if let Ok(mut stream) = respond.send_response(answer(status), body.is_empty())
                    && !body.is_empty()
                {
                    let _ = stream.send_data(body, true);
                }
            }
            Reply::Echo => {
                let under_way = under_way.clone();
                tokio::task::spawn_local(async move {
                    let header = request.headers().get("x-in").cloned();
                    let mut body = request.into_body();
                    let mut all = Vec::new();
                    while let Some(Ok(data)) = body.data().await {
                        let _ = body.flow_control().release_capacity(data.len());
                        all.extend_from_slice(&data);
                    }
                    let mut answer = Response::builder().header("x-length", all.len());
                    if let Some(header) = header {
                        answer = answer.header("x-out", header);
                    }
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    if let Ok(mut stream) = respond.send_response(answer.body(()).unwrap(), false) {
                        let _ = stream.send_data(all.into(), true);
                    }
                });
            }
            Reply::HalfThenClose(body) => {
                if let Ok(mut stream) = respond.send_response(answer(200), false) {
                    let _ = stream.send_data(body, false);
                    hanging.push((respond, Some(stream)));
                }
                let close = close.clone();
                tokio::task::spawn_local(async move {
                    // Meanwhile the connection is polled, which writes its output.
                    tokio::task::yield_now().await;
                    let _ = close.send(());
                });
            }
            Reply::Close => return,
            Reply::Reset(reason) => {
                under_way.fetch_sub(1, Ordering::SeqCst);
                respond.send_reset(reason);
            }
            Reply::Hang => hanging.push((respond, None)),
            Reply::AnswerAndGoAway => {
                under_way.fetch_sub(1, Ordering::SeqCst);
                let _ = respond.send_response(answer(200), true);
                connection.graceful_shutdown();
            }
            Reply::GoAway(reason) => connection.abrupt_shutdown(reason),
        }
    }
}
