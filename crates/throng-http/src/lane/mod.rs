//! The lane of plain requests: HTTP/1.1, a body of a known, small length, nothing to negotiate.
//!
//! Nearly every request of a service is one, and reading and writing it takes a fraction of what a full protocol
//! implementation spends on it. The lane does nothing else: at the first request that is not plainly its own it hands over
//! the connection, with the bytes that have come, to the [full lane](crate::event_loop), which judges it.
//!
//! One task of the loop reads all connections that are ready, executes what they ask for, and answers when that is durable ([direct]). A request
//! that has to wait for more, for an app's handler, for an entity to be loaded, for its turn, for the rest of its body, is polled in its
//! connection's place whenever it can go on.
//!
//! A connection that is ready while its loop has no room for it waits in the loop's [queue](crate::gate), unread: the kernel
//! keeps its bytes. So it does if it is refused, and then only the head of its request is read.
//!
//! Commands that came together (pipelined) are executed one after the other in one turn; their answers leave together, once
//! all of them are durable.
//!
//! A WebSocket of which nothing but such commands comes is direct, too; what else comes of it is its [task's](crate::websocket).

mod calls;
mod chunks;
mod direct;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod head;
mod judge;
mod next;
mod outgoing;
mod ready;
mod refusal;
mod response;
mod wire;

pub(crate) use direct::{Departure, Door, run};
pub(crate) use judge::{Extent, Judged, judge};
pub(crate) use wire::Wire;

/// Commands of one connection that are answered together at most.
const TOGETHER_MAX: usize = 32;
