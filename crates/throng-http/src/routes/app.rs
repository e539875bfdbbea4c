//! An app's own routes: axum handlers, on the same loop.

use super::{
    conclude::{conclude, finish, logged, or_options},
    live,
    resolve::{admit, caller},
};
use crate::{
    access,
    access_log::Entry,
    answer::{self, ResponseBody},
    caller::{Sender, ShownCredentials},
    connection::{AcceptedBy, Connection},
    metrics::Route,
    problem::{Answered, Problem},
    request::{
        headers,
        trace::{self, RequestEnd, RequestRoute, RequestSpan},
    },
    server::{
        Server,
        body::{self, RequestBody},
    },
};
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request::Parts};
use hyper::body::Body;
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Instant,
};
use throng::spans::Tracer;
use tower::Service;

/// A request its handler works on.
pub(crate) struct Handling {
    answering: RouteFuture<Infallible>,
    method: Method,
    path: Box<str>,
    /// Its client is a browser that looks at `/`.
    is_page: bool,
    /// The listener on which it arrived.
    accepted_by: AcceptedBy,
    arrived: Instant,
    log: Option<Box<Entry>>,
    /// The span, where requests are traced: those of administration are not.
    span: Option<Box<RequestSpan>>,
    /// The credentials under which the client follows a stream, if it accepts one.
    held: Option<ShownCredentials>,
}

/// Passes a request to its handler at once; returns it if it has to wait for its batch, or is not an app's.
pub(crate) fn handle_now(
    server: &Rc<Server>,
    connection: &Connection,
    request: Box<Request<RequestBody>>,
) -> Result<Handling, Box<Request<RequestBody>>> {
    let path = request.uri().path();
    let is_apps = !path.starts_with("/api/") && !super::is_urgent(path);
    let RequestBody::Here(body) = request.body() else {
        return Err(request);
    };
    // Rates are checked where a refusal can be answered.
    let is_free = server.shared().request_rate.is_none() && server.shared().caller_rate.is_none();
    let is_free = is_free && server.has_room_for_reply().is_ok();
    let Some(router) = server.router.as_ref().filter(|_| is_apps && is_free) else {
        return Err(request);
    };
    // A page of another origin, or a refused caller, gets more on the other path.
    if request.headers().contains_key(header::ORIGIN) {
        return Err(request);
    }
    let Ok(caller) = access::enter(server, connection, &Sender::of_request(&request)) else {
        return Err(request);
    };
    let Some(admitted) = server.admission.enter_now(&connection.place, body.len()) else {
        return Err(request);
    };
    let (mut parts, body) = request.into_parts();
    if let Some(caller) = caller {
        parts.extensions.insert(caller);
    }
    super::tell_handler(server, connection, &mut parts);
    let body = match body {
        RequestBody::Here(body) => body,
        RequestBody::Coming(_) => Bytes::new(),
    };
    let log = logged(server, connection, &parts);
    let mut handling = Handling::begin(
        server.tracer(),
        &mut router.borrow_mut(),
        parts,
        body,
        (admitted.arrived, connection.accepted_by()),
    );
    handling.log = log;
    Ok(handling)
}

/// Passes a request to its handler, once its body has arrived and its batch has come.
pub(super) async fn handle(
    server: &Rc<Server>,
    connection: &Connection,
    parts: Parts,
    mut body: RequestBody,
) -> Response<ResponseBody> {
    let Some(router) = &server.router else {
        let answered = nothing(parts.uri.path(), &parts.method, || {
            super::pages::index(server, headers::wants_page(&parts.headers), connection.accepted_by())
        });
        return finish(
            server,
            connection,
            &parts,
            route(connection.accepted_by()),
            None,
            answered,
        );
    };
    let mut arrived = None;
    let bytes = async {
        let bytes = body::read(&mut body, &parts.headers, server, connection).await?;
        admit(server, connection, &parts.headers, bytes.len(), &mut arrived).await?;
        server.has_room_for_reply()?;
        Ok(bytes)
    };
    let bytes = match bytes.await {
        Ok(bytes) => bytes,
        Err(problem) => {
            return finish(
                server,
                connection,
                &parts,
                route(connection.accepted_by()),
                arrived,
                Err(problem),
            );
        }
    };
    let arrived = arrived.unwrap_or_else(Instant::now);
    let log = logged(server, connection, &parts);
    let mut handling = Handling::begin(
        server.tracer(),
        &mut router.borrow_mut(),
        parts,
        bytes,
        (arrived, connection.accepted_by()),
    );
    handling.log = log;
    poll_fn(|context| handling.poll(server, context)).await
}

/// Returns the route for the metrics. An app's route on the listener for administration counts as administration.
fn route(accepted_by: AcceptedBy) -> Route {
    if accepted_by.is_admin { Route::Other } else { Route::App }
}

impl Handling {
    fn begin(
        tracer: Option<&Tracer>,
        router: &mut axum::Router,
        mut parts: Parts,
        body: Bytes,
        (arrived, accepted_by): (Instant, AcceptedBy),
    ) -> Self {
        let span = tracer.filter(|_| !accepted_by.is_admin).map(|tracer| {
            let span = RequestSpan::begin(Some(tracer), trace::parent_of(&parts.headers), || None);
            if let Some(context) = span.context() {
                parts.extensions.insert(context);
            }
            Box::new(span)
        });
        let path: Box<str> = parts.uri.path().into();
        let is_page = &*path == "/" && headers::wants_page(&parts.headers);
        let method = parts.method.clone();
        let held = headers::wants_stream(&parts.headers)
            .then(|| ShownCredentials::of(&parts.headers, caller(&parts)))
            .flatten();
        let body = if body.is_empty() {
            axum::body::Body::empty()
        } else {
            axum::body::Body::from(body)
        };
        Self {
            answering: router.call(Request::from_parts(parts, body)),
            method,
            path,
            is_page,
            accepted_by,
            arrived,
            log: None,
            span,
            held,
        }
    }

    /// Returns its answer, once there is one.
    pub(crate) fn poll(&mut self, server: &Rc<Server>, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        let answering = Pin::new(&mut self.answering);
        let answered = match catch_unwind(AssertUnwindSafe(|| answering.poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => self.looked_over(server, response),
            Ok(Poll::Ready(Err(never))) => match never {},
            Err(panic) => Err(Problem::crashed(&panic_text(panic.as_ref())).boxed()),
        };
        let seen = (route(self.accepted_by), Some(self.arrived), self.log.take());
        let answered = or_options(&self.method, answered);
        if let (Some(tracer), Some(span)) = (server.tracer(), self.span.take()) {
            let problem = answered.as_ref().err();
            let end = RequestEnd {
                method: self.method.as_str(),
                route: RequestRoute::Own(&server.shared().own_routes, &self.path),
                status: match &answered {
                    Ok(response) => response.status(),
                    Err(problem) => problem.http_status(),
                },
                problem: problem.map(|problem| &**problem),
                took: Some(self.arrived.elapsed()),
            };
            span.end(tracer, &server.shared().kinds, &end);
        }
        Poll::Ready(conclude(server, &self.path, seen, answered))
    }

    /// Replaces the router's bare refusals by problems.
    fn looked_over(
        &mut self,
        server: &Rc<Server>,
        response: axum::response::Response,
    ) -> Answered<Response<ResponseBody>> {
        match response.status() {
            StatusCode::NOT_FOUND if is_bare(&response) => nothing(&self.path, &self.method, || {
                super::pages::index(server, self.is_page, self.accepted_by)
            }),
            StatusCode::METHOD_NOT_ALLOWED if is_bare(&response) => {
                let allow = response.headers().get(header::ALLOW);
                match allow.and_then(|allow| allow.to_str().ok()) {
                    Some(allow) => Err(Problem::method_not_allowed(&self.method, allow).boxed()),
                    None => Ok(response.map(ResponseBody::App)),
                }
            }
            _ => {
                let mut response = live::of_app(server, response, self.held.take())?;
                if self.accepted_by.is_admin {
                    answer::as_data(&mut response);
                }
                Ok(response)
            }
        }
    }
}

/// Answers a path without a route: the index for `/`, otherwise a problem.
fn nothing(
    path: &str,
    method: &Method,
    index: impl FnOnce() -> Response<ResponseBody>,
) -> Answered<Response<ResponseBody>> {
    if path != "/" {
        return Err(Problem::unknown_route(path).boxed());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(Problem::method_not_allowed(method, "GET, HEAD").boxed());
    }
    Ok(index())
}

/// True for the router's own refusal, without text from the app. For `HEAD` only the length shows whether there was text.
fn is_bare(response: &axum::response::Response) -> bool {
    let headers = response.headers();
    let is_empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    is_empty && response.body().size_hint().exact() == Some(0) && !headers.contains_key(header::CONTENT_TYPE)
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".into())
}
