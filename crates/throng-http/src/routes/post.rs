//! `POST /api/{kind}/{id}/{command}`: the hot path.

use super::{
    command::{CommandBody, CommandRequest, Terms, run, run_now},
    conclude::entry,
    staged::Staged,
};
use crate::{
    access::{self, RateOwner},
    access_log::Entry,
    caller::{Caller, Sender},
    connection::Connection,
    kinds::Names,
    limits::Limits,
    problem::{Answered, Problem},
    request::{
        headers,
        path::{self, entity_id},
        trace::{self, RequestSpan},
    },
    server::Server,
};
use http::{HeaderMap, Method};
use std::{borrow::Cow, future::poll_fn};
use throng::{driver::Execution, journal::ShardId};

/// A command, as the head of a request names it.
pub(crate) struct HttpCommand<'a> {
    pub(crate) path: &'a str,
    /// Kind, id and name, as in the path.
    pub(crate) place: (&'a str, &'a str, &'a str),
    pub(crate) headers: &'a HeaderMap,
    pub(crate) sender: Sender<'a>,
}

impl HttpCommand<'_> {
    #[inline]
    fn request<'a>(
        &'a self,
        server: &Server,
        connection: &Connection,
        caller: Option<&'a Caller>,
    ) -> CommandRequest<'a> {
        let (kind, id, name) = self.place;
        // Most clients send only common fields.
        let says_more = !self.headers.is_empty() || !self.sender.is_json;
        let (terms, parent) = match says_more {
            true => (self.terms(server.limits()), trace::parent_of(self.headers)),
            false => (Ok(Terms::of(server.limits())), None),
        };
        CommandRequest {
            kind,
            id: entity_id(id),
            name: path::decode(name).unwrap_or_default(),
            no_command,
            owner: RateOwner::of(server, connection, self.headers, caller),
            terms,
            span: RequestSpan::begin(server.tracer(), parent, || path::decode(id).map(Cow::into_owned)),
        }
    }

    fn terms(&self, limits: &Limits) -> Answered<Terms> {
        let headers = self.headers;
        if !self.sender.is_json {
            headers::json_content(headers)?;
        }
        headers::uncoded(headers)?;
        Ok(Terms {
            key: headers::idempotency_key(headers)?,
            deadline: headers::timeout(headers, limits.deadline, limits.deadline_max)?,
        })
    }

    #[inline]
    fn told_shard(&self, server: &Server) -> Option<ShardId> {
        let (kind, id, _) = self.place;
        server.told_shard(kind, id)
    }

    /// Returns its entry for the access log, if it has one.
    pub(super) fn log(&self, server: &Server, connection: &Connection, caller: Option<&Caller>) -> Option<Box<Entry>> {
        let method = Method::POST.as_str();
        entry(server, connection, method, self.path, self.headers, caller)
    }
}

/// Returns the problem of a POST to a name that is no command's.
fn no_command(names: &Names, name: &str) -> Problem {
    match name == "events" && !names.is_actor || names.has_query(name) {
        true => Problem::method_not_allowed(&Method::POST, "GET, HEAD"),
        false => names.no_command(name),
    }
}

/// Runs a command if its connection has a place in this batch. `None`: nothing was done, and [`stage`] explains or waits.
pub(crate) fn try_now(
    server: &Server,
    connection: &Connection,
    command: &HttpCommand<'_>,
    body: &[u8],
) -> Option<Staged> {
    if !headers::is_plain(command.headers) {
        headers::are_single(command.headers).ok()?;
    }
    let caller = access::enter(server, connection, &command.sender).ok()?;
    let place = server.admission.enter_now(&connection.place, body.len())?;
    let request = command.request(server, connection, caller.as_ref());
    let mut arrived = None;
    let execution = run_now(server, connection, (&request, body), place, &mut arrived)?;
    let log = command.log(server, connection, caller.as_ref());
    // An answer that is no problem needs no path.
    let is_reply = matches!(&execution, Ok(Execution::Done(executed)) if !executed.is_refused());
    let path = if is_reply { "" } else { command.path };
    let mut staged = Staged::new(server, execution, arrived, path, log).traced(request.span);
    staged.tells_owner_of(command.told_shard(server));
    Some(staged)
}

/// Runs a command, after waiting for whatever it needs before it is executed.
pub(super) async fn stage(
    server: &Server,
    connection: &Connection,
    command: &HttpCommand<'_>,
    body: CommandBody<'_>,
) -> Staged {
    let (mut caller, mut arrived, mut span) = (None, None, RequestSpan::default());
    let execution = async {
        let known = access::key_is_known(server, command.sender.authorization).await;
        let entered = headers::are_single(command.headers)
            .and(known)
            .and_then(|()| access::enter(server, connection, &command.sender));
        caller = match entered {
            Ok(caller) => caller,
            Err(problem) => return Err(access::refused(server, connection, command.headers, problem).await),
        };
        let request = command.request(server, connection, caller.as_ref());
        let execution = run(server, connection, (&request, body), None, &mut arrived).await;
        span = request.span;
        execution
    };
    let execution = execution.await;
    let log = command.log(server, connection, caller.as_ref());
    let mut staged = Staged::new(server, execution, arrived, command.path, log).traced(span);
    staged.tells_owner_of(command.told_shard(server));
    poll_fn(|context| staged.poll_executed(server, context)).await;
    staged
}
