//! The loop: it waits for sockets, gives each ready connection one turn, and repeats.

use super::answer::AnswerWriter;
use super::connection::{Connection, Next, READ_BYTES};
use super::{EchoError, Stop};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

/// The most open connections of one loop. A further one is closed at once.
pub const CONNECTIONS_MAX: usize = 10_000;

/// The most ready sockets of one wait.
const EVENTS_MAX: usize = 1024;

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// The counts of loops from their start to their stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The number of answered requests, including those whose body was not JSON.
    pub requests: u64,
    /// The number of accepted connections.
    pub connections: u64,
}

/// Serves with one loop on this thread until `stop` is raised.
///
/// # Errors
/// The system refuses to wait for sockets or to accept a connection. A client's fault only ends its own connection.
pub fn serve(listener: &TcpListener, stop: &Stop) -> Result<Served, EchoError> {
    let mut event_loop = EventLoop::new(listener, stop)?;
    let mut events = Vec::with_capacity(EVENTS_MAX);
    loop {
        match epoll::wait(&event_loop.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(EchoError::failed("wait for sockets")(error)),
        }
        for event in events.drain(..) {
            match event_loop.handle(event)? {
                Flow::Go => {}
                Flow::Stop => return Ok(event_loop.served),
            }
        }
    }
}

/// Serves with one loop for each listener, each on a thread of its own, until `stop` is raised or one of them fails.
///
/// # Errors
/// Returns the first error of [`serve`], after the other loops have stopped too.
pub fn serve_all(listeners: Vec<TcpListener>, stop: &Stop) -> Result<Served, EchoError> {
    std::thread::scope(|scope| {
        let loops: Vec<_> = listeners
            .iter()
            .map(|listener| {
                scope.spawn(move || {
                    let served = serve(listener, stop);
                    stop.raise();
                    served
                })
            })
            .collect();
        let mut sum = Served::default();
        let mut failure = None;
        for finished in loops {
            match finished.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(served) => {
                    sum.requests += served.requests;
                    sum.connections += served.connections;
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(sum), Err)
    })
}

enum Flow {
    Go,
    Stop,
}

struct EventLoop<'a> {
    epoll: OwnedFd,
    listener: &'a TcpListener,
    /// The connections by slot. Events of epoll name the slot.
    connections: Vec<Option<Connection>>,
    free_slots: Vec<usize>,
    buffer: Box<[u8; READ_BYTES]>,
    writer: AnswerWriter,
    served: Served,
}

impl<'a> EventLoop<'a> {
    fn new(listener: &'a TcpListener, stop: &Stop) -> Result<Self, EchoError> {
        listener
            .set_nonblocking(true)
            .map_err(EchoError::failed("make the listener non-blocking"))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(EchoError::failed("make an epoll"))?;
        epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)
            .and_then(|()| epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN))
            .map_err(EchoError::failed("wait for connections"))?;
        Ok(Self {
            epoll,
            listener,
            connections: Vec::new(),
            free_slots: Vec::new(),
            buffer: Box::new([0; READ_BYTES]),
            writer: AnswerWriter::default(),
            served: Served::default(),
        })
    }

    fn handle(&mut self, event: Event) -> Result<Flow, EchoError> {
        match event.data.u64() {
            STOP => return Ok(Flow::Stop),
            LISTENER => self.accept_all()?,
            slot => self.turn(slot as usize)?,
        }
        Ok(Flow::Go)
    }

    fn accept_all(&mut self) -> Result<(), EchoError> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(EchoError::Accept(error)),
            };
            if self.connections.len() - self.free_slots.len() == CONNECTIONS_MAX {
                continue;
            }
            stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .map_err(EchoError::failed("set up a connection"))?;
            let slot = self.free_slots.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            epoll::add(&self.epoll, &stream, EventData::new_u64(slot as u64), EventFlags::IN)
                .map_err(EchoError::failed("wait for a connection"))?;
            self.connections[slot] = Some(Connection::new(stream));
            self.served.connections += 1;
        }
    }

    fn turn(&mut self, slot: usize) -> Result<(), EchoError> {
        // The connection was closed earlier in this pass, so the event is stale.
        let Some(connection) = &mut self.connections[slot] else {
            return Ok(());
        };
        match connection.turn(&mut self.buffer, &mut self.writer, &mut self.served.requests) {
            Next::Wait(interest) if interest == connection.interest => {}
            Next::Wait(interest) => {
                epoll::modify(
                    &self.epoll,
                    &connection.stream,
                    EventData::new_u64(slot as u64),
                    interest,
                )
                .map_err(EchoError::failed("wait for a connection"))?;
                connection.interest = interest;
            }
            Next::Close => {
                self.connections[slot] = None;
                self.free_slots.push(slot);
            }
        }
        Ok(())
    }
}
