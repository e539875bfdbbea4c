//! Events that are not there where others follow.

use crate::{Address, Cut, Error, Position, Record};
use std::collections::HashMap;

/// Gaps that a store has met while it indexed a journal. What stood there was removed if a state follows that stands in for it: passes over history
/// leave older states for a while, and take the events behind these. Otherwise it is lost.
///
/// A copy keeps the events it had, also where those behind them were removed before they were copied. Nothing can follow such a beginning, so it
/// is cut from the index.
#[derive(Debug, Default)]
pub struct MissingEvents {
    of: HashMap<Address, Gap>,
    cuts: Vec<Cut>,
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

    /// The record of a state, or of an end: what comes before it is not needed to know what the entity is.
    pub fn founded(&mut self, by: &Record<'_>) {
        if self.of.is_empty() {
            return;
        }
        let address = Address::new(by.kind, by.id);
        let gap = self.of.get(&address).map(|gap| gap.found);
        if let Some(found) = gap.filter(|found| *found <= by.seq + 1) {
            self.of.remove(&address);
            self.cuts.push(Cut {
                address,
                upto: found - 1,
                is_gone: false,
            });
        }
    }

    /// The record of an end, before which the last events are missing: nothing is left of the entity as it was until then.
    pub fn gone(&mut self, ended: &Record<'_>) {
        self.cuts.push(Cut {
            address: Address::new(ended.kind, ended.id),
            upto: ended.seq,
            is_gone: true,
        });
    }

    /// All was read: gives what goes from the index for its gaps.
    ///
    /// # Errors
    /// [`Error::Damaged`], if events are missing that no state stands in for.
    pub fn check(&mut self) -> Result<Vec<Cut>, Error> {
        let first = self.of.iter().min_by_key(|(_, gap)| gap.at);
        first.map_or(Ok(std::mem::take(&mut self.cuts)), |(of, gap)| {
            Err(Error::Damaged {
                position: gap.at,
                place: of.to_string(),
                why: format!("event {} follows event {}", gap.found, gap.before),
            })
        })
    }
}

/// The event after which an entity is rebuilt from its events, given the event of its newest state (`state`), its first event after that
/// (`first`), and its last event when it ended last (`ended`). A 0 stands for none.
///
/// An entity that ended may be gone: its index then begins after its end. Nothing else lets an index begin later than after the state.
///
/// # Errors
/// The `Err` is the number of the missing event.
pub fn history_base(state: u64, first: Option<u64>, ended: u64) -> Result<u64, u64> {
    match first {
        Some(first) if first == state + 1 => Ok(state),
        Some(first) if first > ended + 1 => Err(state.max(ended) + 1),
        // A removal that was cut off may have left some of what was before the end.
        _ => Ok(state.max(ended)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_begins_after_its_state_or_after_its_end() {
        for (state, first, ended, base) in [
            (0, None, 0, Ok(0)),
            (0, Some(1), 0, Ok(0)),
            (0, Some(1), 3, Ok(0)),
            (7, None, 0, Ok(7)),
            (7, Some(8), 3, Ok(7)),
            (7, Some(8), 7, Ok(7)),
            // Gone, and created anew.
            (0, None, 3, Ok(3)),
            (0, Some(4), 3, Ok(3)),
            (2, Some(4), 3, Ok(3)),
            // Only a part is gone.
            (0, Some(2), 3, Ok(3)),
            // Lost.
            (0, Some(2), 0, Err(1)),
            (0, Some(5), 3, Err(4)),
            (7, Some(9), 0, Err(8)),
            (7, Some(9), 3, Err(8)),
            (2, Some(5), 3, Err(4)),
        ] {
            assert_eq!(history_base(state, first, ended), base, "{state} {first:?} {ended}");
        }
    }
}
