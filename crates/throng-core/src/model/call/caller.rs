//! The ids of one entity's calls. They share a prefix, so the store finds all calls of an entity in one range.

use super::CallId;
use serde::Deserialize;
use throng_journal::StoredEvent;

/// The bits of a call's id that hash its caller's address. The other bits are random.
const CALLER_BITS: u32 = 48;
const RANDOM: u128 = u128::MAX >> CALLER_BITS;
/// A hexadecimal digit holds four bits.
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
    /// Returns the calls of the entity of this kind and id.
    #[must_use]
    pub fn new(kind: &str, id: &str) -> Self {
        let line = CallId(xxhash_rust::xxh3::xxh3_128(format!("{kind}/{id}").as_bytes()));
        Self {
            caller: (kind.to_owned(), id.to_owned()),
            line,
        }
    }

    /// Returns the digits that the ids of its calls and of its lines begin with.
    #[must_use]
    pub fn prefix(&self) -> String {
        let mut digits = self.line.to_string();
        digits.truncate(PREFIX_DIGITS);
        digits
    }

    /// Returns the id of the entity's line: the queue of its in-order calls. Each worker has one of this id.
    #[must_use]
    pub fn line(&self) -> CallId {
        self.line
    }

    /// True if this entity made the call that begins with these events. If its first events are no longer stored, the
    /// [prefix](Self::prefix) alone decides.
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
