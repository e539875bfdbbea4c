//! Services, and the ways to run them.

mod context;
mod runner;
mod running;
mod setup;
mod timers;

pub use context::{Context, TooMany};
pub(crate) use runner::Runner;
pub use running::{Counts, Running};
pub use setup::{OnPanic, Setup, service};
pub use timers::{ASKS_AND_TIMERS_MAX, TimerId};

/// A plain object that receives messages, one at a time.
///
/// The hooks are for work that is worth doing once for many messages. They are called in this order: `started`; for each batch
/// `start_of_batch`, then `receive` for each message, with `limit` after every so many; `empty` when nothing is left; `idle` when nothing
/// has come for a while since; `stopped`. Each gets the [`Context`], to set timers and send requests.
///
/// A service must not block for long, because its messages wait meanwhile.
pub trait Service: Send + 'static {
    /// The messages it receives.
    type Message: Send + 'static;

    /// Receives a message.
    fn receive(&mut self, message: Self::Message, context: &mut Context<Self::Message>);

    /// Runs before the first message, on the service's own thread: the place to set periodic timers.
    fn started(&mut self, _context: &mut Context<Self::Message>) {}

    /// Called when a batch of this many messages begins.
    fn start_of_batch(&mut self, _items: usize, _context: &mut Context<Self::Message>) {}

    /// Called after each [`Setup::limit_items`] messages: the place to pass on what was gathered of them.
    fn limit(&mut self, _context: &mut Context<Self::Message>) {}

    /// Called when every message sent was received: the place to pass on what was gathered since.
    fn empty(&mut self, _context: &mut Context<Self::Message>) {}

    /// Called when nothing has come for [`Setup::idle_after`]. Once, until something comes again; never for a service in place.
    fn idle(&mut self, _context: &mut Context<Self::Message>) {}

    /// Runs after the last message.
    fn stopped(&mut self) {}
}
