//! An app's own routes: axum handlers, on the same loop.

use super::{Answered, admit};
use crate::{
    answer::Answer,
    event_loop::{Connection, Local},
    problem::Problem,
    request::{body, body::RequestBody, headers},
};
use http::{Method, Request, Response, StatusCode, header, request::Parts};
use hyper::body::Body;
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Instant,
};
use tower::Service;

/// Runs the handler of a request, once its body is here and it has its turn.
pub(super) async fn run(
    local: &Local,
    connection: &Connection,
    parts: &mut Parts,
    body: RequestBody,
    arrived: &mut Option<Instant>,
) -> Answered<Response<Answer>> {
    let router = local.router.borrow().clone();
    let Some(mut router) = router else {
        return nothing(local, parts);
    };
    let bytes = body::read(body, &parts.headers, local.limits(), connection).await?;
    admit(local, connection, &parts.headers, bytes.len(), arrived).await?;
    let mut asked = Request::new(axum::body::Body::from(bytes));
    *asked.method_mut() = parts.method.clone();
    *asked.uri_mut() = parts.uri.clone();
    *asked.version_mut() = parts.version;
    *asked.headers_mut() = std::mem::take(&mut parts.headers);
    *asked.extensions_mut() = std::mem::take(&mut parts.extensions);
    let page = headers::wants_page(asked.headers());
    let mut answering = pin!(router.call(asked));
    let answered = poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => Poll::Ready(Ok(response)),
            Ok(Poll::Ready(Err(never))) => match never {},
            Err(panic) => Poll::Ready(Err(Problem::crashed(&said(panic.as_ref())).boxed())),
        },
    )
    .await?;
    if is_bare(&answered) {
        match answered.status() {
            StatusCode::NOT_FOUND if parts.uri.path() == "/" && matches!(parts.method, Method::GET | Method::HEAD) => {
                return Ok(super::pages::index(local, page));
            }
            StatusCode::NOT_FOUND => return Err(Problem::unknown_route(parts.uri.path()).boxed()),
            StatusCode::METHOD_NOT_ALLOWED => {
                let allow = answered.headers().get(header::ALLOW);
                if let Some(allow) = allow.and_then(|allow| allow.to_str().ok()) {
                    return Err(Problem::method_not_allowed(&parts.method, allow).boxed());
                }
            }
            _ => {}
        }
    }
    Ok(answered.map(Answer::App))
}

/// What a request gets that is nobody's.
fn nothing(local: &Local, parts: &Parts) -> Answered<Response<Answer>> {
    if parts.uri.path() != "/" {
        return Err(Problem::unknown_route(parts.uri.path()).boxed());
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Problem::method_not_allowed(&parts.method, "GET, HEAD").boxed());
    }
    Ok(super::pages::index(local, headers::wants_page(&parts.headers)))
}

/// The router's own "no", without a word of the app's.
fn is_bare(response: &axum::response::Response) -> bool {
    response.body().size_hint().exact() == Some(0) && !response.headers().contains_key(header::CONTENT_TYPE)
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".into())
}
