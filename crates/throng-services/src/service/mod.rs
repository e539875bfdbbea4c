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
/// The hooks are where work goes that is worth doing once for many messages. They come in this order: `started`; for each
/// batch `start_of_batch`, then `receive` for each message, with `limit` after every so many; `empty` when nothing is left;
/// `idle` when nothing has come for a while since; `stopped`. Each gets the [`Context`], to set timers and ask others.
///
/// A service must not wait for long: what is sent to it waits meanwhile.
pub trait Service: Send + 'static {
    /// The messages it receives.
    type Message: Send + 'static;

    /// Receives a message.
    fn receive(&mut self, message: Self::Message, context: &mut Context<Self::Message>);

    /// Runs before the first message, on the service's own thread: the place to set periodic timers.
    fn started(&mut self, _context: &mut Context<Self::Message>) {}

    /// A batch of so many messages begins.
    fn start_of_batch(&mut self, _items: usize, _context: &mut Context<Self::Message>) {}

    /// [`Setup::limit_items`] messages were received since the last time: the place to hand on what was gathered of them.
    fn limit(&mut self, _context: &mut Context<Self::Message>) {}

    /// Everything that was sent has been received: the place to hand on what was gathered since.
    fn empty(&mut self, _context: &mut Context<Self::Message>) {}

    /// Nothing has come for [`Setup::idle_after`]. Once, until something comes again; never in place.
    fn idle(&mut self, _context: &mut Context<Self::Message>) {}

    /// Runs after the last message.
    fn stopped(&mut self) {}
}
