//! The calls of one entity: their ids begin alike, so they stand side by side in the store.

use super::CallId;
use serde::Deserialize;
use throng_journal::StoredEvent;

/// The bits of a call's id that are a hash of its caller's address. The rest is random.
const CALLER_BITS: u32 = 48;
const RANDOM: u128 = u128::MAX >> CALLER_BITS;
/// Four bits are a digit.
const PREFIX_DIGITS: usize = CALLER_BITS as usize / 4;

/// Finds the calls of an entity.
#[derive(Clone, Debug)]
pub struct CallsOf {
    caller: (String, String),
    line: CallId,
}

#[derive(Deserialize)]
struct Begun {
    caller: (String, String),
}

impl CallsOf {
    /// The calls of the entity of this kind and id.
    #[must_use]
    pub fn new(kind: &str, id: &str) -> Self {
        let line = CallId(xxhash_rust::xxh3::xxh3_128(format!("{kind}/{id}").as_bytes()));
        Self {
            caller: (kind.to_owned(), id.to_owned()),
            line,
        }
    }

    /// The first digits of the ids of its calls, and of its lines.
    #[must_use]
    pub fn prefix(&self) -> String {
        let mut digits = self.line.to_string();
        digits.truncate(PREFIX_DIGITS);
        digits
    }

    /// The line in which its calls in order wait, one of each worker.
    #[must_use]
    pub fn line(&self) -> CallId {
        self.line
    }

    /// Tells by the first events of a call with the [prefix](Self::prefix) whether this entity has made it. Where the first of them are gone,
    /// the prefix has to do.
    #[must_use]
    pub fn has_made(&self, first: &[StoredEvent]) -> bool {
        match first.iter().find(|event| &*event.name == "begun") {
            Some(begun) => {
                serde_json::from_slice::<Begun>(&begun.payload).is_ok_and(|begun| begun.caller == self.caller)
            }
            None => !first.iter().any(|event| matches!(&*event.name, "joined" | "left")),
        }
    }

    /// Returns the id of a new call.
    pub(super) fn fresh(&self, random: u128) -> CallId {
        CallId(self.line.0 & !RANDOM | random & RANDOM)
    }

    pub(super) fn into_caller(self) -> (String, String) {
        self.caller
    }
}
