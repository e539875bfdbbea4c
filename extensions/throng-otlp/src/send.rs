//! A request to a collector.

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use std::{io, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// The time that a collector has to take a batch.
const WAIT: Duration = Duration::from_secs(10);

/// An address is none of a collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no collector's address: {why}")]
pub struct UrlError {
    url: String,
    why: &'static str,
}

/// The reason why a collector has not taken a batch.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The collector is away, or has no room now.
    ForNow(String),
    /// The collector does not take this batch, ever.
    ForGood(String),
}

/// A collector's address.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    host: String,
    port: u16,
    authority: HeaderValue,
    path: String,
}

impl Collector {
    /// Reads `http://HOST[:PORT][/PATH]`; spans go to `/v1/traces` below it.
    pub(crate) fn of(url: &str) -> Result<Self, UrlError> {
        let wrong = |why| UrlError { url: url.into(), why };
        let uri: Uri = url
            .parse()
            .map_err(|_| wrong("write for example http://127.0.0.1:4318"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("it speaks no TLS here, run a collector on this machine")),
            _ => return Err(wrong("write for example http://127.0.0.1:4318")),
        }
        let authority = uri.authority().map_or("", http::uri::Authority::as_str);
        let authority = HeaderValue::from_str(authority).map_err(|_| wrong("its host cannot be read"))?;
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        let host = uri.host().unwrap_or_default();
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').into(),
            port: uri.port_u16().unwrap_or(80),
            authority,
            path: format!("{}/v1/traces", uri.path().trim_end_matches('/')),
        })
    }

    /// Sends a batch, and waits for its answer.
    pub(crate) async fn send(&self, body: Bytes) -> Result<(), Refused> {
        let status = timeout(WAIT, self.post(body)).await;
        let status = status.unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {WAIT:?}"))));
        match status.map_err(|why| Refused::ForNow(why.to_string()))? {
            status if status.is_success() => Ok(()),
            // As OTLP says which may be sent again.
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => Err(Refused::ForNow(format!("it answered {status}"))),
            status => Err(Refused::ForGood(format!("it answered {status}"))),
        }
    }

    async fn post(&self, body: Bytes) -> io::Result<StatusCode> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let request = Request::post(&self.path)
            .header(header::HOST, self.authority.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("throng-otlp/", env!("CARGO_PKG_VERSION")))
            .header(header::CONNECTION, "close")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other);
        connection.abort();
        Ok(response?.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_is_named_by_a_plain_http_address() {
        let of = |url| Collector::of(url).map(|collector| (collector.host, collector.port, collector.path));
        let expected = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        assert_eq!(of("http://127.0.0.1:4318"), expected("127.0.0.1", 4318, "/v1/traces"));
        assert_eq!(of("http://[::1]/otlp/"), expected("::1", 80, "/otlp/v1/traces"));
        for wrong in [
            "",
            "127.0.0.1:4318",
            "https://collector",
            "http://c/?a=b",
            "ftp://c",
            "/",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
