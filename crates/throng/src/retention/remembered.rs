//! States that were computed on the way to earlier events. States of erased entities are forgotten.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use throng_journal::Address;

/// The most bytes of states that are remembered.
const REMEMBERED_BYTES: usize = 16 << 20;

/// The remembered states.
#[derive(Default)]
pub(crate) struct Remembered {
    met: Mutex<Met>,
}

#[derive(Default)]
struct Met {
    /// The states in the order they were added, so that the oldest is dropped first.
    states: VecDeque<MetState>,
    bytes: usize,
}

struct MetState {
    of: Address,
    /// The event after which the entity had this state.
    seq: u64,
    /// The state, in the format of the journal and the store.
    recorded: Vec<u8>,
}

impl Remembered {
    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latest state that is not after an event.
    pub(crate) fn find(&self, of: &Address, upto: u64) -> Option<(u64, Vec<u8>)> {
        let met = self.met();
        let fitting = met.states.iter().filter(|state| state.of == *of && state.seq <= upto);
        let latest = fitting.max_by_key(|state| state.seq)?;
        Some((latest.seq, latest.recorded.clone()))
    }

    /// Remembers the state right after an event.
    pub(crate) fn put(&self, of: &Address, seq: u64, recorded: Vec<u8>) {
        let mut met = self.met();
        if met.states.iter().any(|state| state.of == *of && state.seq == seq) {
            return;
        }
        met.bytes += recorded.len();
        let of = of.clone();
        met.states.push_back(MetState { of, seq, recorded });
        while met.bytes > REMEMBERED_BYTES
            && let Some(oldest) = met.states.pop_front()
        {
            met.bytes -= oldest.recorded.len();
        }
    }

    /// Forgets all states of an entity.
    pub(crate) fn forget(&self, of: &Address) {
        let mut met = self.met();
        met.states.retain(|state| state.of != *of);
        met.bytes = met.states.iter().map(|state| state.recorded.len()).sum();
    }
}
