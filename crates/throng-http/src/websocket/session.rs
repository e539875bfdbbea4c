//! The loop of one socket: frames in, frames out, one task.

use super::{
    Close, OUTBOX_BYTES_MAX,
    message::{self, Id, Message, Query},
    outbox::Outbox,
    request,
    subscription::{self, Subscription},
    wire::Wire,
};
use crate::{
    event_loop::{Connection, Local, Stream},
    metrics::Route,
    problem::Problem,
    routes::{self, Answered},
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream::FuturesUnordered};
use http::StatusCode;
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use throng::driver::Executed;
use tokio::{sync::Notify, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message as Frame, Utf8Bytes,
        error::CapacityError,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

/// How long a client may take to answer a close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// What is read at once.
const READ_BYTES: usize = 16 << 10;

/// What the tasks of a socket share.
pub(super) struct Shared {
    pub(super) local: Rc<Local>,
    pub(super) connection: Rc<Connection>,
    out: RefCell<Outbox>,
    /// Some of it has left.
    left: Notify,
    pub(super) subscriptions: RefCell<HashMap<Id, Subscription>>,
    /// Commands that were executed, in their order; their answers wait for their commits.
    staged: RefCell<VecDeque<Staged>>,
    /// Queries that wait.
    asking: RefCell<FuturesUnordered<Pin<Box<dyn Future<Output = ()>>>>>,
    /// Requests whose answer was not told yet.
    in_flight: Cell<usize>,
    /// Something came since the last ping.
    alive: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct Staged {
    id: Id,
    executed: Executed,
    arrived: Option<Instant>,
}

/// Why a socket ends.
enum End {
    /// Its client closed it.
    Client,
    /// It is closed.
    Close(Close),
    /// The gateway drains: what is in flight is answered first.
    Stopping,
    /// It is broken.
    Gone,
}

type Socket = RefCell<WebSocketStream<Wire>>;

/// Serves a socket to its end.
pub(crate) async fn run(local: Rc<Local>, connection: Rc<Connection>, stream: Stream) {
    // A socket is one long request to its connection: it may be silent for long.
    let _in_flight = connection.begin(http::Version::HTTP_11);
    let limits = local.limits();
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(limits.socket_frame_bytes_max))
        .max_frame_size(Some(limits.socket_frame_bytes_max));
    let _level = local.metrics().socket_opened();
    let wire = Wire::new(stream, connection.clone());
    let socket = RefCell::new(WebSocketStream::from_raw_socket(wire, Role::Server, Some(config)).await);
    let shared = Rc::new(Shared {
        connection: connection.clone(),
        out: RefCell::default(),
        left: Notify::new(),
        subscriptions: RefCell::default(),
        staged: RefCell::default(),
        asking: RefCell::default(),
        in_flight: Cell::new(0),
        alive: Cell::new(true),
        waker: RefCell::default(),
        local: local.clone(),
    });
    shared.out.borrow_mut().hello(limits, &local.shared().kinds.names());
    let subscriptions = Subscriptions(shared.clone());
    let end = converse(&shared, &connection, &socket).await;
    drop(subscriptions);
    let mut socket = socket.into_inner();
    let close = match end {
        End::Gone => return,
        End::Client => None,
        End::Close(close) => Some(close),
        End::Stopping => Some(Close::Stopping),
    };
    let closing = async {
        if let Some(close) = close {
            let frame = CloseFrame {
                code: close.code().into(),
                reason: Utf8Bytes::from_static(close.reason()),
            };
            socket.close(Some(frame)).await.ok();
        }
        // Until the client has answered the close frame, or its own was answered.
        while let Some(Ok(_)) = socket.next().await {}
    };
    if timeout(CLOSE_WAIT, closing).await.is_err() {
        tracing::debug!("a WebSocket's client did not answer its close frame");
    }
}

/// Ends a socket's subscriptions, however the socket ends: they hold what they share with it.
struct Subscriptions(Rc<Shared>);

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *self.0.subscriptions.borrow_mut());
        drop(all);
    }
}

/// Reads, executes and tells, until one side ends it.
async fn converse(shared: &Rc<Shared>, connection: &Connection, socket: &Socket) -> End {
    let blocked = Cell::new(false);
    let mut reading = pin!(read(shared, connection, socket, &blocked));
    let mut telling = pin!(settle(shared));
    let mut ping = pin!(ping(shared, socket));
    let mut writer = Writer::default();
    let mut ended = None;
    poll_fn(|context| {
        shared.set_waker(context.waker());
        loop {
            blocked.set(false);
            if ended.is_none()
                && let Poll::Ready(end) = reading.as_mut().poll(context)
            {
                ended = Some(end);
            }
            if let Poll::Ready(close) = ping.as_mut().poll(context) {
                return Poll::Ready(End::Close(close));
            }
            // First all that is settled, then what it comes to as one frame.
            let Poll::Pending = telling.as_mut().poll(context);
            while let Poll::Ready(Some(())) = shared.asking.borrow_mut().poll_next_unpin(context) {}
            if writer.poll(shared, socket, context).is_err() {
                return Poll::Ready(End::Gone);
            }
            match ended.take() {
                Some(End::Stopping) if !shared.is_done() => {
                    ended = Some(End::Stopping);
                    return Poll::Pending;
                }
                Some(end) => return Poll::Ready(end),
                // What it waited for is there already: nobody else would wake it.
                None if blocked.get() && shared.has_room() => {}
                None => return Poll::Pending,
            }
        }
    })
    .await
}

/// Reads frames and has their messages executed.
async fn read(shared: &Rc<Shared>, connection: &Connection, socket: &Socket, blocked: &Cell<bool>) -> End {
    loop {
        let came = poll_fn(|context| {
            if connection.is_ending() {
                return Poll::Ready(Err(End::Stopping));
            }
            if !shared.has_room() {
                blocked.set(true);
                return Poll::Pending;
            }
            socket.borrow_mut().poll_next_unpin(context).map(Ok)
        });
        let frame = match came.await {
            Err(end) => return end,
            Ok(None) => return End::Client,
            Ok(Some(Err(error))) => return end_of(&error),
            Ok(Some(Ok(frame))) => frame,
        };
        shared.alive.set(true);
        match frame {
            Frame::Text(text) => {
                shared.local.metrics().frames_in.inc();
                execute(shared, text.into(), blocked).await;
            }
            Frame::Binary(_) => return End::Close(Close::Binary),
            Frame::Close(_) => return End::Client,
            Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_) => {}
        }
    }
}

fn end_of(error: &tungstenite::Error) -> End {
    use tungstenite::Error::{Capacity, Protocol, Utf8};
    match error {
        Capacity(CapacityError::MessageTooLong { .. }) => End::Close(Close::TooLarge),
        Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => End::Gone,
        Protocol(_) => End::Close(Close::Protocol),
        Utf8(_) => End::Close(Close::NotText),
        error => {
            tracing::debug!("a WebSocket ended early: {error}");
            End::Gone
        }
    }
}

/// Executes the messages of a frame, one after the other.
async fn execute(shared: &Rc<Shared>, frame: Bytes, blocked: &Cell<bool>) {
    // It was text when it came.
    let text = std::str::from_utf8(&frame).unwrap_or_default();
    let messages = match message::split(text) {
        Ok(messages) => messages,
        Err(problem) => return shared.refuse(None, &problem),
    };
    for raw in messages {
        // A frame may hold more requests than may be in flight.
        poll_fn(|_| match shared.has_room() {
            true => Poll::Ready(()),
            false => {
                blocked.set(true);
                Poll::Pending
            }
        })
        .await;
        let (id, message) = message::read(raw);
        let (id, message) = match (id, message) {
            (Some(id), Ok(message)) => (id, message),
            (id, Err(problem)) => {
                shared.refuse(id.as_ref(), &problem);
                continue;
            }
            (None, Ok(_)) => continue,
        };
        let done = match message {
            Message::Command(command) => {
                let mut arrived = None;
                match request::stage(&shared.local, &shared.connection, command, &mut arrived).await {
                    Ok(executed) => {
                        shared.in_flight.set(shared.in_flight.get() + 1);
                        let staged = Staged { id, executed, arrived };
                        shared.staged.borrow_mut().push_back(staged);
                    }
                    Err(problem) => shared.answer(Route::Command, &id, arrived, Err(problem)),
                }
                continue;
            }
            Message::Query(query) => {
                ask(shared, id, query).await;
                continue;
            }
            Message::Subscribe(asked) => subscription::subscribe(shared, id.clone(), asked),
            Message::Credit(events) => subscription::grant(shared, &id, events),
            Message::Unsubscribe => {
                let ended = subscription::unsubscribe(shared, &id);
                ended.map(|()| shared.tell(|out| out.unsubscribed(&id)))
            }
        };
        if let Err(problem) = done {
            shared.refuse(Some(&id), &problem);
        }
    }
}

/// Asks now, so that the answer shows the commands before it and none after; it may have to wait for them to be durable.
async fn ask(shared: &Rc<Shared>, id: Id, query: Query<'_>) {
    let query = query.into_owned();
    shared.in_flight.set(shared.in_flight.get() + 1);
    let mut asking: Pin<Box<dyn Future<Output = ()>>> = Box::pin({
        let shared = shared.clone();
        async move {
            let mut arrived = None;
            let answered = request::query(&shared.local, &shared.connection, query, &mut arrived).await;
            shared.in_flight.set(shared.in_flight.get() - 1);
            shared.answer(Route::Query, &id, arrived, answered);
        }
    });
    let asked = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
    if asked.is_pending() {
        shared.asking.borrow_mut().push(asking);
    }
}

/// Tells the answers of what was executed, in that order, for ever.
async fn settle(shared: &Shared) -> std::convert::Infallible {
    loop {
        let next = poll_fn(|_| {
            shared
                .staged
                .borrow_mut()
                .pop_front()
                .map_or(Poll::Pending, Poll::Ready)
        });
        let Staged {
            id,
            mut executed,
            arrived,
        } = next.await;
        let settled = executed.answer().await.map_err(routes::engine_problem);
        shared.in_flight.set(shared.in_flight.get() - 1);
        shared.answer(Route::Command, &id, arrived, settled);
    }
}

/// Asks a silent client whether it is there, now and then; ends when it is not.
async fn ping(shared: &Shared, socket: &Socket) -> Close {
    let mut every = tokio::time::interval(shared.local.limits().socket_ping);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    every.tick().await;
    loop {
        every.tick().await;
        if !shared.alive.replace(false) {
            return Close::Silent;
        }
        let sent = poll_fn(|context| {
            let mut socket = socket.borrow_mut();
            ready!(socket.poll_ready_unpin(context))?;
            Poll::Ready(socket.start_send_unpin(Frame::Ping(Bytes::new())))
        });
        if sent.await.is_err() {
            // The reader knows why.
            std::future::pending::<()>().await;
        }
    }
}

/// Sends frames, one after the other: while one is under way, the next gathers.
#[derive(Default)]
struct Writer {
    flushing: bool,
}

impl Writer {
    /// Sends what it can.
    fn poll(&mut self, shared: &Shared, socket: &Socket, context: &mut Context<'_>) -> Result<(), tungstenite::Error> {
        let mut socket = socket.borrow_mut();
        loop {
            if self.flushing {
                let Poll::Ready(flushed) = socket.poll_flush_unpin(context) else {
                    return Ok(());
                };
                flushed?;
                self.flushing = false;
            }
            if shared.out.borrow().is_empty() {
                return Ok(());
            }
            let Poll::Ready(ready) = socket.poll_ready_unpin(context) else {
                return Ok(());
            };
            ready?;
            let Some(frame) = shared.out.borrow_mut().take() else {
                return Ok(());
            };
            shared.left.notify_waiters();
            shared.local.metrics().frames_out.inc();
            // All of it was written as JSON.
            if let Ok(text) = Utf8Bytes::try_from(frame) {
                socket.start_send_unpin(Frame::Text(text))?;
                self.flushing = true;
            }
        }
    }
}

impl Shared {
    fn set_waker(&self, waker: &Waker) {
        let mut own = self.waker.borrow_mut();
        if !own.as_ref().is_some_and(|own| own.will_wake(waker)) {
            *own = Some(waker.clone());
        }
    }

    /// Gathers a message, and has it sent.
    pub(super) fn tell(&self, tell: impl FnOnce(&mut Outbox)) {
        tell(&mut self.out.borrow_mut());
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Waits until no more than so many bytes wait for the client.
    pub(super) async fn room(&self, bytes: usize) {
        loop {
            let left = self.left.notified();
            if self.out.borrow().bytes() <= bytes {
                return;
            }
            left.await;
        }
    }

    /// One more request may be read.
    fn has_room(&self) -> bool {
        self.in_flight.get() < self.local.limits().socket_requests_max && self.out.borrow().bytes() <= OUTBOX_BYTES_MAX
    }

    /// All that was asked is answered.
    fn is_done(&self) -> bool {
        self.in_flight.get() == 0 && self.out.borrow().is_empty()
    }

    fn refuse(&self, id: Option<&Id>, problem: &Problem) {
        self.local.metrics().problem(problem.slug());
        self.out.borrow_mut().problem(id, problem);
    }

    fn answer(&self, route: Route, id: &Id, arrived: Option<Instant>, answered: Answered<Vec<u8>>) {
        let status = match &answered {
            Ok(body) => {
                self.out.borrow_mut().reply(id, body);
                StatusCode::OK
            }
            Err(problem) => {
                self.refuse(Some(id), problem);
                problem.http_status()
            }
        };
        let took = arrived.map(|arrived| arrived.elapsed());
        self.local.metrics().answered(route, status, took);
    }
}
