//! The seats of a zone, numbered from 1, and which of them are free.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The seats of a zone. They are assigned from the front. Returned seats are assigned first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seats {
    count: u32,
    /// The last seat that was ever assigned. All later ones are free.
    given: u32,
    returned: BTreeSet<u32>,
}

impl Seats {
    pub(super) fn new(count: u32) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }

    pub(super) fn free(&self) -> u32 {
        self.count - self.given + self.returned.len() as u32
    }

    /// Returns the free seats with the lowest numbers; `None` if too few are free.
    pub(super) fn lowest(&self, tickets: u32) -> Option<Vec<u32>> {
        let free = self.returned.iter().copied().chain(self.given + 1..=self.count);
        (tickets <= self.free()).then(|| free.take(tickets as usize).collect())
    }

    /// Takes free seats. Panics if a history takes a seat twice; the engine then quarantines the concert.
    pub(super) fn take(&mut self, seats: &[u32]) {
        for seat in seats {
            if !self.returned.remove(seat) {
                assert!(*seat == self.given + 1 && *seat <= self.count, "seat {seat} is taken");
                self.given = *seat;
            }
        }
    }

    pub(super) fn give_back(&mut self, seats: &[u32]) {
        for seat in seats {
            assert!(
                *seat <= self.given && self.returned.insert(*seat),
                "seat {seat} is free"
            );
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.returned.len() * 8
    }
}
