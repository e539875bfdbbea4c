//! The pause in which a thread that talks to a broker does not read its sockets.
//!
//! A broker sends each message at once, and each wakes the reader: a system call, a commit, an acknowledgement and a packet for one or two
//! messages. Under load, the thread therefore reads its sockets only after a pause. What arrived meanwhile is then one read, one batch, one
//! commit and one acknowledgement. Without load there is no pause.
//! acknowledgement, and goes out in one write. Few messages are not held up at all.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A pause is made only if about this many messages arrive in it.
const GATHERED_MIN: u64 = 4;
/// The interval in which messages are counted to compute the rate.
const LOOK: Duration = Duration::from_millis(5);

/// Counts messages, and decides when to pause. Any thread counts; only one pauses.
#[derive(Debug)]
pub struct Pace {
    pause: Duration,
    /// All messages so far. [`add`](Self::add) raises it; the thread that pauses reads it.
    messages: AtomicU64,
    rate: Mutex<Rate>,
}

impl Pace {
    /// Returns a pace that pauses for this time under load.
    #[must_use]
    pub fn new(pause: Duration) -> Self {
        Self {
            pause,
            messages: AtomicU64::new(0),
            rate: Mutex::new(Rate::new(Instant::now())),
        }
    }

    /// Counts messages that arrive or leave.
    pub fn add(&self, messages: usize) {
        self.messages.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// Pauses if enough messages are expected. Called by a thread that has nothing left to do.
    pub fn pause(&self) {
        let messages = self.messages.load(Ordering::Relaxed);
        let gathers = {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            rate.look(Instant::now(), messages);
            rate.within(self.pause)
        };
        if gathers >= GATHERED_MIN {
            std::thread::sleep(self.pause);
        }
    }
}

/// The rate of messages, from two counts.
#[derive(Debug)]
struct Rate {
    since: Instant,
    messages: u64,
    /// The messages of the last interval, and its length.
    came: (u64, Duration),
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            messages: 0,
            came: (0, LOOK),
        }
    }

    fn look(&mut self, now: Instant, messages: u64) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < LOOK {
            return;
        }
        self.came = (messages.saturating_sub(self.messages), elapsed);
        (self.since, self.messages) = (now, messages);
    }

    /// Returns the approximate number of messages in this time.
    fn within(&self, duration: Duration) -> u64 {
        let (came, elapsed) = self.came;
        let within = u128::from(came) * duration.as_nanos() / elapsed.as_nanos();
        u64::try_from(within).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_stretch_that_was_long_enough() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let at = |millis| start + Duration::from_millis(millis);
        let pause = Duration::from_millis(1);
        rate.look(at(4), 1_000);
        assert_eq!(rate.within(pause), 0, "too early to say");
        rate.look(at(5), 19);
        assert_eq!(rate.within(pause), 3);
        rate.look(at(10), 39);
        assert_eq!((rate.within(pause), rate.within(pause * 2)), (4, 8));
        rate.look(at(12), 39);
        assert_eq!(rate.within(pause), 4);
        rate.look(at(60), 45);
        assert_eq!(rate.within(pause), 0, "most of the time nothing came");
    }
}
