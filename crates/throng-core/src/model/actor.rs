//! The actor: a small single-threaded thing with an id that keeps its state in memory.

use super::{EntityId, Message, Rejection, Timestamp};

/// The place where the actors of a kind work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Runs on the asker's thread: there is no hand-off, and a command must not take long.
    #[default]
    InTurn,
    /// Runs on separate threads, one a core. For computations longer than a hand-off (about 10 µs), or with waits. The asker's
    /// thread is not blocked.
    Workers,
}

/// A small single-threaded thing with an id, that changes itself: a counter, a limit, a cache.
///
/// An actor has no events. Its state is lost when the process ends, when it panics, and when too many others
/// ([`KEPT_MAX`](Self::KEPT_MAX)) were asked after it. It then begins anew with [`start`](Self::start). State that must not be
/// lost belongs in an [`Entity`](super::Entity).
///
/// Commands are serde enums, as an entity's, and so are the routes: `POST /api/{kind}/{id}/{command}`.
pub trait Actor: Send + 'static {
    /// 1 to 64 of `[a-z0-9-]`, no entity's.
    const KIND: &'static str;
    /// The commands that clients may ask over the network, by their serde names. The others are asked by the service's own code
    /// only: they are no routes, stand in no document, and are refused with 403. A gateway does not start if one of
    /// these is no command of the kind.
    const PUBLIC: &'static [&'static str] = &[];
    /// The place where they work.
    const PLACEMENT: Placement = Placement::InTurn;
    /// About the number kept in memory. Beyond it, the actors that were asked longest ago are dropped.
    const KEPT_MAX: usize = 100_000;
    /// The address within the kind.
    type Id: EntityId;
    /// The commands it takes.
    type Command: Message;
    /// The reply to a command.
    type Reply: Message;
    /// A refusal.
    type Rejection: Rejection;

    /// Returns a fresh actor: for an id that nobody has asked yet, or not for long.
    fn start(id: &Self::Id) -> Self;

    /// Does what it is asked to, one command at a time.
    ///
    /// # Errors
    /// The actor's [`Rejection`](Actor::Rejection). Its changes so far stay.
    fn receive(&mut self, command: Self::Command, now: Timestamp) -> Result<Self::Reply, Self::Rejection>;
}
