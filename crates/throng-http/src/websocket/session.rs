//! The loop of one socket: frames in, frames out, one task.

use super::{
    Close, Left, Opened, PLAIN_MIN, Staged,
    message::{self, Id, Message, Query},
    request,
    shared::{Asked, Shared},
    subscription,
    wire::{Unwelcome, Wire},
};
use crate::{
    access_log::UNKNOWN,
    connection::{Connection, Stream, linger},
    metrics::Limit,
    problem::Answered,
    server::Server,
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use throng::model::View;
use tokio::{sync::Notify, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message as Frame, Utf8Bytes,
        error::CapacityError,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

/// The time that a client has to answer a close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The shortest time between two pings.
const SOCKET_PING_MIN: Duration = Duration::from_millis(1);
/// The bytes that the library reads at once, into the socket's own buffer, which it clears each time.
const READ_BYTES: usize = 512;

/// The reason why a socket's loop ends.
enum End {
    /// Its client closed it.
    Client,
    /// The service closes the socket at once.
    Close(Close),
    /// Nothing more is read, and requests in flight are answered first: the gateway drains, or the client's token is no longer accepted.
    After(Close),
    /// The socket is broken.
    Gone,
    /// The socket returns to the fast path: nothing waits, and enough commands came that waited for nothing.
    Plain,
    /// The socket continues without the memory of a large message that is finished.
    Renew,
}

type Socket = RefCell<WebSocketStream<Wire>>;

/// Serves a socket to its end, or until it returns to the fast path. In the latter case returns it with the received bytes.
pub(crate) async fn run(
    server: Rc<Server>,
    connection: Rc<Connection>,
    stream: Stream,
    opened: Opened,
    left: Left,
) -> Option<(Stream, Bytes, Opened)> {
    let limits = server.limits();
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(limits.socket_frame_bytes_max))
        .max_frame_size(Some(limits.socket_frame_bytes_max));
    let Left {
        came,
        skip,
        mut staged,
        output,
        charge,
        hello,
        plain,
    } = left;
    let mut wire = Wire::new(stream, connection.clone(), server.clone(), came, output);
    let mut is_silent = connection.is_silent();
    connection.asks_if_silent(false);
    let in_flight = staged.len();
    let waiting = staged.pop_back_if(|last| last.staged.waits());
    let shared = Rc::new(Shared {
        connection: connection.clone(),
        out: RefCell::default(),
        told: RefCell::new(charge.unwrap_or_else(|| server.shared().held.pages.nothing())),
        left: Notify::new(),
        subscriptions: RefCell::default(),
        in_flight: Cell::new(in_flight),
        staged: RefCell::new(staged),
        answered: Cell::new(0),
        settled: Notify::new(),
        asking: RefCell::default(),
        alive: Cell::new(true),
        plain: Cell::new(if is_silent { 0 } else { plain }),
        executes: Cell::new(false),
        waker: RefCell::default(),
        server: server.clone(),
    });
    if hello {
        shared.out.borrow_mut().hello(limits, &server.shared().kinds.names());
    }
    let subscriptions = Subscriptions(shared.clone());
    let mut first = First { waiting, skip };
    let (end, mut socket) = loop {
        let socket = RefCell::new(WebSocketStream::from_raw_socket(wire, Role::Server, Some(config)).await);
        let end = converse(&shared, &socket, std::mem::take(&mut first), is_silent).await;
        let socket = socket.into_inner();
        if !matches!(end, End::Renew) {
            break (end, socket);
        }
        wire = socket.into_inner();
        wire.gives_back();
        is_silent = false;
    };
    drop(subscriptions);
    let may_send_on = matches!(end, End::Close(_));
    let close = match end {
        End::Gone | End::Renew => return None,
        End::Plain => {
            let (stream, came) = socket.into_inner().into_parts();
            return Some((stream, came, opened));
        }
        End::Client => None,
        End::Close(close) | End::After(close) => Some(close),
    };
    let closing = async {
        if let Some(close) = close {
            let frame = CloseFrame {
                code: close.code().into(),
                reason: Utf8Bytes::from_static(close.reason()),
            };
            socket.close(Some(frame)).await.ok();
        }
        // Until the client has answered the close frame, or got the answer to its own.
        while let Some(Ok(_)) = socket.next().await {}
    };
    if timeout(CLOSE_WAIT, closing).await.is_err() {
        tracing::debug!("a WebSocket's client did not answer its close frame");
    }
    if may_send_on {
        // If the socket were closed while the client still sends, the client could lose the close frame.
        let (mut stream, _) = socket.into_inner().into_parts();
        linger(&mut stream, server.limits().linger_wait).await;
    }
    None
}

/// Ends a socket's subscriptions when the socket ends, because they share its state.
struct Subscriptions(Rc<Shared>);

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *self.0.subscriptions.borrow_mut());
        drop(all);
    }
}

/// Reads, executes and sends, until one side ends it.
async fn converse(shared: &Rc<Shared>, socket: &Socket, first: First, is_silent: bool) -> End {
    let (blocked, has_pong) = (Cell::new(false), Cell::new(false));
    let mut reading = pin!(read(shared, socket, first, &blocked, &has_pong));
    let mut ping = pin!(ping(shared, socket, is_silent));
    // Bytes with precedence may still be on their way.
    let mut writer = Writer { flushing: true };
    let mut ended = None;
    poll_fn(|context| {
        shared.set_waker(context.waker());
        loop {
            blocked.set(false);
            if shared.connection.is_expired() {
                // Later events are not sent.
                drop(std::mem::take(&mut *shared.subscriptions.borrow_mut()));
            }
            if ended.is_none()
                && let Poll::Ready(end) = reading.as_mut().poll(context)
            {
                ended = Some(end);
            }
            if let Poll::Ready(close) = ping.as_mut().poll(context) {
                return Poll::Ready(End::Close(close));
            }
            // Settled answers first, then one frame with them.
            shared.settle(context);
            shared.ask_on(context);
            if writer.poll(shared, socket, context).is_err() {
                return Poll::Ready(End::Gone);
            }
            match ended.take() {
                Some(End::After(close)) if !shared.is_done() => {
                    ended = Some(End::After(close));
                    return Poll::Pending;
                }
                Some(end) => return Poll::Ready(end),
                // There is room already, and nothing else would wake the reader.
                None if blocked.get() && shared.has_room() => {}
                None if !has_pong.get()
                    && !writer.flushing
                    && !shared.executes.get()
                    && socket.borrow().get_ref().is_swollen()
                    && socket.borrow_mut().poll_flush_unpin(context).is_ready() =>
                {
                    return Poll::Ready(End::Renew);
                }
                None if shared.is_plain() && !has_pong.get() && !writer.flushing && is_between_messages(socket) => {
                    return Poll::Ready(End::Plain);
                }
                None => return Poll::Pending,
            }
        }
    })
    .await
}

/// The library has taken whole messages only, and has returned them all.
fn is_between_messages(socket: &Socket) -> bool {
    socket.borrow().get_ref().is_between_messages()
}

/// Work that the fast path has begun on the first frame.
#[derive(Default)]
struct First {
    /// A command that has to wait before it is executed.
    waiting: Option<Staged>,
    /// The messages of the first frame that are done with.
    skip: usize,
}

/// Reads frames and has their messages executed. The next frame is read once the pong to a ping is sent, so there is at most one.
async fn read(shared: &Rc<Shared>, socket: &Socket, first: First, blocked: &Cell<bool>, has_pong: &Cell<bool>) -> End {
    let First { waiting, mut skip } = first;
    if let Some(Staged { id, mut staged }) = waiting {
        // Messages behind this command are executed after it.
        shared.executes.set(true);
        poll_fn(|context| staged.poll_executed(&shared.server, context)).await;
        shared.executes.set(false);
        shared.staged.borrow_mut().push_back(Staged { id, staged });
    }
    loop {
        let came = poll_fn(|context| {
            if shared.connection.is_ending() {
                return Poll::Ready(Err(End::After(Close::Stopping)));
            }
            if shared.connection.is_expired() {
                return Poll::Ready(Err(End::After(Close::Expired)));
            }
            if has_pong.get() {
                if ready!(socket.borrow_mut().poll_flush_unpin(context)).is_err() {
                    return Poll::Ready(Err(End::Gone));
                }
                has_pong.set(false);
            }
            if !shared.has_room() {
                blocked.set(true);
                socket.borrow_mut().get_mut().pauses();
                return Poll::Pending;
            }
            socket.borrow_mut().poll_next_unpin(context).map(Ok)
        });
        let frame = match came.await {
            Err(end) => return end,
            Ok(None) => return End::Client,
            Ok(Some(Err(error))) => return end_of(&shared.server, &error),
            Ok(Some(Ok(frame))) => frame,
        };
        shared.alive.set(true);
        match frame {
            Frame::Text(text) => {
                shared.server.metrics().frames_in.inc();
                // Boxed, since it is finished before the next socket's begins, so that all use the same memory.
                shared.executes.set(true);
                Box::pin(execute(shared, text.into(), std::mem::take(&mut skip), blocked)).await;
                shared.executes.set(false);
            }
            Frame::Binary(_) => return End::Close(Close::Binary),
            Frame::Close(_) => return End::Client,
            Frame::Ping(_) => has_pong.set(true),
            Frame::Pong(_) | Frame::Frame(_) => {}
        }
    }
}

fn end_of(server: &Server, error: &tungstenite::Error) -> End {
    use tungstenite::Error::{Capacity, Io, Protocol, Utf8};
    let unwelcome = match error {
        Io(error) => error.get_ref().and_then(|why| why.downcast_ref()),
        _ => None,
    };
    match unwelcome {
        Some(Unwelcome::NoRoom) => {
            server.metrics().limited(Limit::Frames);
            return End::Close(Close::Full);
        }
        Some(Unwelcome::Late) => {
            server.metrics().limited(Limit::MessageWait);
            return End::Close(Close::Late);
        }
        None => {}
    }
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

/// Executes the messages of a frame, one after the other, without the first `skip`.
//= promise 1: one command at a time
async fn execute(shared: &Rc<Shared>, frame: Bytes, skip: usize, blocked: &Cell<bool>) {
    // The library has checked that it is valid text.
    let text = std::str::from_utf8(&frame).unwrap_or_default();
    let messages = match message::messages(text, shared.server.limits().socket_messages_max) {
        Ok(messages) => messages,
        Err(problem) => {
            if problem.http_status() == StatusCode::PAYLOAD_TOO_LARGE {
                shared.server.metrics().limited(Limit::SocketMessages);
            }
            // Even a refusal of all messages takes its part of a batch.
            let problem = pass(shared).await.err().unwrap_or(problem);
            shared.logged(shared.log(UNKNOWN, &["ws"]), Some(&problem));
            return shared.refuse(None, &problem);
        }
    };
    for (id, message) in messages.skip(skip) {
        // A frame may hold more requests than may be in flight.
        poll_fn(|_| match shared.has_room() || shared.connection.is_expired() {
            true => Poll::Ready(()),
            false => {
                blocked.set(true);
                Poll::Pending
            }
        })
        .await;
        if shared.connection.is_expired() {
            return;
        }
        let (id, message) = match (id, message) {
            (Some(id), Ok(message)) => (id, message),
            (id, Err(problem)) => {
                // A refusal takes its part of a batch, too.
                let problem = pass(shared).await.err().unwrap_or(problem);
                shared.logged(shared.log(UNKNOWN, &["ws"]), Some(&problem));
                shared.refuse(id.as_ref(), &problem);
                continue;
            }
            (None, Ok(_)) => continue,
        };
        let (log, done) = match message {
            Message::Command(command) => {
                let is_plain = command.is_plain();
                let staged = request::stage(&shared.server, &shared.connection, command).await;
                shared.plain.set(match staged.is_waited_for() || !is_plain {
                    true => PLAIN_MIN,
                    false => shared.plain.get().saturating_sub(1),
                });
                shared.in_flight.set(shared.in_flight.get() + 1);
                shared.staged.borrow_mut().push_back(Staged { id, staged });
                continue;
            }
            Message::Query(query) => {
                shared.plain.set(PLAIN_MIN);
                ask(shared, id, query).await;
                continue;
            }
            Message::Subscribe(asked) => {
                let parts = [Some(&*asked.kind), asked.entity.as_deref(), Some("events")];
                let log = shared.log("SUBSCRIBE", &parts.into_iter().flatten().collect::<Vec<_>>());
                (log, subscription::subscribe(shared, id.clone(), asked).await)
            }
            // These reduce the work, and are accepted even under too much of it.
            Message::Credit(events) => {
                let log = shared.log("CREDIT", &["ws"]);
                pass(shared).await.ok();
                (log, subscription::grant(shared, &id, events))
            }
            Message::Unsubscribe => {
                let log = shared.log("UNSUBSCRIBE", &["ws"]);
                pass(shared).await.ok();
                let ended = subscription::unsubscribe(shared, &id);
                (log, ended.map(|()| shared.tell(|out| out.unsubscribed(&id))))
            }
        };
        shared.logged(log, done.as_ref().err().map(|problem| &**problem));
        if let Err(problem) = done {
            shared.refuse(Some(&id), &problem);
        }
    }
}

/// Waits for admission of a message that is neither a command nor a query.
async fn pass(shared: &Shared) -> Answered<()> {
    request::turn(&shared.server, &shared.connection, &mut None).await?;
    request::spend(&shared.server, &shared.connection)
}

/// Asks now, so that the answer reflects the commands before it and none after. It may have to wait for them to be durable.
async fn ask(shared: &Rc<Shared>, id: Id, query: Query<'_>) {
    let query = query.into_owned();
    let name = query.query.as_deref().unwrap_or(View::NAME);
    let log = shared.log("QUERY", &[&query.kind, &query.entity, name]);
    let mut asked = Asked { id, arrived: None, log };
    shared.in_flight.set(shared.in_flight.get() + 1);
    let mut asking: Pin<Box<dyn Future<Output = ()>>> = Box::pin({
        let shared = shared.clone();
        async move {
            let answered = request::query(&shared.server, &shared.connection, query, &mut asked.arrived).await;
            shared.in_flight.set(shared.in_flight.get() - 1);
            shared.answer(asked, answered);
        }
    });
    let asked = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
    if asked.is_pending() {
        shared.asking.borrow_mut().push(asking);
    }
}

/// Pings a silent client regularly, and ends when it does not answer.
async fn ping(shared: &Shared, socket: &Socket, is_silent: bool) -> Close {
    let silence = shared.server.limits().socket_ping.max(SOCKET_PING_MIN);
    let mut every = tokio::time::interval_at(tokio::time::Instant::now() + silence, silence);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    if !is_silent {
        every.tick().await;
    }
    loop {
        if !shared.alive.replace(false) && !shared.is_busy() {
            return Close::Silent;
        }
        let sent = poll_fn(|context| {
            let mut socket = socket.borrow_mut();
            ready!(socket.poll_ready_unpin(context))?;
            Poll::Ready(socket.start_send_unpin(Frame::Ping(Bytes::new())))
        });
        if sent.await.is_err() {
            // The reader handles it.
            std::future::pending::<()>().await;
        }
        every.tick().await;
    }
}

/// Sends frames, one after the other. While one is being sent, the next gathers.
struct Writer {
    flushing: bool,
}

impl Writer {
    /// Sends as much as possible.
    fn poll(&mut self, shared: &Shared, socket: &Socket, context: &mut Context<'_>) -> Result<(), tungstenite::Error> {
        let mut socket = socket.borrow_mut();
        loop {
            if self.flushing {
                let Poll::Ready(flushed) = socket.poll_flush_unpin(context) else {
                    return Ok(());
                };
                flushed?;
                self.flushing = false;
                shared.told.borrow_mut().shrink_to(shared.out.borrow().bytes());
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
            shared.server.metrics().frames_out.inc();
            // All of it was written as JSON, so this cannot fail.
            if let Ok(text) = Utf8Bytes::try_from(frame) {
                socket.start_send_unpin(Frame::Text(text))?;
                self.flushing = true;
            }
        }
    }
}
