//! Requests and replies between the nodes of a cluster, and how an engine reaches the others.

mod error;
mod report;

pub use error::RemoteError;
pub use report::PruneReport;

use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng_core::shard::{KeyLife, Outcome};
use throng_journal::{Later, ShardId};

/// A request to the node that owns a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Something a client asked.
    Ask(Ask),
    /// Messages between entities, in the order of their numbers, all from one shard to one shard.
    Take(Vec<PeerMessage>),
    /// To read the history of an entity.
    History {
        /// The kind of the entity, by name.
        kind: String,
        /// The id of the entity, within its kind.
        id: String,
        /// The events after this one, …
        after: u64,
        /// … at most so many.
        limit: u64,
    },
    /// To list the entities of a kind with events that the store may not have, in any shard of that node.
    List {
        /// The kind, by name.
        kind: String,
        /// The entities with ids after this one, …
        after: Option<String>,
        /// … at most so many, in the order of their ids.
        limit: u64,
    },
    /// To [erase](crate::Engine::erase) an entity.
    Erase {
        /// The kind of the entity, by name.
        kind: String,
        /// The id of the entity, within its kind.
        id: String,
    },
    /// To record in the log, and to cover with a checkpoint, how many messages that node's shards have sent and taken: so that those which
    /// were sent to an entity that is erased, and taken, may go.
    Record {
        /// The kind of the entity that is erased, by name.
        kind: String,
        /// The id of the entity that is erased, within its kind.
        id: String,
    },
    /// To remove the history of that node's shards that is kept no longer.
    Prune {
        /// The pass only reports what it would remove.
        is_dry: bool,
    },
    /// A decision of an operator about an entity. Asked where all nodes know [`QUARANTINES`](throng_journal::features::QUARANTINES), like those below.
    Operate(OperatorAction),
    /// To drop what that node's shards have sent to an entity which an operator has quarantined, and what waits there.
    DropSent(OperatorAction),
    /// To drop messages, all from one entity to another one which an operator has quarantined.
    DropMessages {
        /// The messages, in the order of their numbers.
        messages: Vec<PeerMessage>,
        /// The caller's name, or what stands for it.
        by: String,
        /// The reason, in a person's words.
        reason: String,
    },
    /// Something a client asked, and the span of its request as a `traceparent`. Asked where all nodes know
    /// [`TRACES`](throng_journal::features::TRACES).
    AskTraced(Ask, String),
    /// For the indexed fields of entities, in any shard of that node. Asked where all nodes know
    /// [`INDEXES`](throng_journal::features::INDEXES).
    Fields {
        /// The kind, by name.
        kind: String,
        /// The ids of the entities; those of other nodes are left out.
        ids: Vec<String>,
    },
}

/// A decision of an operator about an entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAction {
    /// The kind of the decision.
    pub what: OperatorActionKind,
    /// The kind of the entity, by name.
    pub kind: String,
    /// The id of the entity, within its kind.
    pub id: String,
    /// The caller's name, or what stands for it.
    pub by: String,
    /// The reason, in a person's words.
    pub reason: String,
}

/// A kind of [`OperatorAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperatorActionKind {
    /// [`Engine::quarantine`](crate::Engine::quarantine).
    Quarantine,
    /// [`Engine::release`](crate::Engine::release).
    Release,
    /// [`Engine::drop_messages`](crate::Engine::drop_messages).
    DropMessages,
}

/// A command or query of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The kind of the entity, by name: nodes may have their kinds in another order.
    pub kind: String,
    /// The id of the entity, within its kind.
    pub id: String,
    /// The command or query.
    pub what: Asked,
    /// The caller's name, which [`Asker::Client`](throng_core::model::Asker) gives the entity.
    pub caller: Option<String>,
}

/// A command to an entity, or a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// To do something, which is done at most once for each time it is sent.
    Command {
        /// The command's serde name.
        name: String,
        /// The command's content as JSON.
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
        /// The idempotency key: the command takes effect once under it.
        key: Option<String>,
        /// The time for which that key is kept.
        life: KeyLife,
        /// The entity that has forwarded it, kind and id, and whether that one is to be its parent.
        forwarded: Option<(String, String, bool)>,
    },
    /// For something it knows.
    Query {
        /// The query's name, as in routes.
        name: String,
        /// The query's fields: a query string, or a JSON object.
        arguments: String,
    },
}

/// A message between entities, as its record in the journal says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The shard it was sent from.
    pub from: u16,
    /// Its number from that shard to the receiver's.
    pub number: u64,
    /// Kind and id of the entity that sent it.
    pub sender: (String, String),
    /// The command's name, as it was recorded.
    pub name: String,
    /// The record's body, an [`Envelope`](throng_core::shard::Envelope).
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// Somebody at the sending node waits for what the command answers.
    pub wants_answer: bool,
}

/// A node's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The entity's answer as JSON. It rests on what is durable.
    Done(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The entity's "no", or the engine's.
    Refused(RemoteError),
    /// The messages were taken, durably, but for those that [wait](TakenAs::Waits); for each what came of it, and its answer if one was
    /// wanted.
    Taken(Vec<(TakenAs, Option<Result<serde_bytes::ByteBuf, RemoteError>>)>),
    /// The node that was asked does not own the shard now, or nobody could be asked: nothing was done.
    NotHere,
    /// The request was sent, and no answer came: it may have been done.
    Unknown,
    /// A page of an entity's history.
    History {
        /// The events, in order and without a gap.
        events: Vec<Happened>,
        /// The page was cut, as in [`History::more`](crate::History::more).
        more: bool,
        /// Events up to this one are not kept, as in [`History::removed`](crate::History::removed).
        removed: u64,
    },
    /// Entities with events that the store may not have.
    Listed {
        /// The shards this is said of, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// Ids, with the number of the last event.
        heads: Vec<(String, u64)>,
    },
    /// An entity was erased.
    Erased {
        /// The number of its records and of messages to it, as in [`Erased::records`](crate::Erased::records).
        records: u64,
        /// The bytes given back, as in [`Erased::bytes`](crate::Erased::bytes).
        bytes: u64,
    },
    /// The numbers of messages are recorded, and a checkpoint covers them.
    Recorded {
        /// The shards this is said of, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
    },
    /// History was removed, or would be.
    Pruned {
        /// The shards this is said of, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// The report of what was removed of these shards.
        report: PruneReport,
    },
    /// An operator's action was done: 0 if it was so before, or how many messages were dropped.
    Operated(u64),
    /// Messages of these shards were dropped.
    Dropped {
        /// The shards this is said of, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// The number of messages or entities.
        messages: u64,
    },
    /// The indexed fields of entities. Those that are not there are left out.
    Fields {
        /// The shards this is said of, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// Ids, each with its row as the store has it; `None`: the fields are not known.
        rows: Vec<(String, Option<serde_bytes::ByteBuf>)>,
    },
}

/// An event on its way between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happened {
    /// Its number among its entity's.
    pub seq: u64,
    /// The commit it stands in: writer and number.
    pub position: (u64, u64),
    /// The time when it was recorded, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// The variant it is one of, by its serde name.
    pub name: String,
    /// The version of its shape.
    pub version: u16,
    /// The event as it was recorded.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakenAs {
    /// Its receiver took it.
    Done,
    /// Its receiver refused it.
    Refused,
    /// Nobody could take it: it is a dead message at its receiver's shard.
    Dead,
    /// The message was not taken, nor those that follow it from the same entity to the same one. Its answer gives the reason. Either the
    /// program there does not understand it, and a newer release lives; or an operator has quarantined its receiver. Said where all nodes
    /// know [`WAITS`](throng_journal::features::WAITS).
    Waits,
}

impl From<Outcome> for TakenAs {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Refused => Self::Refused,
            Outcome::Failed => Self::Dead,
        }
    }
}

/// The other nodes, which an engine asks for the entities that they own.
pub trait Peers: Send + Sync + 'static {
    /// Asks the node that owns a shard, as far as is known now. The answer comes within this time, or is [`Reply::Unknown`]; nobody to be asked
    /// is [`Reply::NotHere`], at once. Requests for one shard reach its owner in the order of these calls.
    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply>;

    /// The name of a node that lives and does not know a [feature](throng_journal::Join::features), as far as is known now: it would cut
    /// the connection on which it is asked for it.
    fn without_feature(&self, feature: u32) -> Option<String> {
        let _ = feature;
        None
    }

    /// The name of a node that lives and is of a newer [release](throng_journal::Join::app) than this one, as far as is known now.
    fn newer(&self) -> Option<String> {
        None
    }

    /// The name of a node of a newer release that was gone before this one saw it, and for how long it is.
    fn newer_gone(&self) -> Option<(String, Duration)> {
        None
    }

    /// Resolves once the nodes were looked at by a look that began after this call: what [`newer`](Self::newer) says then is no older.
    fn looked(&self) -> Later<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

pub(crate) fn unknown_kind(kind: &str) -> Reply {
    let why = format!("the node that owns it was not given the kind {kind:?}");
    Reply::Refused(RemoteError::Unavailable(why))
}
