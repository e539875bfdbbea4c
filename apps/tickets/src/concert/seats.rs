//! The seats of a zone, numbered from 1: which of them are free.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The seats of a zone. They are given out from the front; those that came back go first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seats {
    count: u32,
    /// All seats behind this one have never been given out.
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

    /// The free seats with the lowest numbers; `None` if there are fewer.
    pub(super) fn lowest(&self, tickets: u32) -> Option<Vec<u32>> {
        let free = self.returned.iter().copied().chain(self.given + 1..=self.count);
        (tickets <= self.free()).then(|| free.take(tickets as usize).collect())
    }

    /// Takes seats that are free. A history that takes one twice is a panic: the engine sets the concert apart.
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
