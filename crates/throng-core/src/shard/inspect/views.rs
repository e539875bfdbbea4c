//! Entities as an operator sees them.

use crate::model::Timestamp;
use throng_journal::Address;

/// The place of an entity: in memory, in the store, quarantined, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Its state is in memory.
    Resident,
    /// Only in the store, and in the log.
    Passivated,
    /// The entity takes no messages until an operator releases it.
    Quarantined,
    /// The entity has ended, or its id was never used.
    Gone,
}

/// The facts known of an entity without loading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The place.
    pub whereabouts: Whereabouts,
    /// Its last event; 0 if unknown here.
    pub seq: u64,
    /// The entity that created it, if this entity is in memory.
    pub parent: Option<(String, String)>,
    /// The number of entities it created; `None` if it is not in memory.
    pub children: Option<usize>,
}

/// The parts of an entity to read. Each costs time under its shard's lock.
#[derive(Clone, Debug, Default)]
pub struct Inspect {
    /// Includes the state as JSON.
    pub state: bool,
    /// Addresses of children; `None` for their number only.
    pub children: Option<ChildrenPage>,
}

/// A page of children in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct ChildrenPage {
    /// Only children whose ids begin with this.
    pub prefix: String,
    /// Kind and id of the last child on the page before; `None` for the first page.
    pub after: Option<(String, String)>,
    /// The largest number of children in the page.
    pub limit: usize,
}

/// The requested parts of an entity, and the facts that cost nothing to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The place.
    pub whereabouts: Whereabouts,
    /// The sequence number of its last event; 0 without any.
    pub seq: u64,
    /// The event with which it last ended; 0: it never did.
    pub ended: u64,
    /// The state as JSON, if requested and known.
    pub state: Option<String>,
    /// The quarantine it is in, if it is.
    pub quarantine: Option<Quarantined>,
    /// Kind and id of the entity that created it, if any.
    pub parent: Option<(String, String)>,
    /// The number of its children.
    pub children: usize,
    /// The requested children.
    pub children_page: Vec<(String, String)>,
    /// The number of the commit that this rests on.
    pub rests_on: u64,
}

/// The reason why an entity cannot be brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unloadable<'a> {
    /// The reason, in a sentence.
    pub reason: &'a str,
    /// The row of its family ([`crate::shard::family_row`]), so that a checkpoint can add what the log holds.
    pub family: Option<&'a [u8]>,
}

/// A quarantined entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The entity that is set aside.
    pub address: Address,
    /// The event that cannot be applied; 0 where its rows cannot be read.
    pub seq: u64,
    /// The reason of the quarantine.
    pub reason: String,
    /// The time when this engine found it unreadable (again, after a passivation), or when an operator quarantined it.
    pub since: Timestamp,
    /// Commands and messages it has refused since, in this epoch of the engine.
    pub refused: u64,
    /// The operator who quarantined it; `None`: it cannot be loaded.
    pub by: Option<String>,
}

/// The quarantined entities of one kind in a shard: either those an operator has quarantined, or those that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedEntities {
    /// The kind of all of them.
    pub kind: &'static str,
    /// An operator has quarantined them.
    pub by_operator: bool,
    /// The number of them.
    pub entities: usize,
    /// The id and the reason of some of them: `ann: event 7 is missing`.
    pub named: Vec<String>,
}
