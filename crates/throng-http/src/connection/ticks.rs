//! A coarse clock of a loop, for waits that are seconds long.

use crate::limits::Limits;
use std::{cell::Cell, time::Duration};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The number of sweeps: a clock that costs a connection nothing to read.
#[derive(Default)]
pub(crate) struct Ticks(Cell<u32>);

impl Ticks {
    pub(crate) fn now(&self) -> u32 {
        self.0.get()
    }

    pub(crate) fn tick(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}

/// The limits of waits, in ticks.
pub(crate) struct Bounds {
    pub(crate) idle: u32,
    pub(crate) header: u32,
    pub(crate) body: u32,
    pub(crate) write: u32,
    /// The time that an HTTP/2 connection gets after its announced end if it sends no more requests.
    pub(crate) linger: u32,
    /// The time that a WebSocket may be silent before its client is pinged.
    pub(crate) silence: u32,
    /// The time for which a body may be arbitrarily slow.
    pub(crate) body_grace: u32,
    /// And this fast, on average, from then on.
    pub(crate) body_bytes_a_tick: u64,
    /// The bytes that a client has to take, on average, of what waits for it.
    pub(crate) write_bytes_a_tick: u64,
}

impl Bounds {
    pub(crate) fn new(limits: &Limits) -> Self {
        let every = limits.sweep_every().as_nanos().max(1);
        let ticks = |wait: Duration| u32::try_from(wait.as_nanos().div_ceil(every)).unwrap_or(u32::MAX / 2);
        let bytes_a_tick = |rate: u32| (u128::from(rate) * every / NANOS_PER_SECOND) as u64;
        Self {
            idle: ticks(limits.idle),
            header: ticks(limits.header_wait),
            body: ticks(limits.body_wait),
            write: ticks(limits.write_wait),
            linger: ticks(limits.linger_wait),
            silence: ticks(limits.socket_ping),
            body_grace: ticks(limits.body_grace),
            body_bytes_a_tick: bytes_a_tick(limits.body_rate_min),
            write_bytes_a_tick: bytes_a_tick(limits.write_rate_min),
        }
    }

    /// True if a body with this many bytes after this many ticks is late.
    pub(crate) fn is_late(&self, ticks: u32, bytes: u64) -> bool {
        ticks > self.body || ticks > self.body_grace && bytes < self.body_bytes_a_tick * u64::from(ticks)
    }
}
