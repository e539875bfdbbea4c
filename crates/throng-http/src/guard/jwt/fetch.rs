//! A document at a URL, fetched regularly.

use crate::{error::FileError, guard::Refresh};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use hyper::{
    body::Body,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
};

/// The interval between two fetches.
const EVERY: Duration = Duration::from_mins(5);
/// The same while there is none, or a new one is wanted. Not at once: otherwise tokens with unknown keys would have the issuer asked all
/// the time.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest time that a fetch may take.
const WAIT: Duration = Duration::from_secs(5);
/// Bytes of the document at most.
const BYTES_MAX: usize = 1 << 20;

type Read<T> = fn(&[u8]) -> Result<T, String>;

/// A document that is fetched from a URL, and its newest value.
pub(super) struct Fetched<T> {
    url: String,
    uri: Uri,
    read: Read<T>,
    value: RwLock<Arc<T>>,
    /// True if a new document is wanted. Set by callers that need one; cleared by the fetching thread before each attempt.
    is_wanted: AtomicBool,
    last: Mutex<Last>,
    /// The number of attempts begun. The fetching thread raises it after it has cleared `is_wanted`.
    begun: AtomicU64,
    /// Sends the result of each attempt.
    tries: watch::Sender<Tried>,
}

/// A try to fetch it.
#[derive(Default)]
struct Tried {
    number: u64,
    is_read: bool,
}

#[derive(Default)]
struct Last {
    /// The time of the attempt.
    tried: Option<Instant>,
    /// The logged reason why the last attempt failed.
    failed: Option<String>,
    /// The fetched text.
    text: Bytes,
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback())
}

pub(super) fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

impl<T: Default> Fetched<T> {
    pub(super) fn new(url: String, read: Read<T>) -> Result<Self, FileError> {
        let uri: Uri = url.parse().map_err(|_| {
            // A URL that cannot be parsed may hold a password all the same.
            let shown = url.rsplit_once('@').map_or(&*url, |(_, rest)| rest);
            FileError::new(shown, "this is no URL")
        })?;
        if uri.host().is_none() {
            return Err(FileError::new(&url, "this URL has no host"));
        }
        // A name or password in the URL would be logged, and sent in the header Host.
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            let shown = format!(
                "{}://…@{}",
                uri.scheme_str().unwrap_or_default(),
                uri.host().unwrap_or_default()
            );
            return Err(FileError::new(
                &shown,
                "this URL holds a user's name or password: an issuer's keys are public, leave it out",
            ));
        }
        let is_near = uri.host().is_some_and(|host| host == "localhost" || is_loopback(host));
        if uri.scheme_str() == Some("http") && !is_near {
            tracing::warn!(
                "{url} is fetched without TLS: whoever is between here and there can put in keys of their own"
            );
        }
        Ok(Self {
            url,
            uri,
            read,
            value: RwLock::default(),
            is_wanted: AtomicBool::new(false),
            last: Mutex::default(),
            begun: AtomicU64::new(0),
            tries: watch::Sender::new(Tried::default()),
        })
    }

    /// Returns the newest value; the default until the first fetch has succeeded.
    pub(super) fn get(&self) -> Arc<T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has it fetched soon; whether that went well.
    pub(super) async fn fetched_again(&self) -> bool {
        let mut tries = self.tries.subscribe();
        // A fetch under way does not count: the issuer may have answered before it had the wanted key.
        let next = self.begun.load(Ordering::SeqCst) + 1;
        self.want();
        let tried = tries.wait_for(|tried| tried.number >= next).await;
        tried.is_ok_and(|tried| tried.is_read)
    }

    /// Has it fetched soon, though not at once after the last time.
    pub(super) fn want(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
    }
}

impl<T: Send + Sync> Refresh for Fetched<T> {
    fn refresh(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A revoked key stays valid until the document is fetched, so a failed attempt is followed by another soon.
        let is_soon = last.text.is_empty() || last.failed.is_some() || self.is_wanted.load(Ordering::SeqCst);
        let every = if is_soon { AGAIN } else { EVERY };
        if last.tried.is_some_and(|tried| tried.elapsed() < every) {
            return false;
        }
        last.tried = Some(Instant::now());
        // In this order: a caller that wants it from here on waits for the next attempt, or for this one, which has not asked yet.
        self.is_wanted.store(false, Ordering::SeqCst);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let fetched = fetch(&self.uri).map_err(|why| why.to_string());
        let read = fetched.and_then(|text| Ok(((self.read)(&text)?, text)));
        let is_read = read.is_ok();
        if is_read {
            last.failed = None;
        }
        let is_other = match read {
            Ok((_, text)) if text == last.text => false,
            Ok((value, text)) => {
                last.text = text;
                *self.value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!("fetched: {}", self.url);
                true
            }
            Err(why) => {
                if last.failed.as_ref() != Some(&why) {
                    tracing::error!(
                        "{} cannot be had, what was fetched before goes on to hold: {why}",
                        self.url
                    );
                }
                last.failed = Some(why);
                false
            }
        };
        self.tries.send_replace(Tried { number, is_read });
        is_other
    }

    fn has_failed(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.failed.is_some()
    }
}

fn fetch(uri: &Uri) -> io::Result<Bytes> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let fetched = tokio::time::timeout(WAIT, get(uri)).await;
        fetched.unwrap_or_else(|_| Err(io::Error::other(format!("it did not come within {WAIT:?}"))))
    })
}

async fn get(uri: &Uri) -> io::Result<Bytes> {
    let (host, is_tls) = (uri.host().unwrap_or_default(), uri.scheme_str() == Some("https"));
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, port)).await?;
    if !is_tls {
        return ask(uri, stream).await;
    }
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    ask(uri, connector()?.connect(name, stream).await?).await
}

/// TLS with the roots this machine trusts.
fn connector() -> io::Result<tokio_rustls::TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(io::Error::other(
            "this machine has no root certificates that can be read",
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

async fn ask(uri: &Uri, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> io::Result<Bytes> {
    let (mut sender, connection): (SendRequest<String>, _) =
        handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str))
        .header(header::HOST, uri.authority().map_or("", http::uri::Authority::as_str))
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .body(String::new())
        .map_err(io::Error::other)?;
    let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
    if response.status() != StatusCode::OK {
        return Err(io::Error::other(format!("it is answered {}", response.status())));
    }
    let mut text = Vec::new();
    let body = response.body_mut();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            text.extend_from_slice(&data);
        }
        if text.len() > BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
        }
    }
    connection.abort();
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    #[test]
    fn fetch_under_way_is_not_the_one_that_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let fetched = Fetched::new(url, |text| Ok(text.to_vec())).unwrap();
        let answer = |text: &str, meanwhile: &mut dyn FnMut()| {
            fetched.last.lock().unwrap().tried = None;
            thread::scope(|scope| {
                let refreshing = scope.spawn(|| fetched.refresh());
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 4_096]).unwrap() > 0);
                meanwhile();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
                stream.write_all((head + text).as_bytes()).unwrap();
                assert!(refreshing.join().unwrap());
            });
        };
        let mut waiting = Box::pin(fetched.fetched_again());
        answer("old", &mut || assert!((&mut waiting).now_or_never().is_none()));
        assert!(
            (&mut waiting).now_or_never().is_none(),
            "what was under way knows the old keys"
        );
        answer("new", &mut || {});
        assert_eq!(waiting.now_or_never(), Some(true));
        assert_eq!(*fetched.get(), b"new");
    }
}
