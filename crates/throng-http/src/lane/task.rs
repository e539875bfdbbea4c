//! A connection as a task of its own: its requests may wait, for whatever it is.

use super::{
    TOGETHER_MAX,
    next::{Else, Next, Other, look},
    outgoing::{Outgoing, Written},
    response,
    wire::{ReadOutcome, Wire},
};
use crate::{
    access::cors,
    access_log::{Entry, UNKNOWN},
    answer::{Answer, Reply},
    connection::{Connection, InFlight, Stream},
    event_loop::EventLoop,
    request::headers,
    routes::{self, CommandBody},
};
use bytes::Bytes;
use http::{Response, Version};
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::Poll,
};
use throng::driver::Charge;

/// How a task ends.
pub(crate) enum End {
    /// The connection is over.
    Over,
    /// It is over with its last answer, which has gone.
    Linger(Stream),
    /// Its requests wait for nothing any more.
    Direct(Wire),
    /// The next request is not the lane's: the connection, and what has come of the request.
    HandOver(Stream, Bytes),
}

/// What a connection has begun when it becomes a task.
pub(crate) enum Work {
    /// Nothing: it begins with the bytes that have come.
    Nothing,
    /// What was executed together; the last closes the connection, if so said.
    Settle(Vec<routes::Staged>, bool),
    /// An answer is on its way; after it the connection closes, if so said.
    Answer(Pin<Box<dyn Future<Output = Response<Answer>>>>, bool),
    /// A response is on its way.
    Respond(Outgoing),
    /// The bytes that are to go; after them the connection closes, if so said.
    Flush(bool),
}

/// Answers the plain requests of a connection.
pub(crate) async fn serve(
    event_loop: &Rc<EventLoop>,
    connection: &Rc<Connection>,
    mut wire: Wire,
    work: Work,
) -> io::Result<End> {
    let limits = event_loop.server.limits();
    if finish(event_loop, connection, &mut wire, work).await? {
        return Ok(End::Linger(wire.into_parts().0));
    }
    let mut together: Vec<routes::Staged> = Vec::new();
    // The request, and what its body takes among all bodies in flight.
    let mut in_flight: Option<(InFlight<&Connection>, Option<Charge>)> = None;
    // The last request waited for nothing but its commit.
    let mut is_direct = false;
    loop {
        let next = match look(&wire.input, limits) {
            Next::Else(next) => next,
            Next::Command(command) => {
                in_flight.get_or_insert_with(|| (connection.begin(Version::HTTP_11), None));
                // Boxed: what it needs is done with before the next connection's, so that all use the same memory.
                let (head, body) = (command.head(), CommandBody::Here(command.body));
                let stage = Box::pin(routes::stage(&event_loop.server, connection, &head, body));
                let (staged, waited) = noting(connection, stage).await;
                is_direct = !waited && headers::is_plain(&command.headers) && !staged.is_waited_for();
                together.push(staged);
                let (end, closes) = (command.end, command.closes);
                wire.advance(end);
                if closes || wire.input.is_empty() || together.len() == TOGETHER_MAX {
                    settle(event_loop, connection, &mut wire, &mut together, closes).await?;
                    in_flight = None;
                    wire.flush().await?;
                    if closes || connection.is_ending() {
                        return Ok(End::Linger(wire.into_parts().0));
                    }
                }
                continue;
            }
        };
        settle(event_loop, connection, &mut wire, &mut together, false).await?;
        let read = in_flight.take().filter(|_| matches!(next, Else::Other(_)));
        wire.flush().await?;
        match next {
            Else::HandOver => {
                let (stream, came) = wire.into_parts();
                return Ok(End::HandOver(stream, came));
            }
            Else::Read if is_direct => return Ok(End::Direct(wire)),
            Else::Read => {
                if connection.is_ending() || wire.read().await? == ReadOutcome::End {
                    return Ok(End::Over);
                }
            }
            Else::ReadTo(end) => {
                let begun = connection.begin(Version::HTTP_11);
                match wire.read_to(end).await? {
                    Ok(taken) => in_flight = Some((begun, Some(taken))),
                    Err(problem) => {
                        if event_loop.server.logs_next() {
                            Entry::new(connection, UNKNOWN, UNKNOWN).refused(&event_loop.server, &problem, None);
                        }
                        let mut response = problem.response();
                        let names = &event_loop.server.shared().guard.names;
                        if let Some(origin) = cors::allowed_in(&wire.input, names, connection.entrance()) {
                            cors::allow(&mut response, origin);
                        }
                        let outgoing = Outgoing::begin(event_loop, connection, response, true, wire.output());
                        respond(&mut wire, outgoing).await?;
                        wire.flush().await?;
                        return Ok(End::Linger(wire.into_parts().0));
                    }
                }
            }
            Else::Other(Other {
                request, end, closes, ..
            }) => {
                let in_flight = connection.begin(Version::HTTP_11);
                wire.advance(end);
                let (response, waited) =
                    noting(connection, routes::answer(&event_loop.server, connection, *request)).await;
                is_direct = !waited;
                let outgoing = Outgoing::begin(event_loop, connection, response, closes, wire.output());
                let closes = respond(&mut wire, outgoing).await?;
                drop((in_flight, read));
                wire.flush().await?;
                if closes {
                    return Ok(End::Linger(wire.into_parts().0));
                }
            }
        }
    }
}

/// Ends what was begun before the connection became a task; `true` if the connection ends with it.
async fn finish(
    event_loop: &Rc<EventLoop>,
    connection: &Rc<Connection>,
    wire: &mut Wire,
    work: Work,
) -> io::Result<bool> {
    let in_flight = (!matches!(work, Work::Nothing)).then(|| connection.begin(Version::HTTP_11));
    // What was answered before does not wait for this.
    wire.flush().await?;
    let closes = match work {
        Work::Nothing => return Ok(false),
        Work::Flush(closes) => closes,
        Work::Settle(mut together, closes) => {
            settle(event_loop, connection, wire, &mut together, closes).await?;
            closes
        }
        Work::Answer(answer, closes) => {
            let response = answer.await;
            let outgoing = Outgoing::begin(event_loop, connection, response, closes, wire.output());
            respond(wire, outgoing).await?
        }
        Work::Respond(outgoing) => respond(wire, outgoing).await?,
    };
    drop(in_flight);
    wire.flush().await?;
    Ok(closes || connection.is_ending())
}

/// Waits for a future, and says whether there was anything to wait for but the connection's turn.
async fn noting<F: Future + Unpin>(connection: &Connection, mut future: F) -> (F::Output, bool) {
    let mut waited = false;
    poll_fn(|context| {
        let polled = Pin::new(&mut future).poll(context);
        waited |= polled.is_pending() && !connection.place.is_waiting();
        polled.map(|output| (output, waited))
    })
    .await
}

/// Waits until what was executed together is durable, and writes the answers down.
async fn settle(
    event_loop: &Rc<EventLoop>,
    connection: &Connection,
    wire: &mut Wire,
    together: &mut Vec<routes::Staged>,
    closes: bool,
) -> io::Result<()> {
    let count = together.len();
    for (at, staged) in together.iter_mut().enumerate() {
        let settled = routes::settle(&event_loop.server, staged).await;
        let closes = at + 1 == count && (closes || connection.is_ending());
        match settled {
            Ok(Reply { body, charge }) => {
                wire.hold(charge);
                event_loop
                    .date
                    .with(|date| response::reply(wire.output(), &body, date, closes));
            }
            Err(problem) => {
                let outgoing = Outgoing::begin(event_loop, connection, problem.response(), closes, wire.output());
                respond(wire, outgoing).await?;
            }
        }
    }
    together.clear();
    Ok(())
}

/// Writes a response down, or sends as much of it as there is. `true` if the connection ends with it.
async fn respond(wire: &mut Wire, mut outgoing: Outgoing) -> io::Result<bool> {
    loop {
        let written = poll_fn(|context| match outgoing.poll(wire.output(), context) {
            Poll::Ready(written) => Poll::Ready(written),
            // While nothing comes from the app, what has come of it leaves, and a client that goes away is noticed.
            Poll::Pending => wire.poll_gone(context).map(Err),
        });
        match written.await? {
            Written::All => return Ok(outgoing.closes),
            Written::Full => wire.flush().await?,
        }
    }
}
