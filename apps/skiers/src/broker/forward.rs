//! Queries a server cannot answer itself, on their way to the consumer.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderName, StatusCode, Uri, header, uri::PathAndQuery},
    response::{IntoResponse as _, Response},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::time::Duration;
use throng::model::Error;
use throng_breaker::{Breakers, Refused, Settings};
use throng_http::Problem;

/// How long the consumer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// What of a request and of an answer is passed on.
const PASSED: [HeaderName; 5] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
    header::RETRY_AFTER,
];

/// The consumer, asked over HTTP; left alone while it is in trouble.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    client: Client<HttpConnector, Body>,
    at: Uri,
    breaker: throng_breaker::Breaker,
}

impl Consumer {
    /// Asks the one at `http://host:port`, anything else is an error.
    pub(crate) fn new(url: &str, breakers: &Breakers) -> anyhow::Result<Self> {
        let at: Uri = url.parse()?;
        anyhow::ensure!(
            at.scheme_str() == Some("http") && at.authority().is_some(),
            "SKIERS_CONSUMER is {url:?}; write http://host:port"
        );
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(Duration::from_secs(1)));
        connector.set_nodelay(true);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            at,
            breaker: breakers.breaker("consumer", Settings::default()),
        })
    }

    /// Passes a request on, and its answer back.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let call = match self.breaker.enter() {
            Ok(call) => call,
            Err(Refused { .. }) => return unavailable(),
        };
        let answered = tokio::time::timeout(ANSWER_MAX, self.client.request(self.readdressed(request))).await;
        match answered {
            Ok(Ok(answer)) => {
                match answer.status() {
                    StatusCode::SERVICE_UNAVAILABLE => call.failed(),
                    _ => call.succeeded(),
                }
                let (parts, body) = answer.into_parts();
                let mut passed = Response::new(Body::new(body));
                *passed.status_mut() = parts.status;
                for name in PASSED {
                    if let Some(value) = parts.headers.get(&name) {
                        passed.headers_mut().insert(name, value.clone());
                    }
                }
                passed
            }
            Ok(Err(_)) | Err(_) => {
                call.failed();
                unavailable()
            }
        }
    }

    fn readdressed(&self, request: Request) -> Request {
        let (parts, body) = request.into_parts();
        let mut uri = self.at.clone().into_parts();
        uri.path_and_query = parts
            .uri
            .path_and_query()
            .cloned()
            .or(Some(PathAndQuery::from_static("/")));
        let mut passed = Request::new(body);
        *passed.method_mut() = parts.method;
        *passed.uri_mut() = Uri::from_parts(uri).unwrap_or_else(|_| self.at.clone());
        for name in PASSED {
            if let Some(value) = parts.headers.get(&name) {
                passed.headers_mut().insert(name, value.clone());
            }
        }
        passed
    }
}

/// 503, to be tried again soon.
pub(crate) fn unavailable() -> Response {
    let error: Error<crate::ride::Refused> = Error::Unavailable {
        reason: "queries are answered by another process, which cannot be reached".into(),
    };
    Problem::from(error).into_response()
}
