//! The actor: a small single-threaded thing with an id that keeps its state in memory.

use super::{EntityId, Message, Rejection, Timestamp};

/// The thread on which the actors of a kind run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Runs on the asker's thread: there is no hand-off, and a command must not take long.
    #[default]
    InTurn,
    /// Runs on separate threads, one a core. For commands that compute for longer than a hand-off takes (about 10 µs), or that wait. The
    /// asker's thread is not blocked.
    Workers,
}

/// A small single-threaded thing with an id, that changes itself: a counter, a limit, a cache.
///
/// An actor has no events. Its state is lost when the process ends, when it panics, and when it is dropped because
/// [`KEPT_MAX`](Self::KEPT_MAX) others were asked more recently. The next command then meets a fresh actor, made by [`start`](Self::start).
/// State that must not be lost belongs in an [`Entity`](super::Entity).
///
/// Commands are serde enums, like an entity's, with the same routes: `POST /api/{kind}/{id}/{command}`.
pub trait Actor: Send + 'static {
    /// The kind's name: 1 to 64 of `[a-z0-9-]`. No entity has the same.
    const KIND: &'static str;
    /// The commands that clients may send over the network, by their serde names. Only the service's own code may send the others:
    /// they have no routes, are in no document, and are refused with 403. A gateway does not start if one of these names is no command of
    /// the kind.
    const PUBLIC: &'static [&'static str] = &[];
    /// The thread on which they run.
    const PLACEMENT: Placement = Placement::InTurn;
    /// The approximate number of actors kept in memory. Beyond it, the actors that were asked longest ago are dropped.
    const KEPT_MAX: usize = 100_000;
    /// The address within the kind.
    type Id: EntityId;
    /// The commands it takes.
    type Command: Message;
    /// The reply to a command.
    type Reply: Message;
    /// A refusal.
    type Rejection: Rejection;

    /// Returns a fresh actor, for an id that was never asked or whose actor was dropped.
    fn start(id: &Self::Id) -> Self;

    /// Executes one command at a time.
    ///
    /// # Errors
    /// The actor's [`Rejection`](Actor::Rejection). Its changes so far stay.
    fn receive(&mut self, command: Self::Command, now: Timestamp) -> Result<Self::Reply, Self::Rejection>;
}
