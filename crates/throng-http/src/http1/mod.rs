//! Our own HTTP/1.1 for plain requests, the fast path: a body of a known, small length, nothing to negotiate.
//!
//! Nearly every request of a service is plain. Reading and writing it here costs a fraction of what a full implementation spends.
//! At the first request that is not plain, the fast path hands the connection and the received bytes over.
//! The [event loop](crate::event_loop) then judges the request, and serves it with hyper.
//!
//! A task of the loop reads all ready connections, executes their requests, and answers once that is durable ([direct]).
//! A request may have to wait for more: an app's handler, the load of an entity, its batch, the rest of its body.
//! The task then polls it in its connection's place whenever it can go on.
//!
//! A connection that is ready while its loop has no room waits in the loop's [queue](crate::admission), unread: the kernel keeps its bytes.
//! If it is refused, only the head of its request is read.
//!
//! Commands that came together (pipelined) are executed one after the other in one batch.
//! Their answers leave together, once all of them are durable.
//!
//! A WebSocket that sends only such commands is served here, too. Anything else moves it into its [task](crate::websocket).

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

pub(crate) use direct::{Departure, Intake, run};
pub(crate) use judge::{Extent, Judged, judge};
pub(crate) use wire::Wire;

/// Commands of one connection that are answered together at most.
const TOGETHER_MAX: usize = 32;
