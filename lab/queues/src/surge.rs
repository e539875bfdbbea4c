//! Surge load: threads send as fast as they can.

use crate::{
    Trade,
    process::{cpu, peak_bytes},
    way::{Receiving, Sending, Way},
};
use serde::{Deserialize, Serialize};
use std::{
    hint::black_box,
    iter::repeat_with,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// The size of a surge. The default is the classic test: 76 rounds of 6 threads with 220,000 trades each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Surge {
    /// The most timed rounds. Each starts new threads and joins them.
    pub rounds: u32,
    /// The number of senders in a round.
    pub threads: u32,
    /// The number of trades of each sender.
    pub trades: u32,
    /// True if a sender passes all its trades in one call, as an iterator, instead of one call a trade.
    pub at_once: bool,
    /// The time after which no further round begins.
    pub limit: Duration,
}

impl Default for Surge {
    fn default() -> Self {
        Self {
            rounds: 76,
            threads: 6,
            trades: 220_000,
            at_once: false,
            limit: Duration::from_secs(3),
        }
    }
}

/// The measured figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The number of trades received, which is the number sent.
    pub items: u64,
    /// The time from the start of the first thread to the end of the last, the receiver.
    pub elapsed: Duration,
    /// The CPU time of the process during `elapsed`.
    pub cpu: Duration,
    /// The peak of resident memory of the whole process, in bytes.
    pub peak_bytes: u64,
}

impl Figures {
    /// Returns the trades a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the CPU time a trade, in nanoseconds.
    #[must_use]
    pub fn cpu_nanos(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.items as f64
    }
}

/// The shares in every trade.
const AMOUNT: u64 = 100;

/// The receiver's work: it counts the trades and adds up the amounts.
#[derive(Default)]
struct Sums {
    trades: u64,
    amount: u64,
}

impl Sums {
    #[inline]
    fn add(&mut self, trades: &[Trade]) {
        self.trades += trades.len() as u64;
        self.amount += trades.iter().map(|trade| trade.amount).sum::<u64>();
    }

    fn check(&self, sent: u64) {
        assert_eq!(
            (self.trades, self.amount),
            (sent, sent * AMOUNT),
            "trades and their sum"
        );
    }
}

/// Runs the rounds through a queue, after one round that is not timed. That round allocates the queue's memory, as is done for the ceiling.
///
/// # Panics
/// Panics if a trade was not received exactly once.
pub(crate) fn surge(way: &impl Way, surge: &Surge) -> Figures {
    let (sender, mut receiver) = way.open();
    let warm_up = u64::from(surge.threads) * u64::from(surge.trades);
    let (warm, is_warm) = mpsc::channel();
    let receiving = thread::spawn(move || {
        let mut sums = Sums::default();
        while sums.trades < warm_up && receiver.receive(|trades| sums.add(trades)) {}
        sums.check(warm_up);
        warm.send(()).expect("the rounds wait for it");
        let mut sums = Sums::default();
        while receiver.receive(|trades| sums.add(trades)) {}
        sums
    });
    assert_eq!(round(&sender, surge), warm_up);
    is_warm.recv().expect("the receiver counts to the end of the warm-up");
    let (cpu_before, begun) = (cpu(), Instant::now());
    let mut sent = 0;
    for _ in 0..surge.rounds {
        if begun.elapsed() > surge.limit {
            break;
        }
        sent += round(&sender, surge);
    }
    drop(sender);
    let sums = receiving.join().expect("the receiver only adds");
    let (elapsed, cpu) = (begun.elapsed(), cpu() - cpu_before);
    sums.check(sent);
    Figures {
        items: sent,
        elapsed,
        cpu,
        peak_bytes: peak_bytes(),
    }
}

/// Starts a round's threads, waits for their end and returns the number of trades they sent.
fn round(sender: &impl Sending, surge: &Surge) -> u64 {
    let threads: Vec<_> = (0..surge.threads)
        .map(|_| {
            let (mut sender, trades) = (sender.clone(), surge.trades as usize);
            let at_once = surge.at_once;
            thread::spawn(move || match at_once {
                true => sender.send_all(repeat_with(|| Trade::of(AMOUNT)).take(trades)),
                false => {
                    for _ in 0..trades {
                        sender.send(Trade::of(AMOUNT));
                    }
                }
            })
        })
        .collect();
    let trades = threads.into_iter().map(|thread| {
        thread.join().expect("a sender panics only if the receiver did");
        u64::from(surge.trades)
    });
    trades.sum()
}

/// The items that the ceiling's thread writes before it reads them.
const CEILING_ITEMS: usize = 1_000;

/// Does the same work without a hand-off. One thread writes 1,000 trades into an array, as a sender does. Then it adds them up, as the receiver does,
/// and starts again. It shares nothing, never waits and stays in its core's cache. A queue has a second core for the receiver's half, so it may in
/// principle be faster. Its cost is the communication between the cores.
#[must_use]
pub fn ceiling(surge: &Surge) -> Figures {
    let mut items = Vec::with_capacity(CEILING_ITEMS);
    let round = u64::from(surge.threads) * u64::from(surge.trades);
    fill_and_add(&mut items, round, surge.at_once);
    let wanted = u64::from(surge.rounds) * round;
    let (cpu_before, begun) = (cpu(), Instant::now());
    fill_and_add(&mut items, wanted, surge.at_once);
    let (elapsed, cpu) = (begun.elapsed(), cpu() - cpu_before);
    Figures {
        items: wanted,
        elapsed,
        cpu,
        peak_bytes: peak_bytes(),
    }
}

fn fill_and_add(items: &mut Vec<Trade>, wanted: u64, at_once: bool) {
    let mut sums = Sums::default();
    while sums.trades < wanted {
        let count = (wanted - sums.trades).min(CEILING_ITEMS as u64);
        match at_once {
            true => items.extend(repeat_with(|| Trade::of(AMOUNT)).take(count as usize)),
            false => {
                for _ in 0..count {
                    items.push(Trade::of(AMOUNT));
                }
            }
        }
        sums.add(black_box(items));
        items.clear();
    }
    sums.check(wanted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Candidate;

    #[test]
    fn every_way_delivers_every_trade() {
        let small = Surge {
            rounds: 2,
            threads: 3,
            trades: 2_500,
            at_once: false,
            limit: Duration::from_secs(60),
        };
        for at_once in [false, true] {
            let small = Surge {
                at_once,
                ..small.clone()
            };
            for candidate in Candidate::all() {
                assert_eq!(candidate.surge(&small).items, 15_000, "{candidate}");
            }
            assert_eq!(ceiling(&small).items, 15_000);
        }
    }
}
