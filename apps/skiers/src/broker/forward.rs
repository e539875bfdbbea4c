//! Requests that a server cannot answer itself. It forwards them to the consumer.

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{self, HeaderName, Method, StatusCode, Uri, header, uri::PathAndQuery},
    response::{IntoResponse as _, Response},
};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::time::Duration;
use throng::model::Error;
use throng_breaker::{BreakerLayer, Breakers, Pauses, Retry, RetryBudget, Settings};
use throng_http::{Limits, Problem};
use tower::{ServiceBuilder, ServiceExt as _, retry::RetryLayer, service_fn, util::BoxCloneSyncService};

/// The longest wait for the consumer's answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The most attempts for a query whose connection is lost.
const ATTEMPTS: u32 = 3;
/// The headers of requests and answers that are passed on.
const PASSED: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
    header::RETRY_AFTER,
    HeaderName::from_static("idempotency-key"),
];

type Asked = http::Request<Full<Bytes>>;
type Service = BoxCloneSyncService<Asked, Response, throng_breaker::Error<Failed>>;

/// The reason why a call failed.
#[derive(Clone, Copy, Debug)]
enum Failed {
    /// The connection was lost, or could not be made.
    Lost,
    /// No answer arrived in time.
    Late,
}

/// A client of the consumer over HTTP, behind a breaker.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    at: Uri,
    /// The service for requests that change something. It never sends one twice.
    once: Service,
    /// The service for requests that change nothing. It retries lost connections.
    again: Service,
}

impl Consumer {
    /// Returns a client of `http://host:port`. Any other URL is an error.
    pub(crate) fn new(url: &str, breakers: &Breakers) -> anyhow::Result<Self> {
        let at: Uri = url.parse()?;
        anyhow::ensure!(
            at.scheme_str() == Some("http") && at.authority().is_some(),
            "SKIERS_CONSUMER is {url:?}; write http://host:port"
        );
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(Duration::from_secs(1)));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let breaker = breakers.breaker("consumer", Settings::default());
        let is_in_trouble = |answer: &Result<Response, Failed>| match answer {
            Ok(answer) => answer.status() == StatusCode::SERVICE_UNAVAILABLE,
            Err(_) => true,
        };
        let once = ServiceBuilder::new()
            .layer(BreakerLayer::new(breaker, is_in_trouble))
            .service(service_fn(move |request| ask(client.clone(), request)));
        let pauses = Pauses::new(Duration::from_millis(20), Duration::from_millis(200));
        let is_lost = |answer: &Result<Response, throng_breaker::Error<Failed>>| {
            matches!(answer, Err(throng_breaker::Error::Inner(Failed::Lost)))
        };
        let again = ServiceBuilder::new()
            .layer(RetryLayer::new(Retry::new(
                ATTEMPTS,
                pauses,
                RetryBudget::default(),
                is_lost,
            )))
            .service(once.clone());
        Ok(Self {
            at,
            once: BoxCloneSyncService::new(once),
            again: BoxCloneSyncService::new(again),
        })
    }

    /// Forwards a request, and returns the answer.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let request = match self.readdressed(request).await {
            Ok(request) => request,
            Err(problem) => return problem.into_response(),
        };
        let service = match *request.method() {
            Method::GET | Method::HEAD => &self.again,
            _ => &self.once,
        };
        match service.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(throng_breaker::Error::Refused(refused)) => unavailable(Some(refused.retry_after)),
            Err(throng_breaker::Error::Inner(_)) => unavailable(None),
        }
    }

    async fn readdressed(&self, request: Request) -> Result<Asked, Problem> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, Limits::default().body_bytes_max).await;
        let body = body.map_err(|error| Problem::malformed(format!("the body cannot be read: {error}")))?;
        let mut uri = self.at.clone().into_parts();
        uri.path_and_query = parts
            .uri
            .path_and_query()
            .cloned()
            .or(Some(PathAndQuery::from_static("/")));
        let mut passed = http::Request::new(Full::new(body));
        *passed.method_mut() = parts.method;
        *passed.uri_mut() = Uri::from_parts(uri).unwrap_or_else(|_| self.at.clone());
        for name in PASSED {
            if let Some(value) = parts.headers.get(&name) {
                passed.headers_mut().insert(name, value.clone());
            }
        }
        Ok(passed)
    }
}

/// Asks the consumer, and waits at most [`ANSWER_MAX`].
async fn ask(client: Client<HttpConnector, Full<Bytes>>, request: Asked) -> Result<Response, Failed> {
    let answered = tokio::time::timeout(ANSWER_MAX, client.request(request)).await;
    let (parts, body) = answered
        .map_err(|_| Failed::Late)?
        .map_err(|_| Failed::Lost)?
        .into_parts();
    let mut passed = Response::new(Body::new(body));
    *passed.status_mut() = parts.status;
    for name in PASSED {
        if let Some(value) = parts.headers.get(&name) {
            passed.headers_mut().insert(name, value.clone());
        }
    }
    Ok(passed)
}

/// Answers 503, with the pause before a retry if it is known.
pub(crate) fn unavailable(pause: Option<Duration>) -> Response {
    let error: Error<crate::ride::Refused> = Error::Unavailable {
        reason: "queries are answered by another process, which cannot be reached".into(),
    };
    let problem = Problem::from(error);
    match pause {
        Some(pause) => problem.retry_after(pause).into_response(),
        None => problem.into_response(),
    }
}
