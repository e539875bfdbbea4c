//! The number of loops: one while it keeps up, another when it is saturated and a core is free.
//!
//! Another loop is only useful on its own core: two loops on one core do less than one does. So the machine's idle cores are measured, too.
//! A loop that was started stays, since an idle one costs nothing. Connections stay on their loop; the kernel gives each loop its part of
//! the new ones.

use crate::{admission::WaitTimes, error::StartError, limits::LOOPS_MAX};
use std::{
    fs,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The interval between two looks at the loops.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks in a row that must agree.
const LOOKS: u32 = 4;
/// The busy share of time from which on a loop is saturated.
const BUSY_SHARE: f64 = 0.9;
/// The idle cores needed for another loop: the idle shares of all cores, added up.
const IDLE_CORES: f64 = 0.8;

/// Measurements since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The share of time that the least busy loop did not wait for its sockets.
    pub(crate) busy: f64,
    /// The number of idle cores of the machine.
    pub(crate) idle_cores: f64,
}

/// Decides, without clock or machine.
#[derive(Debug, Default)]
pub(crate) struct Decider {
    agreed: u32,
}

impl Decider {
    /// Takes a sample; returns true if another loop should start.
    pub(crate) fn look(&mut self, sample: Sample) -> bool {
        if sample.busy < BUSY_SHARE || sample.idle_cores < IDLE_CORES {
            self.agreed = 0;
            return false;
        }
        self.agreed += 1;
        if self.agreed < LOOKS {
            return false;
        }
        // The effect of the new loop has to be seen first.
        self.agreed = 0;
        true
    }
}

/// Looks at loops and machine.
pub(crate) struct Sampler {
    /// The wait times of each loop, and its total wait at the last look.
    loops: Vec<(Arc<WaitTimes>, Duration)>,
    looked: Instant,
    /// The idle clock ticks of all cores at the last look.
    idle_ticks: Option<u64>,
}

impl Sampler {
    pub(crate) fn new() -> Self {
        Self {
            loops: Vec::new(),
            looked: Instant::now(),
            idle_ticks: idle_ticks(),
        }
    }

    pub(crate) fn add(&mut self, pass: Arc<WaitTimes>) {
        let waited = pass.waited();
        self.loops.push((pass, waited));
    }

    pub(crate) fn sample(&mut self) -> Sample {
        let now = Instant::now();
        let since = now.duration_since(self.looked).as_secs_f64().max(f64::MIN_POSITIVE);
        self.looked = now;
        let mut busy: f64 = 1.0;
        for (pass, before) in &mut self.loops {
            let waited = pass.waited();
            let share = waited.saturating_sub(*before).as_secs_f64() / since;
            *before = waited;
            busy = busy.min(1.0 - share);
        }
        let before = std::mem::replace(&mut self.idle_ticks, idle_ticks());
        let idled = self
            .idle_ticks
            .zip(before)
            .map_or(0, |(now, before)| now.saturating_sub(before));
        let idle_cores = idled as f64 / rustix::param::clock_ticks_per_second() as f64 / since;
        Sample { busy, idle_cores }
    }
}

/// Returns the idle clock ticks of all cores together since the machine started; `None` if the system does not tell.
pub(crate) fn idle_ticks() -> Option<u64> {
    parse_idle(&fs::read_to_string("/proc/stat").ok()?)
}

/// Returns the fourth number of the first line (user, nice, system, idle). Waiting for a disk does not count as idle, since a loop that
/// syncs needs it.
fn parse_idle(stat: &str) -> Option<u64> {
    stat.lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()
}

/// Returns the most loops by default for this many cores: one core is left for other work.
pub(crate) fn most(cores: usize) -> usize {
    cores.saturating_sub(1).clamp(1, LOOPS_MAX)
}

/// The threads of a gateway's loops.
pub(crate) type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// Watches until the other end of `over` is dropped, or there are `most` loops. `sample` measures; `start` starts the loop of a number.
pub(crate) fn watch(
    over: &Receiver<()>,
    every: Duration,
    most: usize,
    threads: &Threads,
    mut sample: impl FnMut() -> Sample,
    mut start: impl FnMut(usize) -> Result<JoinHandle<()>, StartError>,
) {
    let mut decider = Decider::default();
    while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let seen = sample();
        let count = threads.lock().unwrap_or_else(PoisonError::into_inner).len();
        if count >= most {
            return;
        }
        if !decider.look(seen) {
            continue;
        }
        match start(count) {
            Ok(thread) => {
                threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
                let (busy, idle) = (seen.busy * 100.0, seen.idle_cores);
                tracing::info!(
                    "loop {} serves new connections: the others are {busy:.0} % busy, {idle:.1} cores are free",
                    count + 1
                );
            }
            Err(error) => {
                tracing::warn!("another loop was needed and could not be started: {error}");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const SATURATED: Sample = Sample {
        busy: 0.97,
        idle_cores: 1.1,
    };

    fn looks(decider: &mut Decider, sample: Sample, count: u32) -> u32 {
        (0..count).map(|_| u32::from(decider.look(sample))).sum()
    }

    #[test]
    fn another_loop_starts_when_all_are_full_and_a_core_is_free() {
        let mut decider = Decider::default();
        assert_eq!(looks(&mut decider, SATURATED, LOOKS - 1), 0);
        assert_eq!(looks(&mut decider, SATURATED, 1), 1);
        assert_eq!(
            looks(&mut decider, SATURATED, LOOKS - 1),
            0,
            "the new one shows what it changes first"
        );
        assert_eq!(looks(&mut decider, SATURATED, 1), 1);
    }

    #[test]
    fn a_pause_or_a_machine_that_is_full_starts_none() {
        for other in [
            Sample {
                busy: 0.89,
                ..SATURATED
            },
            Sample {
                idle_cores: 0.7,
                ..SATURATED
            },
        ] {
            let mut decider = Decider::default();
            assert_eq!(looks(&mut decider, other, 100), 0);
            assert_eq!(looks(&mut decider, SATURATED, LOOKS - 1), 0);
            assert_eq!(looks(&mut decider, other, 1), 0);
            assert_eq!(looks(&mut decider, SATURATED, LOOKS - 1), 0, "it begins anew");
        }
    }

    #[test]
    fn one_core_is_left_for_the_others() {
        assert_eq!([1, 2, 3, 8, 1_000].map(most), [1, 1, 2, 7, LOOPS_MAX]);
    }

    #[test]
    fn idle_time_is_read_from_the_system() {
        assert_eq!(parse_idle("cpu  10 20 30 4000 50 6\ncpu0 1 2 3 4\n"), Some(4_000));
        assert_eq!(parse_idle("intr 1\n"), None);
        assert!(idle_ticks().is_some());
    }

    #[test]
    fn a_loop_that_waits_is_not_busy_and_one_that_never_does_is() {
        let waits = Arc::<WaitTimes>::default();
        waits.parks(Instant::now());
        let mut sampler = Sampler::new();
        sampler.add(waits.clone());
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(sampler.sample().busy < 0.5, "it waits, and has not come back yet");
        waits.wakes(Instant::now());
        sampler.sample();
        while Instant::now() < until + Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(sampler.sample().busy > 0.5);
    }

    #[test]
    fn no_more_are_started_than_there_may_be() {
        let threads = Threads::default();
        threads.lock().unwrap().push(std::thread::spawn(|| {}));
        let (_over, is_over) = mpsc::channel();
        let mut started = Vec::new();
        watch(
            &is_over,
            Duration::from_micros(1),
            3,
            &threads,
            || SATURATED,
            |number| {
                started.push(number);
                Ok(std::thread::spawn(|| {}))
            },
        );
        assert_eq!(started, [1, 2]);
    }
}
