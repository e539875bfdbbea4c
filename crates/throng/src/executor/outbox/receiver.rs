//! A receiver that takes no messages now.

use super::message::Behind;
use throng_core::model::Timestamp;
use throng_journal::{Address, Position};

/// An entity that takes no messages now because it cannot be loaded, or does not take some that only a newer release understands. It is
/// retried automatically. Its messages wait in the log and delay no other entity's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckEntity {
    /// The entity that cannot be brought back.
    pub address: Address,
    /// The reason why it could not be loaded, or which message is not understood.
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
    /// The part of the log that holds its messages; `None`: none waits.
    pub(super) behind: Option<Behind>,
}

/// Why a receiver takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The receiver cannot be loaded. The next successful load takes up the waiting messages.
    Load,
    /// An operator has quarantined it.
    Quarantined,
    /// Released: it is taking up the waiting messages.
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
