//! From a request to its answer.

pub(crate) mod admin;
mod answering;
mod app;
mod command;
mod entities;
mod history;
mod live;
mod pages;
mod post;
mod query;

pub(crate) use answering::{Answering, answer};
pub(crate) use app::{Handling, handle_now};
pub(crate) use command::{CommandBody, CommandRequest, Terms, run};
pub use live::LiveEvents;
pub(crate) use post::{HttpCommand, stage, try_now};
pub(crate) use query::{QueryRequest, ask, no_query};

use crate::{
    access::{self, Action, Administrator, Caller, KnowsCallers, Part, RateOwner, Sender},
    access_log::Entry,
    answer::{self, Answer, Reply},
    connection::Connection,
    console,
    gate::{Admitted, Client},
    kinds::Names,
    metrics::Route,
    problem::{Answered, Problem},
    request::{
        body::RequestBody,
        headers,
        path::{self, ApiPath},
        query::{self as query_string, TicketQuery},
    },
    server::Server,
    websocket,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde::Serialize;
use std::{
    borrow::Cow,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use throng::driver::{Charge, Executed, Waiting};
use tracing::{Instrument, Span};

/// The names below `/api/` that are no kind's: the second for `POST` only.
const SOCKET: &str = "ws";
const TICKET: &str = "ticket";

/// Whether a request for this path never waits and is never refused for what others ask: health, metrics, administration.
pub(crate) fn is_urgent(path: &str) -> bool {
    pages::is_own(path) || console::page::is_page(path) || path.starts_with("/admin/")
}

/// A command on its way to its answer.
pub(crate) struct Staged {
    begun: Begun,
    /// The memory of a large answer.
    charge: Option<Charge>,
    arrived: Option<Instant>,
    /// Where to say that a problem happened, if anywhere.
    path: Box<str>,
    log: Option<Box<Entry>>,
}

/// What has come of a command so far.
pub(crate) enum Begun {
    /// It was executed; its answer waits for its commit.
    Executed(Executed),
    /// It has to wait before it is executed, in its span.
    Waits(Box<(Waiting<'static>, Option<Span>)>),
    /// It was not executed, or not to its end.
    Failed(Box<Problem>),
}

impl Begun {
    /// It was executed, and not refused.
    fn is_reply(&self) -> bool {
        matches!(self, Self::Executed(executed) if !executed.is_refused())
    }

    /// Charges an answer that is here, and large. It is to be given, so that it needs no room.
    fn charge(&self, server: &Server) -> Option<Charge> {
        match self {
            Self::Executed(executed) => answer::charge_anyway(server, executed.answer_bytes()),
            Self::Waits(_) | Self::Failed(_) => None,
        }
    }
}

impl Staged {
    /// Its answer, if it may leave now; given once. For who looks after many at once and was [woken](Self::wake_at).
    pub(crate) fn answer_now(&mut self, server: &Server, now: Instant) -> Option<Answered<Reply>> {
        let answered = match &mut self.begun {
            Begun::Executed(executed) => executed.answer_now()?.map_err(engine_problem),
            Begun::Waits(_) => return None,
            Begun::Failed(problem) => Err(problem.clone()),
        };
        Some(self.counted(server, answered, now))
    }

    /// Has this waker told when [`answer_now`](Self::answer_now) may say more. `false`: it may already, or it is to be
    /// [waited](Self::is_waited_for) for.
    pub(crate) fn wake_at(&self, waker: &Waker) -> bool {
        matches!(&self.begun, Begun::Executed(executed) if executed.wake_at(waker))
    }

    /// The same, for a task of its own. Not for one that is to be [waited](Self::is_waited_for) for.
    pub(crate) fn poll_answer(&mut self, server: &Server, context: &Context<'_>) -> Poll<Answered<Reply>> {
        let answered = match &mut self.begun {
            Begun::Executed(executed) => ready!(executed.poll_answer(context)).map_err(engine_problem),
            Begun::Waits(_) => return Poll::Pending,
            Begun::Failed(problem) => Err(problem.clone()),
        };
        Poll::Ready(self.counted(server, answered, Instant::now()))
    }

    /// It has to wait before it is executed.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.begun, Begun::Waits(_))
    }

    /// Its answer can only be waited for, by a task.
    pub(crate) fn is_waited_for(&self) -> bool {
        match &self.begun {
            Begun::Executed(executed) => executed.is_elsewhere(),
            Begun::Waits(_) => true,
            Begun::Failed(_) => false,
        }
    }

    /// `path` is where a problem happened; a message has none.
    pub(crate) fn new(
        server: &Server,
        begun: Answered<Begun>,
        arrived: Option<Instant>,
        path: &str,
        log: Option<Box<Entry>>,
    ) -> Self {
        let begun = begun.unwrap_or_else(Begun::Failed);
        Self {
            charge: begun.charge(server),
            begun,
            arrived,
            path: path.into(),
            log,
        }
    }

    fn counted(&mut self, server: &Server, answered: Answered<Vec<u8>>, now: Instant) -> Answered<Reply> {
        let answered = answered.map_err(|problem| counted(server, *problem, &self.path).boxed());
        let status = answered
            .as_ref()
            .map_or_else(|problem| problem.http_status(), |_| StatusCode::OK);
        let took = self.arrived.map(|arrived| now.saturating_duration_since(arrived));
        server.metrics().answered(Route::Command, status, took);
        if let Some(entry) = self.log.take() {
            match &answered {
                Ok(_) => entry.answered(server, status, took),
                Err(problem) => entry.refused(server, problem, took),
            }
        }
        answered.map(|body| {
            let charge = self.charge.take();
            let charge = charge.or_else(|| answer::charge_anyway(server, body.len()));
            Reply { body, charge }
        })
    }
}

/// Goes on with a command, if it has to wait before it is executed.
pub(crate) async fn carry_on(server: &Server, staged: &mut Staged) {
    if !staged.waits() {
        return;
    }
    let expired = Begun::Failed(Problem::expired().boxed());
    let Begun::Waits(waits) = std::mem::replace(&mut staged.begun, expired) else {
        return;
    };
    let (waiting, span) = *waits;
    let executing = server.shared().driver.execute(waiting);
    let executed = Box::pin(executing.instrument(span.unwrap_or_else(Span::none))).await;
    staged.begun = executed.map_or_else(|error| Begun::Failed(engine_problem(error)), Begun::Executed);
    staged.charge = staged.begun.charge(server);
}

/// Waits until a command's answer may leave: the reply, or the problem.
pub(crate) async fn settle(server: &Server, staged: &mut Staged) -> Answered<Reply> {
    carry_on(server, staged).await;
    let answered = match &mut staged.begun {
        Begun::Executed(executed) => executed.answer().await.map_err(engine_problem),
        Begun::Waits(_) => Err(Problem::expired().boxed()),
        Begun::Failed(problem) => Err(problem.clone()),
    };
    staged.counted(server, answered, Instant::now())
}

async fn other(
    server: &Rc<Server>,
    connection: &Rc<Connection>,
    mut parts: Parts,
    body: RequestBody,
) -> Response<Answer> {
    if matches!(parts.uri.path(), "/api/ws" | "/admin/live") {
        access::take_offered(&mut parts.headers);
    }
    let redeemed = server.shared().guard.tickets.redeem(&mut parts, Instant::now());
    let entered = match headers::are_single(&parts.headers).and(redeemed) {
        Ok(()) => {
            let shown = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
            access::key_is_known(server, shown).await
        }
        Err(problem) => Err(problem),
    };
    let entered = entered.and_then(|()| let_in(server, connection, &parts));
    let entered = match entered {
        // Health, metrics and administration are not counted.
        Ok(None) if is_uncounted(server, connection, parts.uri.path()) => Ok(None),
        Ok(caller) => {
            let owner = RateOwner::of(server, connection, &parts.headers, caller.as_ref());
            access::spend(server, owner).map(|()| caller)
        }
        Err(problem) => Err(access::refused(server, connection, &parts.headers, problem).await),
    };
    match entered {
        Ok(None) => {}
        Ok(Some(caller)) => drop(parts.extensions.insert(caller)),
        Err(problem) => return finish(server, connection, &parts, Route::Other, None, Err(problem)),
    }
    tell_handler(server, connection, &mut parts);
    let mut arrived = None;
    let is_generic = server.shared().is_generic(parts.uri.path());
    let is_gateways = is_generic || is_urgent(parts.uri.path());
    // A body that nobody reads is not kept while the request waits.
    let body = if is_gateways && !console::reads_body(parts.uri.path()) {
        RequestBody::Here(Bytes::new())
    } else {
        body
    };
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let path = parts.uri.path();
    if is_generic {
        let (route, answered) = match path::place(path) {
            Some(ApiPath::Kind(SOCKET)) if is_read => {
                // Its messages have no header fields that would say it.
                let shared = server.shared();
                connection.speaks_for(
                    shared.client_address(connection, &parts.headers),
                    shared.client(connection, &parts.headers),
                );
                (Route::Socket, websocket::accept(connection, &parts))
            }
            None => (Route::Other, Err(Problem::unknown_route(path).boxed())),
            Some(ApiPath::Kind(TICKET)) if parts.method == Method::POST => (Route::Other, ticket(server, &parts)),
            Some(_) if !is_read => (Route::Other, Err(wrong_method(server, &parts))),
            Some(ApiPath::Kind(kind)) => (
                Route::Entities,
                entities::list(server, connection, &parts, kind, &mut arrived).await,
            ),
            Some(ApiPath::Entity(kind, id)) => (
                Route::Query,
                query::run(
                    server,
                    connection,
                    &parts,
                    (kind, id, throng::model::View::NAME),
                    &mut arrived,
                )
                .await,
            ),
            Some(ApiPath::Member(kind, id, "events")) if headers::wants_stream(&parts.headers) => {
                (Route::Live, live::open(server, &parts, (kind, id)).await)
            }
            Some(ApiPath::Member(kind, id, "events")) => (
                Route::History,
                history::page(server, connection, &parts, (kind, id), &mut arrived).await,
            ),
            Some(ApiPath::Member(kind, id, name)) => (
                Route::Query,
                query::run(server, connection, &parts, (kind, id, name), &mut arrived).await,
            ),
        };
        return finish(server, connection, &parts, route, arrived, answered);
    }
    if console::page::is_page(path) {
        let answered = console::page::answer(&parts);
        return finish(server, connection, &parts, Route::Other, None, answered);
    }
    if path.starts_with("/admin/") {
        let answered = admin::answer(server, connection, &parts, body).await;
        let answered = slowed(server, connection, &parts, answered).await;
        return finish(server, connection, &parts, Route::Other, None, answered);
    }
    if let Some(answered) = pages::answer(server, connection, &parts) {
        let answered = slowed(server, connection, &parts, answered).await;
        return finish(server, connection, &parts, Route::Other, None, answered);
    }
    app::handle(server, connection, parts, body).await
}

/// Adds what the extractors of an app's handler find.
fn tell_handler(server: &Server, connection: &Connection, parts: &mut Parts) {
    if admin::is(server, connection, parts) {
        parts.extensions.insert(Administrator(()));
    }
    if server.shared().guard.authenticates() {
        parts.extensions.insert(KnowsCallers(()));
    }
}

#[derive(Serialize)]
struct MadeTicket {
    ticket: String,
    expires_in: u64,
}

/// Makes a ticket by which a browser follows what happens at a path.
fn ticket(server: &Server, parts: &Parts) -> Answered<Response<Answer>> {
    let TicketQuery { path } = query_string::read(parts.uri.query())?;
    if !path.starts_with('/') || path.contains(['?', '#']) {
        let detail = "path is not the path of a stream of events, such as /api/account/ann/events.";
        return Err(Problem::malformed(detail).at_field("path").boxed());
    }
    let Some(shown) = parts
        .headers
        .get(header::AUTHORIZATION)
        .filter(|_| caller(parts).is_some())
    else {
        return Err(Problem::unauthorized("A ticket stands for a token: show one.").boxed());
    };
    let made = MadeTicket {
        ticket: server.shared().guard.tickets.make(shown, &path, Instant::now())?,
        expires_in: access::TICKET_LIFE.as_secs(),
    };
    let mut response = answer::json(serde_json::to_vec(&made).unwrap_or_default());
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

/// An answer of administration; that its credentials were wrong may come late.
async fn slowed<T>(server: &Server, connection: &Connection, parts: &Parts, answered: Answered<T>) -> Answered<T> {
    match answered {
        Err(problem) if problem.http_status() == StatusCode::UNAUTHORIZED => {
            Err(access::refused(server, connection, &parts.headers, problem).await)
        }
        answered => answered,
    }
}

/// Requests for a path spend no rate: health, metrics, administration.
fn is_uncounted(server: &Server, connection: &Connection, path: &str) -> bool {
    connection.entrance().is_admin
        || is_administration(server, path)
        || path == "/metrics"
        || path.starts_with("/health/")
}

/// Whether a request that is no command is let in, and who asks. Administration asks for itself; what says no more than the service's types, and
/// whether it lives, is for everybody. Where administration comes in, the rest is for who may administrate: the console asks the service's
/// own routes, too.
fn let_in(server: &Server, connection: &Connection, parts: &Parts) -> Answered<Option<Caller>> {
    let (path, entrance, guard) = (parts.uri.path(), connection.entrance(), &server.shared().guard);
    let sender = Sender::of(parts);
    let is_administration = is_administration(server, path);
    if is_administration && guard.has_admin_listener && !entrance.is_admin {
        return Err(Problem::no_administration_here().boxed());
    }
    let part = Part::of(entrance, is_administration);
    let is_open = pages::is_open(path) || server.shared().open_routes.iter().any(|open| open == path);
    if is_administration || is_open {
        guard.names.check(&sender, entrance.is_loopback, part)?;
        return Ok(None);
    }
    if entrance.is_admin {
        guard.names.check(&sender, entrance.is_loopback, part)?;
        admin::may(server, connection, &parts.headers)?;
        return Ok(None);
    }
    access::enter(server, connection, &sender)
}

/// A path is administration's, by whichever listener it is asked.
fn is_administration(server: &Server, path: &str) -> bool {
    path.starts_with("/admin/")
        || console::page::is_page(path)
        || path == "/metrics" && server.shared().guard.has_admin_listener
}

fn finish(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    route: Route,
    arrived: Option<Instant>,
    answered: Answered<Response<Answer>>,
) -> Response<Answer> {
    let log = logged(server, connection, parts);
    let answered = or_options(&parts.method, answered);
    conclude(server, parts.uri.path(), (route, arrived, log), answered)
}

/// `OPTIONS` is told the methods of a path where another request of the wrong method is refused with them.
fn or_options(method: &Method, answered: Answered<Response<Answer>>) -> Answered<Response<Answer>> {
    let refused = answered.as_ref().err().filter(|_| *method == Method::OPTIONS);
    match refused.and_then(|problem| problem.allowed()) {
        Some(allow) => Ok(answer::options(&format!("{allow}, OPTIONS"))),
        None => answered,
    }
}

/// What the access log is to say of a request, if anything.
fn logged(server: &Server, connection: &Connection, parts: &Parts) -> Option<Box<Entry>> {
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    entry(server, connection, method, path, &parts.headers, caller(parts))
}

/// The next line of the access log, if the next request has one.
fn entry(
    server: &Server,
    connection: &Connection,
    method: &str,
    path: &str,
    headers: &HeaderMap,
    caller: Option<&Caller>,
) -> Option<Box<Entry>> {
    server.logs_next().then(|| {
        let client = server.shared().client_address(connection, headers);
        let mut entry = Entry::new(connection, method, path).from(client);
        entry.by(caller);
        entry
    })
}

/// A request has its answer: it is counted and logged.
fn conclude(
    server: &Server,
    path: &str,
    (route, arrived, log): (Route, Option<Instant>, Option<Box<Entry>>),
    answered: Answered<Response<Answer>>,
) -> Response<Answer> {
    let took = arrived.map(|arrived| arrived.elapsed());
    if let Some(entry) = log {
        match &answered {
            Ok(response) => entry.answered(server, response.status(), took),
            Err(problem) => entry.refused(server, problem, took),
        }
    }
    let response = answered.unwrap_or_else(|problem| counted(server, *problem, path).response());
    server.metrics().answered(route, response.status(), took);
    response
}

/// A problem is counted and told where it happened.
fn counted(server: &Server, problem: Problem, path: &str) -> Problem {
    server.metrics().problem(problem.slug());
    if path.is_empty() {
        problem
    } else {
        problem.at_instance(path)
    }
}

/// What a `POST`, `PUT`, … to a read-only path is told.
fn wrong_method(server: &Server, parts: &Parts) -> Box<Problem> {
    let allow = match path::place(parts.uri.path()) {
        Some(ApiPath::Member(kind, _, name)) => match server.shared().kinds.find(kind) {
            None => return unknown_kind(server, kind),
            Some((_, names)) => allowed(names, name),
        },
        _ => "GET, HEAD",
    };
    Problem::method_not_allowed(&parts.method, allow).boxed()
}

/// The methods of a name below an entity.
fn allowed(names: &Names, name: &str) -> &'static str {
    let reads = name == "events" && !names.is_actor || names.has_query(name);
    match (reads, names.command(name).is_some()) {
        (true, true) => "GET, HEAD, POST",
        (true, false) => "GET, HEAD",
        (false, _) => "POST",
    }
}

/// Who asks, as far as that is known.
fn caller(parts: &Parts) -> Option<&Caller> {
    parts.extensions.get()
}

/// Whether the service lets the events of a kind, or of one of its entities, be seen.
pub(crate) fn may_follow(server: &Server, caller: Option<&Caller>, names: &Names, id: Option<&str>) -> Answered<()> {
    access::may(server, caller, (names.kind, id), Action::Events)
}

/// A kind of entity.
pub(crate) fn kind<'a>(server: &'a Server, name: &str) -> Answered<(usize, &'a Names)> {
    let (kind, names) = commanded(server, name)?;
    if names.is_actor {
        return Err(Problem::only_commands(names.kind).boxed());
    }
    Ok((kind, names))
}

/// A kind of entity or actor.
fn commanded<'a>(server: &'a Server, name: &str) -> Answered<(usize, &'a Names)> {
    server
        .shared()
        .kinds
        .find(name)
        .ok_or_else(|| unknown_kind(server, name))
}

fn unknown_kind(server: &Server, name: &str) -> Box<Problem> {
    unknown(server, Problem::unknown_kind(name, &server.shared().kinds.names()))
}

/// What is said of a name that this program does not know; while a newer release lives, that one may know it.
fn unknown(server: &Server, problem: Problem) -> Box<Problem> {
    let left = problem
        .is_unknown_name()
        .then(|| server.shared().driver.left_to_a_newer(problem.detail()))
        .flatten();
    left.map_or(problem, Problem::of_engine).boxed()
}

/// An entity's id from its part of the path.
fn entity_id(part: &str) -> Answered<Cow<'_, str>> {
    let id = path::decode(part).ok_or_else(|| {
        let detail = "The id is not UTF-8 once its %-escapes are decoded.";
        Problem::malformed(detail).at_field("id").boxed()
    });
    id.and_then(checked_id)
}

/// An entity's id, within its limits.
pub(crate) fn checked_id(id: Cow<'_, str>) -> Answered<Cow<'_, str>> {
    if !throng::limits::is_id(&id) {
        let most = throng::journal::Address::ID_BYTES_MAX;
        let detail = format!("The id has {} bytes; it may have 1 to {most}.", id.len());
        return Err(Problem::malformed(detail).at_field("id").boxed());
    }
    Ok(id)
}

/// Passes the turn's gate, and says how much time is left to the deadline.
async fn admit(
    server: &Server,
    connection: &Connection,
    headers: &HeaderMap,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let limits = server.limits();
    let deadline = headers::timeout(headers, limits.deadline, limits.deadline_max)?;
    let client = server.shared().client(connection, headers);
    enter(server, connection, client, deadline, bytes, arrived).await
}

/// The same, for a request without header fields of its own.
pub(crate) async fn enter(
    server: &Server,
    connection: &Connection,
    client: Client,
    deadline: Duration,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let admitted = server.gate.enter(&connection.place, bytes, || client).await;
    let admitted = admitted.map_err(|refused| Problem::refused(refused.reason, refused.wait).boxed())?;
    time_left(admitted, deadline, arrived)
}

/// Says how much time is left to the deadline of a request that is admitted.
fn time_left(admitted: Admitted, deadline: Duration, arrived: &mut Option<Instant>) -> Answered<Duration> {
    *arrived = Some(admitted.arrived);
    let waited = admitted.now.saturating_duration_since(admitted.arrived);
    match deadline.saturating_sub(waited) {
        Duration::ZERO => Err(Problem::expired().boxed()),
        left => Ok(left),
    }
}

/// What the engine said, as a problem.
pub(crate) fn engine_problem(error: throng::model::Error<throng::JsonRejection>) -> Box<Problem> {
    Problem::of_engine(error).boxed()
}
