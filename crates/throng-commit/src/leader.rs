//! Leadership: at most one candidate leads, one unit of work at a time.

use crate::sync::{Mutex, lock};
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    task::Waker,
};

/// Leadership of one piece of work, handed over after every unit of it.
///
/// Nothing blocks. A candidate that [asks](Self::ask) while another leads leaves its waker and does other work. At the end of each [`Term`]
/// all waiting candidates are woken, in the order they asked. The first in line leads next. A candidate that arrives before the first one
/// steps back once, behind its own ready tasks. If the first has not arrived by then, because its thread is busy, the other one leads, and
/// the first keeps its place. So:
///
/// - every request is followed by a term that begins after it, led by the candidate that asked unless it [leaves](Self::leave);
/// - no candidate leads twice in a row while another waits, unless it gave way in between;
/// - no candidate waits for a thread that does not arrive.
///
/// Each candidate has one place in line, so no more wait than there are candidates.
#[derive(Default)]
pub struct Leader {
    state: Mutex<State>,
}

/// The state between two calls. Hazard: while none leads and a candidate waits, every candidate in line must have been woken since it last
/// asked. Otherwise the work would stop.
#[derive(Default)]
struct State {
    is_led: bool,
    /// The candidates that asked and have not led since, in order, each once.
    line: VecDeque<Waiting>,
}

struct Waiting {
    candidate: Candidate,
    waker: Waker,
    /// True if the candidate arrived before its turn, while an earlier one had not arrived, and gave way.
    stepped_back: bool,
}

/// A possible leader: an event loop, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate(u64);

impl Candidate {
    /// Returns a candidate that equals no other.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl State {
    fn place_of(&self, candidate: Candidate) -> Option<usize> {
        self.line.iter().position(|waiting| waiting.candidate == candidate)
    }

    /// Keeps the candidate's place in line, or gives it the last one.
    fn queue(&mut self, candidate: Candidate, waker: &Waker) -> &mut Waiting {
        let at = self.place_of(candidate).unwrap_or_else(|| {
            self.line.push_back(Waiting {
                candidate,
                waker: waker.clone(),
                stepped_back: false,
            });
            self.line.len() - 1
        });
        let waiting = &mut self.line[at];
        waiting.waker.clone_from(waker);
        waiting
    }

    /// Lets the candidate lead, and removes it from the line, if it is its turn. Called while none leads.
    fn admits(&mut self, candidate: Candidate) -> bool {
        let Some(at) = self.place_of(candidate) else {
            return self.line.is_empty();
        };
        let admitted = at == 0 || self.line[at].stepped_back;
        if admitted {
            self.line.remove(at);
        }
        admitted
    }
}

impl Leader {
    /// Returns a leadership that no candidate holds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to lead one unit of work. On `None` the waker is kept, and woken when it is time to ask again.
    pub fn ask(&self, candidate: Candidate, waker: &Waker) -> Option<Term<'_>> {
        let mut state = lock(&self.state);
        if state.is_led {
            state.queue(candidate, waker).stepped_back = false;
            return None;
        }
        if state.admits(candidate) {
            state.is_led = true;
            return Some(Term {
                leader: self,
                candidate,
                again: None,
            });
        }
        state.queue(candidate, waker).stepped_back = true;
        drop(state);
        waker.wake_by_ref();
        None
    }

    /// Removes the candidate from the line. Returns true if it was in line and no other is: the caller then has to find another candidate.
    pub fn leave(&self, candidate: Candidate) -> bool {
        let mut state = lock(&self.state);
        let Some(at) = state.place_of(candidate) else {
            return false;
        };
        state.line.remove(at);
        // The others were woken together with it, or will be when the term ends.
        state.line.is_empty()
    }

    /// Ends a term and wakes the line. It wakes after the place is free, so a candidate that arrives finds it free, or led by one of them.
    fn hand_over(&self, again: Option<(Candidate, Waker)>) {
        let wakers: Vec<Waker> = {
            let mut state = lock(&self.state);
            if let Some((candidate, waker)) = again {
                state.queue(candidate, &waker);
            }
            state.is_led = false;
            state.line.iter().map(|waiting| waiting.waker.clone()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The right to do one unit of work alone. Dropping it passes the right on.
#[must_use = "dropping it hands over"]
pub struct Term<'a> {
    leader: &'a Leader,
    candidate: Candidate,
    again: Option<Waker>,
}

impl Term<'_> {
    /// Puts this candidate at the end of the line, to be woken with the others, because there is more to do.
    pub fn again(&mut self, waker: &Waker) {
        self.again = Some(waker.clone());
    }
}

impl Drop for Term<'_> {
    fn drop(&mut self) {
        self.leader
            .hand_over(self.again.take().map(|waker| (self.candidate, waker)));
    }
}
