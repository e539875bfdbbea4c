//! The requests of a running event or query to something elsewhere. They are made between two runs, never in one.

use crate::id::{Eci, PicoId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng_krl::Value;

/// Most questions of one event or query.
pub(crate) const ASKS_MAX: usize = 64;

/// A question to somewhere else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Has a ruleset ready to run.
    Load {
        /// The URL of the ruleset.
        url: Arc<str>,
    },
    /// Fetches a ruleset again.
    Flush {
        /// The URL of the ruleset.
        url: Arc<str>,
    },
    /// The children of a pico that stand in pages.
    Children {
        /// The pico that has them all, in pages or not.
        parent: PicoId,
        /// The number of pages.
        pages: u32,
    },
    /// The names that picos give themselves, for the console.
    Names {
        /// The picos to be named, in the order of the answer.
        picos: Vec<PicoId>,
    },
    /// A query of another pico, on behalf of this one.
    Query {
        /// The pico whose rule asks: family channels are for it alone. None asks as a client does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<PicoId>,
        /// The other pico's channel.
        eci: Eci,
        /// A ruleset of the other pico's.
        rid: Arc<str>,
        /// A function or value that the ruleset shares.
        name: Arc<str>,
        /// The arguments by name, a map.
        arguments: Value,
    },
    /// An event to another pico, whose end is waited for, and a query after it if there is one.
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
        /// The query that follows: ruleset, name, arguments.
        then: Option<(Arc<str>, Arc<str>, Value)>,
        /// The number of the event under this transaction: sent again it is not handled again.
        once: Arc<str>,
    },
    /// A request to a web server.
    Http {
        /// `get`, `post` and so on, as the action is called.
        method: Arc<str>,
        /// The arguments of `http:get` and its like, a map.
        arguments: Value,
    },
    /// The question whether a pico may become the parent of another one: nothing above it is that one, or is itself on its way.
    Ancestors {
        /// The pico that is to become the parent; its ancestors are looked at.
        of: PicoId,
        /// The pico that wants to move.
        child: PicoId,
    },
    /// The latest events of a pico, as its log.
    Logs {
        /// The pico itself: it reads no other one's.
        pico: PicoId,
    },
}

/// The answer: a value, or the reason why there is none.
pub type Answered = Result<Value, Box<str>>;
