//! Other nodes of a cluster: what an engine asks of them, and what it answers.
//!
//! The engine knows which shards it owns, what may be asked again, and in which order. How a request reaches the node that owns a shard
//! is [`Peers`]' part: it knows owners, connections and frames, and nothing of entities.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng_core::shard::{KeyLife, Outcome};
use throng_journal::{Later, ShardId};

/// What is asked of the node that owns a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Something a client asked.
    Ask(Ask),
    /// Messages between entities, in the order of their numbers, all from one shard to one shard.
    Take(Vec<Letter>),
}

/// A command or query of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The entity's kind, by name.
    pub kind: String,
    /// The entity's id.
    pub id: String,
    /// What it is asked.
    pub what: Asked,
    /// Who asks: what [`Asker::Client`](throng_core::model::Asker) says.
    pub caller: Option<String>,
}

/// What an entity is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// To do something.
    Command {
        /// The command's serde name.
        name: String,
        /// The command's content as JSON.
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
        /// It takes effect once under this key.
        key: Option<String>,
        /// How long that key is kept.
        life: KeyLife,
        /// The entity that has forwarded it, kind and id, and whether that one is to be its parent.
        forwarded: Option<(String, String, bool)>,
    },
    /// For something it knows.
    Query {
        /// The query's name.
        name: String,
        /// Its fields: a query string, or a JSON object.
        arguments: String,
    },
}

/// A message between entities, as its record in the journal says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
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

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The entity's answer as JSON. It rests on what is durable.
    Done(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The entity's "no", or the engine's.
    Refused(RemoteError),
    /// The messages were taken, durably; for each what came of it, and its answer if one was wanted.
    Taken(Vec<(TakenAs, Option<Result<serde_bytes::ByteBuf, RemoteError>>)>),
    /// The node that was asked does not own the shard now, or nobody could be asked: nothing was done.
    NotHere,
    /// It was sent, and no answer came: it may have been done.
    Unknown,
}

/// What came of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakenAs {
    /// Its receiver took it.
    Done,
    /// Its receiver refused it.
    Refused,
    /// Nobody could take it: it is a dead message at its receiver's shard.
    Dead,
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

/// The other nodes.
pub trait Peers: Send + Sync + 'static {
    /// Asks the node that owns a shard, as far as is known now. The answer comes within this time, or is [`Reply::Unknown`]; nobody to be asked
    /// is [`Reply::NotHere`], at once. Requests for one shard reach its owner in the order of these calls.
    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply>;
}
