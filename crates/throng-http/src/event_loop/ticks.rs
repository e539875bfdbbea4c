//! A coarse clock of a loop, for waits that are seconds long.

use crate::limits::Limits;
use std::{cell::Cell, time::Duration};

/// Counts sweeps.
#[derive(Default)]
pub(super) struct Ticks(Cell<u32>);

impl Ticks {
    pub(super) fn now(&self) -> u32 {
        self.0.get()
    }

    pub(super) fn tick(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}

/// The limits of waits, in ticks.
pub(super) struct Bounds {
    pub(super) idle: u32,
    pub(super) header: u32,
    pub(super) body: u32,
    pub(super) write: u32,
}

impl Bounds {
    pub(super) fn new(limits: &Limits) -> Self {
        let every = limits.sweep_every().as_nanos().max(1);
        let ticks = |wait: Duration| u32::try_from(wait.as_nanos().div_ceil(every)).unwrap_or(u32::MAX / 2);
        Self {
            idle: ticks(limits.idle),
            header: ticks(limits.header_wait),
            body: ticks(limits.body_wait),
            write: ticks(limits.write_wait),
        }
    }
}
