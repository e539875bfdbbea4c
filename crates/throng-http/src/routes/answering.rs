//! A request on its way to its answer. Thousands may be waiting at once, so little is kept of each.

use super::{
    app::panic_text,
    command::CommandBody,
    conclude::entry,
    let_in::is_administration,
    other,
    post::{HttpCommand, stage},
    staged::Staged,
};
use crate::{
    access::{self, RateOwner, cors},
    answer::{self, ResponseBody},
    caller::Sender,
    connection::Connection,
    guard::Part,
    problem::Problem,
    request::path::{self, ApiPath},
    server::{Server, body::RequestBody},
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};
use std::{
    future::{self, Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// A request, until it is answered.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one, and a box would cost each command an allocation"
)]
pub(crate) enum Answering {
    /// A command that waits for its body, its batch or its entity.
    Staging(Rc<Server>, Boxed<Executed>),
    /// A command that waits for its commit, mostly.
    Executed(Rc<Server>, Executed),
    Other(Boxed<Response<ResponseBody>>),
}

/// A command that was executed, or refused.
pub(crate) struct Executed {
    staged: Staged,
    /// The request's, empty: the response's take their memory.
    headers: HeaderMap,
}

/// Answers a request. A command that has to wait for nothing is executed at once.
pub(crate) fn answer(server: &Rc<Server>, connection: &Rc<Connection>, request: Request<RequestBody>) -> Answering {
    let names = &server.shared().guard.names;
    let is_administration = is_administration(server, request.uri().path());
    let is_service = Part::of(connection.accepted_by(), is_administration) == Part::Service;
    let origin = request.headers().get(header::ORIGIN).filter(|_| is_service);
    // A page of an allowed other origin: its browser needs further header fields.
    let Some(origin) = origin.filter(|origin| names.is_allowed(origin.as_bytes())).cloned() else {
        return answer_same_origin(server, connection, request);
    };
    if cors::is_preflight(request.method(), request.headers()) {
        let owner = RateOwner::of(server, connection, request.headers(), None);
        let response = match access::spend(server, owner) {
            Ok(()) => cors::preflight(request.headers(), origin),
            Err(problem) => problem.response(),
        };
        let (method, path) = (request.method().as_str(), request.uri().path());
        if let Some(entry) = entry(server, connection, method, path, request.headers(), None) {
            entry.answered(server, response.status(), None);
        }
        return Answering::Other(Box::pin(future::ready(response)));
    }
    let answering = answer_same_origin(server, connection, request);
    Answering::Other(Box::pin(answer_page(answering, origin)))
}

async fn answer_page(answering: Answering, origin: HeaderValue) -> Response<ResponseBody> {
    let mut response = answering.await;
    cors::allow(&mut response, origin);
    response
}

fn answer_same_origin(server: &Rc<Server>, connection: &Rc<Connection>, request: Request<RequestBody>) -> Answering {
    let (parts, body) = request.into_parts();
    let server = server.clone();
    let is_command = parts.method == Method::POST && matches!(path::place(parts.uri.path()), Some(ApiPath::Member(..)));
    if !is_command {
        let connection = connection.clone();
        return Answering::Other(Box::pin(async move { other(&server, &connection, parts, body).await }));
    }
    let mut staging = staging(server.clone(), connection.clone(), parts, body);
    // A command that waits is polled again at once, by a task that can be woken.
    match staging.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(executed) => Answering::Executed(server, executed),
        Poll::Pending => Answering::Staging(server, staging),
    }
}

/// Executes a command. Boxed: most commands are done with their memory before the next request, so that all that need not wait use the same
/// memory.
fn staging(server: Rc<Server>, connection: Rc<Connection>, mut parts: Parts, mut body: RequestBody) -> Boxed<Executed> {
    Box::pin(async move {
        let path = parts.uri.path();
        let staged = if let Some(ApiPath::Member(kind, id, name)) = path::place(path) {
            let command = HttpCommand {
                path,
                place: (kind, id, name),
                headers: &parts.headers,
                sender: Sender::of(&parts),
            };
            let body = CommandBody::Coming(&mut body, &parts.headers);
            let mut staging = pin!(stage(&server, &connection, &command, body));
            // A panic ends this request only; where its stream is accepted, it would end the whole connection.
            poll_fn(|context| {
                let poll = || staging.as_mut().poll(context);
                catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
                    let reason = panic_text(panic.as_ref());
                    tracing::error!("the gateway panicked over {path}: {reason}");
                    let (crashed, log) = (Problem::crashed(&reason), command.log(&server, &connection, None));
                    Poll::Ready(Staged::new(&server, Err(crashed.boxed()), None, path, log))
                })
            })
            .await
        } else {
            Staged::new(&server, Err(Problem::unknown_route(path).boxed()), None, path, None)
        };
        let mut headers = std::mem::take(&mut parts.headers);
        headers.clear();
        Executed { staged, headers }
    })
}

impl Executed {
    fn poll(&mut self, server: &Server, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        self.staged.poll_answer(server, context).map(|answered| match answered {
            Ok(body) => answer::reply(std::mem::take(&mut self.headers), body),
            Err(problem) => problem.response(),
        })
    }
}

impl Future for Answering {
    type Output = Response<ResponseBody>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        loop {
            let next = match &mut *self {
                Self::Other(answer) => return answer.as_mut().poll(context),
                Self::Executed(server, executed) => return executed.poll(server, context),
                Self::Staging(server, staging) => {
                    let executed = ready!(staging.as_mut().poll(context));
                    Self::Executed(server.clone(), executed)
                }
            };
            *self = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_waits_for_its_commit_is_small() {
        assert!(size_of::<Answering>() <= 256, "{}", size_of::<Answering>());
    }
}
