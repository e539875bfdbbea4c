//! Signed requests, each sent once, whose answers are read completely.

use crate::{
    credentials::Credentials,
    location::S3Location,
    reply::element,
    signature::{Signed, sign},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    env,
    error::Error,
    fmt::Display,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The most bytes of an object. Commits have at most 8 MiB, layers of rows less.
const OBJECT_BYTES_MAX: usize = 256 << 20;
/// The idle time of a connection, shorter than that after which common servers close it.
const IDLE: Duration = Duration::from_secs(4);

/// The HTTP client of a storage.
pub(crate) struct Client {
    pub(crate) location: S3Location,
    http: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Replaced by the first request that finds them expired.
    credentials: Mutex<Credentials>,
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl Client {
    /// Creates a client with this access key and its secret, or with those of the environment. Sends no request yet.
    pub(crate) fn new(location: S3Location, key: Option<(&str, &str)>) -> io::Result<Self> {
        let credentials = match key {
            Some((access_key, secret_key)) => Credentials {
                access_key: access_key.to_owned(),
                secret_key: secret_key.to_owned(),
                session_token: None,
            },
            None => Credentials::read(variable).map_err(io::Error::other)?,
        };
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trusting(variable("AWS_CA_BUNDLE")).map_err(io::Error::other)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .retry_canceled_requests(false)
            .set_host(false)
            .build(connector);
        Ok(Self {
            location,
            http,
            credentials: Mutex::new(credentials),
        })
    }

    /// Sends a request about an object, or about the bucket itself. Every field is signed, so the storage refuses a request if a proxy dropped one.
    ///
    /// # Errors
    /// There is no complete answer; the storage may have carried out the request.
    pub(crate) async fn ask(
        &self,
        method: Method,
        key: &str,
        query: &str,
        mut fields: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Bytes>, String> {
        let S3Location {
            endpoint,
            bucket,
            region,
            timeout,
            ..
        } = &self.location;
        let path = match key {
            "" => format!("/{bucket}"),
            key => format!("/{bucket}/{key}"),
        };
        let (_, authority) = endpoint.split_once("://").unwrap_or_default();
        let host = HeaderValue::from_str(authority).map_err(|why| why.to_string())?;
        fields.insert(header::HOST, host);
        let credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let signed = Signed {
            method: &method,
            path: &path,
            query,
            body: &body,
        };
        sign(&signed, &mut fields, &credentials, region, Timestamp::now())?;
        let mark = if query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{endpoint}{path}{mark}{query}"))
            .body(Full::new(body))
            .map_err(|why| why.to_string())?;
        *request.headers_mut() = fields;
        let answered = async {
            let (head, body) = self
                .http
                .request(request)
                .await
                .map_err(|why| chain(&why))?
                .into_parts();
            let body = Limited::new(body, OBJECT_BYTES_MAX)
                .collect()
                .await
                .map_err(|why| chain(&*why))?;
            let answer = Response::from_parts(head, body.to_bytes());
            // If only the connection's close ends the body, the body may be truncated.
            let ends = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
            match answer.body().is_empty() || ends.iter().any(|name| answer.headers().contains_key(name)) {
                true => Ok::<_, String>(answer),
                false => Err("the answer does not say where it ends".to_owned()),
            }
        };
        let answer = match tokio::time::timeout(*timeout, answered).await {
            Ok(answered) => answered?,
            Err(_) => return Err(format!("there was no whole answer within {timeout:?}")),
        };
        if answer.status().is_client_error() {
            self.renew(&answer, &credentials);
        }
        Ok(answer)
    }

    /// Reads the access key again if the answer says that it has expired.
    fn renew(&self, answer: &Response<Bytes>, used: &Credentials) {
        let text = String::from_utf8_lossy(answer.body());
        if let Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") = element(&text, "Code")
            && let Ok(fresh) = Credentials::read(variable)
            && fresh != *used
        {
            *self.credentials.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }
}

/// Returns TLS settings with the machine's trusted roots and those of this file.
fn trusting(file: Option<String>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = file {
        let failed = |why: &dyn Display| format!("the certificates of AWS_CA_BUNDLE, {file}, cannot be used: {why}");
        for certificate in CertificateDer::pem_file_iter(&file).map_err(|why| failed(&why))? {
            let certificate = certificate.map_err(|why| failed(&why))?;
            roots.add(certificate).map_err(|why| failed(&why))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|why| chain(&why))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the header fields of a request.
pub(crate) fn fields(pairs: &[(&'static str, &str)]) -> Result<HeaderMap, String> {
    let read = |(name, value): &(&'static str, &str)| -> Result<_, String> {
        let value =
            HeaderValue::from_str(value).map_err(|_| format!("{name} has characters that no field can have"))?;
        Ok((HeaderName::from_static(name), value))
    };
    pairs.iter().map(read).collect()
}

/// Returns the text of an error and its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
