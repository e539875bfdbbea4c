//! An HTTP client for the workers of outside calls.

use crate::{
    connection::{Connection, Pool, Stream, whole},
    hosts::{Hosts, Origin},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    convert::Infallible,
    fmt,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use throng::model::{Attempt, CallError};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// The most addresses of a server that are tried. Each gets its share of the connect time.
const ADDRESSES_MAX: usize = 4;
/// The header by which a provider recognizes a second attempt of the same call.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The field by which a provider takes part in the trace (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";

/// Makes the HTTP requests of a worker. It keeps connections open, follows no redirects, and calls only the servers it is allowed to.
///
/// Its clones share their connections.
///
/// ```
/// use throng::model::{Attempt, CallError};
/// use throng_web::{HttpClient, http::StatusCode, post_json, read_json, retry};
///
/// # #[derive(serde::Serialize)] struct Charge { cents: u64 }
/// async fn charge(client: &HttpClient, charge: &Charge, attempt: &Attempt) -> Result<String, CallError<String>> {
///     let request = post_json("https://api.payments.example/charges", charge)?;
///     let read = |status: StatusCode, headers: &_, body: &_| match status {
///         StatusCode::CREATED => read_json(body),
///         StatusCode::PAYMENT_REQUIRED => Err(CallError::Failed("declined".to_owned())),
///         _ => Err(retry(status, headers)),
///     };
///     client.call(request, attempt, read).await
/// }
/// let client = HttpClient::to_hosts(["api.payments.example"]);
/// # let _ = (client, charge);
/// ```
#[derive(Clone)]
pub struct HttpClient {
    hosts: Hosts,
    connect_timeout: Duration,
    answer_timeout: Duration,
    answer_bytes_max: usize,
    /// The TLS settings. Set at the first use, unless the program set its own.
    tls: Arc<OnceLock<Result<TlsConnector, String>>>,
    pool: Arc<Pool>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl HttpClient {
    fn new(named: Option<Vec<String>>) -> Self {
        Self {
            hosts: Hosts {
                named,
                has_private: false,
            },
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(20),
            answer_bytes_max: 1 << 20,
            tls: Arc::default(),
            pool: Arc::default(),
        }
    }

    /// Returns a client for these servers: `api.payments.example`, or `api.payments.example:8443`.
    #[must_use]
    pub fn to_hosts(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Some(hosts.into_iter().map(Into::into).collect()))
    }

    /// Returns a client for every server with a public address, for URLs that customers enter.
    #[must_use]
    pub fn to_public_hosts() -> Self {
        Self::new(None)
    }

    /// Also allows private addresses and this machine, and for these also `http://`.
    #[must_use]
    pub fn allow_private(mut self) -> Self {
        self.hosts.has_private = true;
        self
    }

    /// Sets the time to connect, including name resolution and TLS. The default is 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// Sets the time from the request to the end of its answer. The default is 20 s. The sum of both times must not exceed the worker's
    /// [`TIMEOUT`](throng::model::Outside::TIMEOUT).
    #[must_use]
    pub fn answer_timeout(mut self, time: Duration) -> Self {
        self.answer_timeout = time;
        self
    }

    /// Sets the most bytes of an answer's body. The default is 1 MiB. An attempt with a longer answer is in doubt.
    #[must_use]
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// Sets TLS, for other roots than the machine's or for a client certificate.
    #[must_use]
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.tls = Arc::new(OnceLock::from(Ok(config.into())));
        self
    }

    /// Makes one attempt: sends a request, which has the attempt's key as `Idempotency-Key` unless it has another, and its span, if that is
    /// recorded, as `traceparent`. Then has the answer read.
    ///
    /// # Errors
    /// `NotSent`: no byte of the request was written, so the provider did nothing. `InDoubt`: some bytes were written, but no complete
    /// answer arrived. All other errors are those of `read`.
    pub async fn call<A, F>(
        &self,
        mut request: Request<Bytes>,
        attempt: &Attempt,
        read: impl FnOnce(StatusCode, &HeaderMap, &[u8]) -> Result<A, CallError<F>>,
    ) -> Result<A, CallError<F>> {
        if let Ok(key) = HeaderValue::try_from(attempt.key()) {
            request.headers_mut().entry(IDEMPOTENCY_KEY).or_insert(key);
        }
        if let Some(trace) = attempt.trace
            && let Ok(parent) = HeaderValue::try_from(trace.to_string())
        {
            request.headers_mut().entry(TRACEPARENT).or_insert(parent);
        }
        match self.send(request).await {
            Ok(answer) => read(answer.status(), answer.headers(), answer.body()),
            Err(CallError::NotSent(why)) => Err(CallError::NotSent(why)),
            Err(CallError::InDoubt(why)) => Err(CallError::InDoubt(why)),
            Err(CallError::RetryAfter { after, is_sent, why }) => Err(CallError::RetryAfter { after, is_sent, why }),
            Err(CallError::Failed(never)) => match never {},
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, CallError<Infallible>> {
        let origin = Origin::of(request.uri()).map_err(CallError::NotSent)?;
        let mut connection = match self.pool.take(&origin).await {
            Some(connection) => connection,
            None => self.connected(&origin).await.map_err(CallError::NotSent)?,
        };
        let request = to_origin(request).map_err(CallError::NotSent)?;
        let answering = connection.exchange(request, self.answer_bytes_max);
        let answer = match timeout(self.answer_timeout, answering).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no whole answer within {:?}", self.answer_timeout)),
        };
        match answer {
            Ok(answer) => {
                self.pool.put(origin, connection);
                Ok(answer)
            }
            Err(why) if connection.is_written() => Err(CallError::InDoubt(format!("{}: {why}", origin.host))),
            Err(why) => Err(CallError::NotSent(format!("{}: {why}", origin.host))),
        }
    }

    async fn connected(&self, origin: &Origin) -> Result<Connection, String> {
        let connected = timeout(self.connect_timeout, self.connect(origin)).await;
        connected.unwrap_or_else(|_| {
            Err(format!(
                "{}: no connection within {:?}",
                origin.host, self.connect_timeout
            ))
        })
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection, String> {
        let addresses = self.hosts.addresses(origin).await?;
        let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
        let stream = self
            .connect_to(addresses)
            .await
            .map_err(|why| format!("{}: {why}", origin.host))?;
        let stream: Box<dyn Stream> = match origin.is_tls {
            false => Box::new(stream),
            true => {
                let failed = |why: &dyn fmt::Display| format!("TLS with {}: {why}", origin.host);
                let tls = self
                    .tls
                    .get_or_init(trusting_roots)
                    .as_ref()
                    .map_err(|why| failed(why))?;
                let name = ServerName::try_from(origin.host.clone()).map_err(|why| failed(&why))?;
                Box::new(tls.connect(name, stream).await.map_err(|why| failed(&why))?)
            }
        };
        Connection::over(stream, origin.is_tls).await
    }

    /// Connects to the first address that accepts.
    async fn connect_to(&self, addresses: &[SocketAddr]) -> Result<TcpStream, String> {
        let share = self.connect_timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut failed = String::new();
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // If this fails, the answer only takes a little longer.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(why)) => failed = format!("cannot connect to {address}: {why}"),
                Err(_) => failed = format!("cannot connect to {address} within {share:?}"),
            }
        }
        Err(failed)
    }
}

/// Converts a request to the form sent to an origin server, with path and `Host`.
fn to_origin(request: Request<Bytes>) -> Result<Request<Full<Bytes>>, String> {
    let (mut parts, body) = request.into_parts();
    let host = parts.uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::try_from(host).map_err(|why| format!("the URL's host: {why}"))?;
    parts.headers.insert(header::HOST, host);
    parts.uri = parts
        .uri
        .path_and_query()
        .map_or(Uri::default(), |path| path.clone().into());
    parts.version = http::Version::HTTP_11;
    Ok(Request::from_parts(parts, Full::new(body)))
}

/// Returns TLS settings that trust the machine's roots.
fn trusting_roots() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(
            "this machine has no root certificates that can be read: install them, or see HttpClient::tls".into(),
        );
    }
    let config =
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let config = config
        .map_err(|why| whole(&why))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// Returns a `POST` of JSON to a URL.
///
/// # Errors
/// `NotSent`: the URL is invalid, or the value cannot be serialized.
pub fn post_json<F>(url: &str, value: &impl Serialize) -> Result<Request<Bytes>, CallError<F>> {
    let body = serde_json::to_vec(value).map_err(|why| CallError::NotSent(format!("the request as JSON: {why}")))?;
    let request = Request::post(url)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into());
    request.map_err(|why| CallError::NotSent(format!("the request's URL: {why}")))
}

/// Parses an answer's body as JSON.
///
/// # Errors
/// `InDoubt`: the body cannot be parsed, though the provider may have done its part.
pub fn read_json<T: DeserializeOwned, F>(body: &[u8]) -> Result<T, CallError<F>> {
    serde_json::from_slice(body).map_err(|why| CallError::InDoubt(format!("the answer's JSON cannot be read: {why}")))
}

/// Returns the error for a status that leaves the outcome open, so that the call is tried again. After 429 the provider did nothing; after
/// any other status that is in doubt. With 429 and 503 the header `Retry-After` may tell when to try again.
#[must_use]
pub fn retry<F>(status: StatusCode, headers: &HeaderMap) -> CallError<F> {
    let why = format!("the provider answered {status}");
    let is_sent = status != StatusCode::TOO_MANY_REQUESTS;
    let may_say = !is_sent || status == StatusCode::SERVICE_UNAVAILABLE;
    match headers.get(header::RETRY_AFTER).and_then(pause) {
        Some(after) if may_say => CallError::RetryAfter { after, is_sent, why },
        _ if is_sent => CallError::InDoubt(why),
        _ => CallError::NotSent(why),
    }
}

/// Parses `Retry-After`: a pause in seconds, or a date.
fn pause(after: &HeaderValue) -> Option<Duration> {
    let after = after.to_str().ok()?.trim();
    match after.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let until = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
            Some(
                until
                    .duration_since(jiff::Timestamp::now())
                    .try_into()
                    .unwrap_or_default(),
            )
        }
    }
}
