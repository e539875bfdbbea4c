//! The admission of attempts: the call that a worker makes next, and when. Decided without a clock: time is passed in.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};
use throng_core::model::{CallId, CallOffer, Outside};
use throng_services::{
    circuit::{Circuit, CircuitState, Outcome, Permit, Settings},
    retry::RetryTokens,
};

/// Calls that wait in memory, some 60 bytes each; a timer of the call comes back to those beyond.
pub(super) const WAITING_MAX: usize = 65_536;
/// The longest time for which a breaker stays open.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// The shortest time for which a breaker stays open.
const OPEN_MIN: Duration = Duration::from_millis(1);

/// The bounds of a worker.
pub(super) struct Bounds {
    /// Attempts at once, in all engines together.
    pub(super) concurrency: usize,
    /// The time from one attempt to the next, in all engines together.
    pub(super) interval: Duration,
    pub(super) retries: (u32, u32),
    /// The attempts after which the breaker opens; 0 is never.
    pub(super) breaker: u32,
    pub(super) pause: (Duration, Duration),
}

impl Bounds {
    pub(super) fn of<W: Outside>() -> Self {
        let interval = W::RATE.map(|(attempts, time)| portion(time, 1, attempts as usize));
        Self {
            concurrency: W::CONCURRENCY.max(1),
            interval: interval.unwrap_or_default(),
            retries: W::RETRIES,
            breaker: W::BREAKER,
            pause: W::PAUSE,
        }
    }

    fn circuit(&self) -> Circuit {
        let pause_first = self.pause.0.clamp(OPEN_MIN, OPEN_MAX);
        Circuit::new(Settings {
            calls_min: if self.breaker == 0 { u32::MAX } else { self.breaker },
            failures_in_a_row: self.breaker,
            pause_first,
            pause_max: self.pause.1.clamp(pause_first, OPEN_MAX),
            ..Settings::default()
        })
    }
}

/// A part of a time, rounded up: never more attempts than were allowed.
fn portion(time: Duration, part: usize, of: usize) -> Duration {
    let nanos = (time.as_nanos() * part as u128).div_ceil(of.max(1) as u128);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// An attempt that was admitted. [`Admission::ended`] takes it back.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) call: CallId,
    destination: u64,
    is_retry: bool,
    pass: Permit,
    /// The time of the next attempt, before this one was admitted and since.
    next: (Duration, Duration),
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The call has not let it begin.
    NotBegun,
    /// This program could not make it: that says nothing of the provider.
    NotMade,
    /// The provider has answered, if only to refuse.
    Answered { is_first: bool },
    /// There was no answer.
    Unanswered { is_first: bool },
}

/// The next attempt, or the time to ask again.
#[derive(Debug)]
pub(super) enum Next {
    Begin(Admitted),
    /// None begins before this time.
    At(Duration),
    /// None begins before another one has ended.
    Full,
    /// No call waits.
    Idle,
}

/// Tells whether a destination that holds so many places may have one more: no one holds more than are free after it, so that each new one finds
/// some (Choudhury, Hahne: "Dynamic Queue Length Thresholds", 1998). Calls without a destination may have all.
fn has_share(destination: u64, held: usize, free: usize) -> bool {
    free > 0 && (destination == 0 || held < free)
}

/// Calls that wait: one of each destination in turn.
#[derive(Default)]
struct Waiting {
    calls: HashMap<u64, VecDeque<CallId>>,
    /// The destinations that have some.
    turns: VecDeque<u64>,
}

impl Waiting {
    fn len(&self, destination: u64) -> usize {
        self.calls.get(&destination).map_or(0, VecDeque::len)
    }

    fn push(&mut self, destination: u64, call: CallId) {
        let calls = self.calls.entry(destination).or_default();
        if calls.is_empty() {
            self.turns.push_back(destination);
        }
        calls.push_back(call);
    }

    /// Puts the next destination first that may begin an attempt; `false`: there is none. Those before it have attempts under way, and so are few.
    fn turn(&mut self, may_begin: impl Fn(u64) -> bool) -> bool {
        let next = self.turns.iter().position(|destination| may_begin(*destination));
        self.turns.rotate_left(next.unwrap_or_default());
        next.is_some()
    }

    /// Takes a call of the first destination.
    fn pop(&mut self) -> Option<(u64, CallId)> {
        let destination = self.turns.pop_front()?;
        let calls = self.calls.get_mut(&destination)?;
        let call = calls.pop_front()?;
        if calls.is_empty() {
            self.calls.remove(&destination);
        } else {
            self.turns.push_back(destination);
        }
        Some((destination, call))
    }
}

/// The calls that wait for an attempt of a worker, and the bounds of its attempts.
pub(super) struct Admission {
    bounds: Bounds,
    /// Calls without an attempt.
    first: Waiting,
    /// Calls with attempts that came to no answer.
    again: Waiting,
    /// The calls in both: a timer offers a call again that waits already.
    waiting: HashSet<CallId>,
    under_way: usize,
    /// Attempts under way of each destination that has some.
    by_destination: HashMap<u64, usize>,
    /// The last attempt was a retry: a first one has its turn.
    was_retry: bool,
    next_at: Duration,
    tokens: RetryTokens,
    circuit: Circuit,
}

impl Admission {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            tokens: RetryTokens::new(bounds.retries.0, bounds.retries.1),
            circuit: bounds.circuit(),
            bounds,
            first: Waiting::default(),
            again: Waiting::default(),
            waiting: HashSet::new(),
            under_way: 0,
            by_destination: HashMap::new(),
            was_retry: false,
            next_at: Duration::ZERO,
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn breaker(&self) -> CircuitState {
        self.circuit.state()
    }

    /// Has a call wait for its attempt.
    pub(super) fn add(&mut self, offer: &CallOffer) {
        let queue = if offer.attempts == 0 {
            &mut self.first
        } else {
            &mut self.again
        };
        let free = WAITING_MAX - self.waiting.len();
        if has_share(offer.destination, queue.len(offer.destination), free) && self.waiting.insert(offer.call) {
            queue.push(offer.destination, offer.call);
        }
    }

    /// Forgets all calls that wait: their timers come back to them.
    pub(super) fn clear(&mut self) {
        (self.first, self.again, self.waiting) = Default::default();
    }

    /// Admits the next attempt, given the permits that this engine has now.
    pub(super) fn next(&mut self, now: Duration, permits: usize) -> Next {
        if self.waiting.is_empty() {
            return Next::Idle;
        }
        if self.under_way >= permits {
            return Next::Full;
        }
        if now < self.next_at {
            return Next::At(self.next_at);
        }
        let held = &self.by_destination;
        let may_begin = |destination| {
            let held = held.get(&destination).copied().unwrap_or_default();
            has_share(destination, held, permits - self.under_way)
        };
        let [has_first, has_again] = [&mut self.first, &mut self.again].map(|queue| queue.turn(may_begin));
        if !has_first && !has_again {
            return Next::Full;
        }
        let mut is_retry = has_again && (!self.was_retry || !has_first);
        if is_retry && let Err(after) = self.tokens.withdraw(now) {
            if !has_first {
                return Next::At(now.saturating_add(after));
            }
            is_retry = false;
        }
        let pass = match self.circuit.ask(now) {
            Ok(pass) => pass,
            Err(after) => {
                if is_retry {
                    self.tokens.give_back();
                }
                return Next::At(now.saturating_add(after));
            }
        };
        let queue = if is_retry { &mut self.again } else { &mut self.first };
        let Some((destination, call)) = queue.pop() else {
            return Next::Idle;
        };
        self.waiting.remove(&call);
        self.under_way += 1;
        if destination != 0 {
            *self.by_destination.entry(destination).or_default() += 1;
        }
        self.was_retry = is_retry;
        let before = self.next_at;
        self.next_at = now.saturating_add(portion(self.bounds.interval, self.bounds.concurrency, permits));
        Next::Begin(Admitted {
            call,
            destination,
            is_retry,
            pass,
            next: (before, self.next_at),
        })
    }

    /// Takes an attempt back that has ended.
    pub(super) fn ended(&mut self, admitted: Admitted, now: Duration, ended: Ended) {
        let Admitted {
            destination,
            is_retry,
            pass,
            next,
            ..
        } = admitted;
        self.under_way -= 1;
        if let Some(held) = self.by_destination.get_mut(&destination) {
            *held -= 1;
            if *held == 0 {
                self.by_destination.remove(&destination);
            }
        }
        let outcome = match ended {
            Ended::NotBegun | Ended::NotMade => Outcome::Abandoned,
            Ended::Answered { .. } => Outcome::Succeeded,
            Ended::Unanswered { .. } => Outcome::Failed,
        };
        self.circuit.end(now, pass, outcome);
        // Only retries without an answer are a load that does nobody good.
        match (is_retry, ended) {
            (true, Ended::Unanswered { .. }) => {}
            (true, _) => self.tokens.give_back(),
            // The offer was of a time before the call's first attempt, at another engine.
            (false, Ended::Unanswered { is_first: false }) => self.tokens.charge(),
            (false, _) => {}
        }
        match ended {
            // Another attempt may have been admitted since, for a time after this one.
            Ended::NotBegun if self.next_at == next.1 => self.next_at = next.0,
            Ended::Answered { is_first: true } | Ended::Unanswered { is_first: true } => self.tokens.deposit(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
