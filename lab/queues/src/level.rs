//! Level load: threads send at fixed times.

use crate::{
    Trade,
    process::cpu,
    way::{Receiving, Sending, Way},
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Senders that send on time even if the queue falls behind (an open model).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Trades a second of all senders together.
    pub rate: f64,
    /// The number of threads that send.
    pub threads: u32,
    /// The duration of sending.
    pub lasts: Duration,
}

/// The measured figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The number of trades received, which is the number sent.
    pub items: u64,
    /// Trades a second, until the last trade was received.
    pub rate: f64,
    /// The median time from sending a trade to looking at it, in nanoseconds.
    pub p50_nanos: u64,
    /// The 99th percentile of this time, in nanoseconds.
    pub p99_nanos: u64,
    /// The mean number of trades in a batch.
    pub batch_items: f64,
    /// The CPU time a trade in nanoseconds: sending, receiving and reading the clock.
    pub cpu_nanos: f64,
}

/// The shortest sleep of a sender that has nothing due. Afterwards it sends in one go what became due meanwhile.
const NAP_MIN: Duration = Duration::from_micros(50);

/// The number of trades that are timed in a long batch, at even distances.
const TIMED_A_BATCH: usize = 16;

/// A time longer than any wait in a measurement.
const NANOS_MAX: u64 = 100_000_000_000;

pub(crate) fn level(way: &impl Way, level: &Level) -> Figures {
    let (sender, mut receiver) = way.open();
    let (cpu_before, begun) = (cpu(), Instant::now());
    let receiving = thread::spawn(move || {
        let mut times = Histogram::<u64>::new_with_bounds(1, NANOS_MAX, 3).expect("these bounds are in order");
        let (mut items, mut batches) = (0, 0_u64);
        let look = |trades: &[Trade]| {
            let now = nanos_since(begun);
            let step = trades.len().div_ceil(TIMED_A_BATCH);
            for timed in trades.chunks(step) {
                let sent = timed.last().map_or(now, |trade| trade.amount);
                times.saturating_record_n(now.saturating_sub(sent).max(1), timed.len() as u64);
            }
            items += trades.len() as u64;
            batches += 1;
        };
        let mut look = look;
        while receiver.receive(&mut look) {}
        (times, items, batches, begun.elapsed())
    });
    let each = level.rate / f64::from(level.threads);
    let threads: Vec<_> = (0..level.threads)
        .map(|number| {
            let mut sender = sender.clone();
            let lasts = level.lasts;
            // The senders start at different moments, so that they do not send at the same time.
            let begins = Duration::from_secs_f64(f64::from(number) / level.rate);
            thread::spawn(move || on_time(&mut sender, each, begun + begins, begun, lasts))
        })
        .collect();
    drop(sender);
    let sent: u64 = threads
        .into_iter()
        .map(|thread| thread.join().expect("a sender panics only if the receiver did"))
        .sum();
    let (times, items, batches, elapsed) = receiving.join().expect("the receiver only counts");
    let cpu = cpu() - cpu_before;
    assert_eq!(items, sent, "every trade is received");
    Figures {
        items,
        rate: items as f64 / elapsed.as_secs_f64(),
        p50_nanos: times.value_at_quantile(0.5),
        p99_nanos: times.value_at_quantile(0.99),
        batch_items: items as f64 / batches.max(1) as f64,
        cpu_nanos: cpu.as_nanos() as f64 / items.max(1) as f64,
    }
}

/// Sends what is due until the time is over, and returns the number of trades sent. A trade's stamp is the time when it is sent, not when it was due.
fn on_time(sender: &mut impl Sending, rate: f64, begins: Instant, epoch: Instant, lasts: Duration) -> u64 {
    let mut sent = 0_u64;
    loop {
        let now = Instant::now();
        let running = now.saturating_duration_since(begins);
        if running >= lasts {
            return sent;
        }
        // The first trade is due at the beginning. The stamp is renewed every thousand trades, so that it stays true for a sender that is late.
        let due = (running.as_secs_f64() * rate) as u64 + u64::from(now >= begins);
        let burst = due.saturating_sub(sent).min(1_000);
        let stamp = nanos_since(epoch);
        for _ in 0..burst {
            sender.send(Trade::of(stamp));
        }
        sent += burst;
        if sent >= due {
            let next = begins + Duration::from_secs_f64(sent as f64 / rate);
            let nap = next.saturating_duration_since(Instant::now()).max(NAP_MIN);
            thread::sleep(nap.min(lasts));
        }
    }
}

fn nanos_since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Candidate;

    #[test]
    fn every_way_delivers_all_due_messages() {
        let short = Level {
            rate: 20_000.0,
            threads: 3,
            lasts: Duration::from_millis(30),
        };
        for candidate in Candidate::all() {
            let figures = candidate.level(&short);
            assert!(figures.items > 0 && figures.items <= 603, "{candidate}: {figures:?}");
            assert!(figures.p50_nanos <= figures.p99_nanos && figures.batch_items >= 1.0);
        }
    }
}
