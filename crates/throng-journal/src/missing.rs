//! Events that are missing before later ones.

use crate::{Address, Cut, Error, Position, Record};
use std::collections::HashMap;

/// Gaps that a store has found while indexing a journal. A gap is a removal if a state follows that replaces the missing events: retention
/// leaves older states for a while, and removes the events after these. Otherwise it is a loss.
///
/// A copy keeps the events it had, even if later ones were removed before they were copied. Such a beginning without continuation is cut
/// from the index.
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
    /// Notes that the event `found` follows the event `before` at this position.
    pub fn note(&mut self, of: Address, (found, before): (u64, u64), at: Position) {
        self.of.insert(of, Gap { found, before, at });
    }

    /// Takes the record of a state or an end: earlier events of its entity are not needed.
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

    /// Takes the record of an end whose preceding events are missing: the entity's former data is gone.
    pub fn gone(&mut self, ended: &Record<'_>) {
        self.cuts.push(Cut {
            address: Address::new(ended.kind, ended.id),
            upto: ended.seq,
            is_gone: true,
        });
    }

    /// Returns the cuts of the index for all gaps, once everything was read.
    ///
    /// # Errors
    /// [`Error::Damaged`]: events are missing without a state that replaces them.
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

/// Returns the event after which an entity is rebuilt from its events. `state` is the event of its newest state, `first` its first event
/// after that, `ended` its last event when it last ended; 0 stands for none.
///
/// An entity that ended may have been removed: its index then begins after its end. Otherwise an index must begin right after the state.
///
/// # Errors
/// The number of the missing event.
pub fn history_base(state: u64, first: Option<u64>, ended: u64) -> Result<u64, u64> {
    match first {
        Some(first) if first == state + 1 => Ok(state),
        Some(first) if first > ended + 1 => Err(state.max(ended) + 1),
        // An interrupted removal may have left some events before the end.
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
            // The file is gone and was created anew.
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
