//! A receiver that takes no messages now.

use super::message::Behind;
use throng_core::model::Timestamp;
use throng_journal::{Address, Position};

/// An entity that takes no messages now, because it cannot be loaded, or some not, because only a newer release of the service understands
/// them. It is tried again by itself; its messages wait in the log and hold up no other entity's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckEntity {
    /// The entity that cannot be brought back.
    pub address: Address,
    /// Why it could not be loaded the last time, or what is not understood.
    pub reason: String,
    /// Since when that is so.
    pub since: Timestamp,
    /// The number of messages to it that have waited since.
    pub messages: u64,
}

/// A receiver that takes no messages now.
pub(super) struct Stuck {
    pub(super) why: Why,
    pub(super) reason: String,
    pub(super) since: Timestamp,
    /// The number of its messages that were left to the log.
    pub(super) messages: u64,
    /// Its messages of the commits after the first one and up to the second are only in the log; `None`: none waits.
    pub(super) behind: Option<Behind>,
}

/// Why a receiver takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The receiver cannot be loaded; the next attempt to load it takes up what waits.
    Load,
    /// An operator has quarantined it.
    Quarantined,
    /// Released: it is taking up what has waited.
    Released,
}

impl Stuck {
    pub(super) fn new(why: Why, reason: String, since: Timestamp) -> Self {
        Self {
            why,
            reason,
            since,
            messages: 0,
            behind: None,
        }
    }

    /// Leaves a message of this commit to the log.
    pub(super) fn leave(&mut self, sent: Position) {
        self.messages += 1;
        match &mut self.behind {
            Some(behind) => behind.add(sent),
            None => self.behind = Some(Behind::of(sent)),
        }
    }
}
