//! Logs slow commands: those over a millisecond when they end, those over a second while they run.

use super::{Executor, batch};
use crate::commit::Staging;
use std::{cell::Cell, sync::atomic::Ordering, time::Duration};
use throng_core::shard::{Call, Ran, Shard};

/// A command that takes this long is slow: it delays all that wait for its shard.
const SLOW_MICROS: u64 = 1_000;
/// A command that takes this long is reported as stuck.
const STUCK_MICROS: u64 = 1_000_000;
/// A command that takes this long is logged whether it computed, waited, or was not scheduled.
const LONG_MICROS: u64 = 50_000;
/// The longest age of a reading of the thread's CPU time at the beginning of a command. A newer reading costs a system call.
const SAMPLE_MICROS: u64 = 250;
/// The interval at which stuck commands are looked for.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The most slow commands logged in a second; further ones are only counted.
const NAMED_PER_SECOND: u64 = 5;

thread_local! {
    static SAMPLE: Cell<Sample> = const { Cell::new(Sample { at: 0, cpu: 0 }) };
}

/// The last reading of this thread's CPU time, and its time by the host's clock, in microseconds.
#[derive(Clone, Copy)]
struct Sample {
    at: u64,
    cpu: u64,
}

/// Returns the least time for which a command used the processor. It took `took` by the clock; its thread used `cpu` since the last
/// reading, which was `age` before the command began. All of that age may have been other work.
fn at_work_micros(took: u64, cpu: u64, age: u64) -> u64 {
    cpu.saturating_sub(age).min(took)
}

impl Executor {
    /// Runs a command and measures it; `begun` is about now, by the host's clock.
    pub(super) fn watched(&self, shard: &mut Shard, call: &mut Call<'_>, begun: u64, staging: &mut Staging<'_>) -> Ran {
        let host = &self.context.host;
        let at_work = &self.at_work[usize::from(shard.id().0)];
        at_work.begin(begun, call.kind, call.id);
        let mut sample = SAMPLE.get();
        if begun.wrapping_sub(sample.at) >= SAMPLE_MICROS
            && let Some(cpu) = host.thread_cpu_micros()
        {
            sample = Sample { at: begun, cpu };
            SAMPLE.set(sample);
        }
        let ran = shard.execute(call, staging);
        at_work.end();
        let took = host.elapsed_micros().saturating_sub(begun);
        batch::charge(&self.context, call.hash, took);
        if took >= SLOW_MICROS {
            self.name_slow(call, Span { begun, took }, sample);
        }
        ran
    }

    /// Decides whether a command that took long used the processor or was not scheduled, and logs it.
    #[cold]
    fn name_slow(&self, call: &Call<'_>, Span { begun, took }: Span, sample: Sample) {
        let now = self.context.host.thread_cpu_micros();
        let own = now.map_or(took, |now| {
            at_work_micros(took, now.saturating_sub(sample.cpu), begun.saturating_sub(sample.at))
        });
        if own >= SLOW_MICROS || took >= LONG_MICROS {
            self.context.metrics.slow.inc();
            let second = begun / 1_000_000;
            if self.slow_second.swap(second, Ordering::Relaxed) != second {
                self.slow_named.store(0, Ordering::Relaxed);
            }
            if self.slow_named.fetch_add(1, Ordering::Relaxed) < NAMED_PER_SECOND {
                let kind = self.context.registry.kinds()[call.kind].name;
                tracing::warn!(
                    "a command of {kind}/{} took {took} µs, {own} of them at work; all others of its loop waited",
                    call.id
                );
            }
        }
    }

    /// Logs commands that run for over a second; each once, by its beginning (`named`, one for each shard).
    pub(crate) fn name_stuck(&self, named: &mut Vec<u64>) {
        let now = self.context.host.elapsed_micros();
        named.resize(self.at_work.len(), 0);
        for (at_work, named) in self.at_work.iter().zip(named) {
            let since = at_work.since.load(Ordering::Acquire);
            if since > 0 && now.saturating_sub(since - 1) >= STUCK_MICROS && *named != since {
                *named = since;
                let kind = at_work.kind.load(Ordering::Relaxed) as usize;
                let kind = self.context.registry.kinds().get(kind).map_or("?", |kind| kind.name);
                tracing::error!(
                    "a command of {kind}/{} runs for over a second and holds its shard",
                    at_work.id()
                );
            }
        }
    }
}

/// When a command began and how long it took, microseconds.
struct Span {
    begun: u64,
    took: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_not_at_work_while_its_thread_does_not_run() {
        assert_eq!(at_work_micros(5_000, 5_000, 0), 5_000);
        assert_eq!(at_work_micros(5_000, 40, 0), 40, "another process had the core");
        assert_eq!(
            at_work_micros(5_000, 5_200, 200),
            5_000,
            "what was before it does not count"
        );
        assert_eq!(at_work_micros(1_000, 3_000, 0), 1_000);
    }
}
