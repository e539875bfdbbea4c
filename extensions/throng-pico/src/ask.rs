//! The requests of a running event or query to something else. They are made between two runs, never during one.

use crate::id::{Eci, PicoId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng_krl::Value;

/// The most requests of one event or query.
pub(crate) const ASKS_MAX: usize = 64;

/// A request to something outside the pico.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Loads a ruleset, ready to run.
    Load {
        /// The URL of the ruleset.
        url: Arc<str>,
    },
    /// Fetches a ruleset again.
    Flush {
        /// The URL of the ruleset.
        url: Arc<str>,
    },
    /// Reads the children of a pico that are in pages.
    Children {
        /// The pico whose children they are.
        parent: PicoId,
        /// The number of pages.
        pages: u32,
    },
    /// Reads the names that picos give themselves, for the console.
    Names {
        /// The picos, in the order of the answer.
        picos: Vec<PicoId>,
    },
    /// Queries another pico, on behalf of this one.
    Query {
        /// The pico whose rule asks. It may use its family channels. `None` asks as a client does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<PicoId>,
        /// The other pico's channel.
        eci: Eci,
        /// A ruleset of the other pico.
        rid: Arc<str>,
        /// A function or value that the ruleset shares.
        name: Arc<str>,
        /// The arguments by name, a map.
        arguments: Value,
    },
    /// Sends an event to another pico and waits for its end. A query may follow it.
    Event {
        /// The pico whose rule sends it.
        from: PicoId,
        /// The other pico's channel.
        eci: Eci,
        /// The first part of its type.
        domain: Arc<str>,
        /// The second part of its type.
        name: Arc<str>,
        /// Its attributes, a map.
        attributes: Value,
        /// The query after the event: ruleset, name, arguments.
        then: Option<(Arc<str>, Arc<str>, Value)>,
        /// An idempotency key within this transaction. The receiver handles a repeated event only once.
        once: Arc<str>,
    },
    /// Makes a request to a web server.
    Http {
        /// `get`, `post` and so on, like the name of the action.
        method: Arc<str>,
        /// The arguments of `http:get` and the like, a map.
        arguments: Value,
    },
    /// Checks that a pico may become the parent of another one. Neither it nor a pico above it may be the other one, or be moving.
    Ancestors {
        /// The intended parent, whose ancestors are checked.
        of: PicoId,
        /// The pico that wants to move.
        child: PicoId,
    },
    /// Reads the latest events of a pico, as its log.
    Logs {
        /// The pico that asks. It can read no other log.
        pico: PicoId,
    },
}

/// The answer: a value, or the reason why there is none.
pub type Answered = Result<Value, Box<str>>;
