//! Events that are not there where others follow.

use crate::{Address, Error, Position, Record};
use std::collections::HashMap;

/// Gaps that a store has met while it indexed a journal. What stood there was removed if a state follows that stands in for it: passes over history
/// leave older states for a while, and take the events behind these. Otherwise it is lost.
#[derive(Debug, Default)]
pub struct MissingEvents {
    of: HashMap<Address, Gap>,
}

#[derive(Debug)]
struct Gap {
    found: u64,
    before: u64,
    at: Position,
}

impl MissingEvents {
    /// The event `found` stands here, and the one before it is `before`.
    pub fn note(&mut self, of: Address, (found, before): (u64, u64), at: Position) {
        self.of.insert(of, Gap { found, before, at });
    }

    /// The record of a state: what comes before it is not needed to know what the entity is.
    pub fn founded(&mut self, state: &Record<'_>) {
        if self.of.is_empty() {
            return;
        }
        let of = Address::new(state.kind, state.id);
        if self.of.get(&of).is_some_and(|gap| gap.found <= state.seq + 1) {
            self.of.remove(&of);
        }
    }

    /// All was read.
    ///
    /// # Errors
    /// [`Error::Damaged`], if events are missing that no state stands in for.
    pub fn check(&self) -> Result<(), Error> {
        let first = self.of.iter().min_by_key(|(_, gap)| gap.at);
        first.map_or(Ok(()), |(of, gap)| {
            Err(Error::Damaged {
                position: gap.at,
                place: of.to_string(),
                why: format!("event {} follows event {}", gap.found, gap.before),
            })
        })
    }
}
