//! Erasures, and the options and results of recording an entity's state in the log.

use std::collections::BTreeMap;
use throng_journal::{Address, Position, Record};

/// The name of the record that marks an entity as erased.
pub(crate) const ERASED: &str = "Erased";

/// The options for recording an entity's state in the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recording {
    /// The entity is dropped if this event is its end and it was not created anew since.
    pub ended: u64,
    /// A state in the log suffices if the entity has had no events beyond this one.
    pub enough: Option<u64>,
    /// True if nothing is recorded, and the result only says what would be.
    pub is_dry: bool,
}

/// The result of recording an entity's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The entity has to be loaded first.
    Load,
    /// The log holds the state after this event, from this commit on.
    State {
        /// The number of its last event.
        seq: u64,
        /// The commit that holds the state.
        commit: u64,
    },
    /// The log already holds a state that is new enough.
    Enough {
        /// The number of its last event.
        seq: u64,
    },
    /// The entity has ended with this event, and nothing of it is kept from here on.
    Ended {
        /// The number of its last event.
        seq: u64,
    },
    /// There is nothing to record: the entity does not exist, was removed already, or cannot be loaded.
    Nothing,
}

/// The result of ending an entity of which nothing is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erasure {
    /// The number of its last event; 0 if there is none.
    pub seq: u64,
    /// True if the entity may have had more events; it stays quarantined until it is [released](crate::shard::Shard::release).
    pub is_quarantined: bool,
}

/// The record of an erasure in the log. It survives the loss of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErasureNote {
    /// The entity is to be erased.
    Begun,
    /// Nothing of the entity is left.
    Done,
}

impl ErasureNote {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
        }
    }
}

/// An erasure that was begun, and not completed, according to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunErasure {
    /// The entity to be erased.
    pub address: Address,
    /// The event with which it was ended for the erasure, and the commit; `None`: it was not ended yet.
    pub ended: Option<(u64, Position)>,
}

/// Erasures that the log shows as begun and not completed.
#[derive(Debug, Default)]
pub(crate) struct Erasures(BTreeMap<Address, Option<(u64, Position)>>);

impl Erasures {
    /// Notes a completed erasure. The id may be created anew after that.
    pub(crate) fn done(&mut self, of: &Address) {
        self.0.remove(of);
    }

    pub(crate) fn begun(&self) -> Vec<BegunErasure> {
        let begun = self.0.iter().map(|(address, ended)| BegunErasure {
            address: address.clone(),
            ended: *ended,
        });
        begun.collect()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn noted(&mut self, record: &Record<'_>) {
        let address = Address::new(record.kind, record.id);
        match record.name == ErasureNote::Begun.name() {
            // A repeated request ends an entity that was created anew since.
            true => _ = self.0.insert(address, None),
            false => _ = self.0.remove(&address),
        }
    }

    /// Notes the end of an entity for its erasure. An entity created under its id after that is another one.
    pub(crate) fn ended(&mut self, record: &Record<'_>) {
        if record.name == ERASED
            && !self.0.is_empty()
            && let Some(ended) = self.0.get_mut(&Address::new(record.kind, record.id))
        {
            *ended = Some((record.seq, record.place.position));
        }
    }
}
