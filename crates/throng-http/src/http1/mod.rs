//! Our own HTTP/1.1 for plain requests, the fast path: a body of a known, small length, nothing to negotiate.
//!
//! Nearly every request of a service is plain. Reading and writing it here costs a fraction of a full implementation's time.
//! At the first request that is not plain, the fast path passes on the connection and the received bytes.
//! The [event loop](crate::event_loop) then judges the request, and serves it with hyper.
//!
//! A task of the loop reads all ready connections, executes their requests, and answers once that is durable ([direct]).
//! A request may have to wait for more: an app's handler, the load of an entity, its batch, the rest of its body.
//! The task then polls it in its connection's entry whenever it can continue.
//!
//! A connection that is ready while its loop has no room waits unread in the loop's [queue](crate::admission): the kernel keeps its bytes.
//! If it is refused, only the head of its request is read.
//!
//! Commands that arrive together (pipelined) are executed one after the other in one batch. Their answers are sent together, once all of
//! them are durable.
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
