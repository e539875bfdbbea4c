//! Requests and replies between the nodes of a cluster, and the trait by which an engine reaches other nodes.

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
    /// A client's request.
    Ask(Ask),
    /// Messages between entities from one shard to one shard, in the order of their numbers.
    Take(Vec<PeerMessage>),
    /// To read the history of an entity.
    History {
        /// The kind of the entity, by name.
        kind: String,
        /// The id of the entity, within its kind.
        id: String,
        /// The number of the event after which to begin.
        after: u64,
        /// The most events.
        limit: u64,
    },
    /// Lists the entities of a kind, in any shard of that node, whose events the store may not have.
    List {
        /// The kind, by name.
        kind: String,
        /// The id after which to begin.
        after: Option<String>,
        /// The most entities, in the order of their ids.
        limit: u64,
    },
    /// To [erase](crate::Engine::erase) an entity.
    Erase {
        /// The kind of the entity, by name.
        kind: String,
        /// The id of the entity, within its kind.
        id: String,
    },
    /// Records in the log, and covers with a checkpoint, how many messages that node's shards have sent and taken. Messages
    /// to an erased entity that were taken may be removed after that.
    Record {
        /// The kind of the entity that is erased, by name.
        kind: String,
        /// The id of the entity that is erased, within its kind.
        id: String,
    },
    /// Removes the history of that node's shards whose retention is over.
    Prune {
        /// True if the pass only reports what it would remove.
        is_dry: bool,
    },
    /// An operator action on an entity. Sent only if all nodes know [`QUARANTINES`](throng_journal::features::QUARANTINES), like the next
    /// two.
    Operate(OperatorAction),
    /// Drops the messages that node's shards have sent to an entity which an operator has quarantined, and those that wait there.
    DropSent(OperatorAction),
    /// Drops messages from one entity to another that an operator has quarantined.
    DropMessages {
        /// The messages, in the order of their numbers.
        messages: Vec<PeerMessage>,
        /// The operator's name.
        by: String,
        /// The reason, in a person's words.
        reason: String,
    },
    /// A client's request, with the span of the request as a `traceparent`. Sent only if all nodes know
    /// [`TRACES`](throng_journal::features::TRACES).
    AskTraced(Ask, String),
    /// Reads the indexed fields of entities, in any shard of that node. Sent only if all nodes know
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
    /// The operator's name.
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
    /// The kind of the entity, by name: nodes may number their kinds differently.
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
    /// Sends a command, which is executed at most once for each time it is sent.
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
        /// The entity that forwarded it (kind and id), and true if that entity is to be its parent.
        forwarded: Option<(String, String, bool)>,
    },
    /// Sends a query.
    Query {
        /// The query's name, as in routes.
        name: String,
        /// The query's fields: a query string, or a JSON object.
        arguments: String,
    },
}

/// A message between entities, as recorded in the journal.
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
    /// True if a task on the sending node waits for the command's answer.
    pub wants_answer: bool,
}

/// A node's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The entity's answer as JSON. Everything it rests on is durable.
    Done(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The entity's "no", or the engine's.
    Refused(RemoteError),
    /// The messages were taken durably, except those that [wait](TakenAs::Waits). For each it holds the outcome, and the answer if one was
    /// wanted.
    Taken(Vec<(TakenAs, Option<Result<serde_bytes::ByteBuf, RemoteError>>)>),
    /// The node that was asked does not own the shard now, or no node could be asked. Nothing was done.
    NotHere,
    /// The request was sent, and no answer came. It may have been executed.
    Unknown,
    /// A page of an entity's history.
    History {
        /// The events, in order and without a gap.
        events: Vec<RemoteEvent>,
        /// The page was cut, as in [`History::more`](crate::History::more).
        more: bool,
        /// Events up to this one are not kept, as in [`History::removed`](crate::History::removed).
        removed: u64,
    },
    /// Entities with events that the store may not have.
    Listed {
        /// The shards that this report covers, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
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
        /// The shards that this report covers, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
    },
    /// History was removed, or would be.
    Pruned {
        /// The shards that this report covers, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// The report on these shards.
        report: PruneReport,
    },
    /// An operator action was executed. The number of dropped messages; for other actions 0 if there was nothing to change.
    Operated(u64),
    /// Messages of these shards were dropped.
    Dropped {
        /// The shards that this report covers, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// The number of messages or entities.
        messages: u64,
    },
    /// The indexed fields of entities. Those that are not there are left out.
    Fields {
        /// The shards that this report covers, as a [`ShardSet`](throng_journal::ShardSet)'s bytes.
        #[serde(with = "serde_bytes")]
        shards: Vec<u8>,
        /// Ids, each with its row as the store has it; `None`: the fields are not known.
        rows: Vec<(String, Option<serde_bytes::ByteBuf>)>,
    },
}

/// An event on its way between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteEvent {
    /// Its number among its entity's.
    pub seq: u64,
    /// Its commit: writer and number.
    pub position: (u64, u64),
    /// The time when it was recorded, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// The serde name of its variant.
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
    /// The message could not be taken: it is a dead message at its receiver's shard.
    Dead,
    /// Neither the message nor later ones of its sender to its receiver were taken. The answer has the reason: either the receiver's
    /// program does not understand it, and a newer release is alive; or an operator has quarantined the receiver. Sent only if all nodes
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

/// The other nodes, as an engine sees them: it asks them for the entities that they own.
pub trait Peers: Send + Sync + 'static {
    /// Asks the node that owns a shard, as far as is known now. The answer comes within this time, or is [`Reply::Unknown`]. If no node can
    /// be asked, it is [`Reply::NotHere`], at once. Requests for one shard reach its owner in the order of these calls.
    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply>;

    /// Returns the name of a living node that does not know a [feature](throng_journal::Join::features), as far as is known now. Such a
    /// node would close the connection on a request that needs the feature.
    fn without_feature(&self, feature: u32) -> Option<String> {
        let _ = feature;
        None
    }

    /// Returns the name of a living node with a newer [release](throng_journal::Join::app) than this one's, as far as is known now.
    fn newer(&self) -> Option<String> {
        None
    }

    /// Returns the name of a node of a newer release that was gone before this one saw it, and the time since then.
    fn newer_gone(&self) -> Option<(String, Duration)> {
        None
    }

    /// Resolves after a look at the nodes that began after this call: [`newer`](Self::newer) is up to date then.
    fn looked(&self) -> Later<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

pub(crate) fn unknown_kind(kind: &str) -> Reply {
    let why = format!("the node that owns it was not given the kind {kind:?}");
    Reply::Refused(RemoteError::Unavailable(why))
}
