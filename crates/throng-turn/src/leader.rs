//! At most one leads, one unit of work at a time.

use crate::sync::{Mutex, lock};
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    task::Waker,
};

/// Leadership of one piece of work, handed over after every unit of it.
///
/// Nobody blocks. Who [asks](Self::ask) while somebody leads leaves its waker and goes on with other work; at the end of
/// each [`Term`] all who wait are woken, in the order they asked. The first in line leads next. Somebody else who comes
/// before it steps back once, behind its own ready tasks; if the first has not come by then (its thread is busy with
/// something long), the other one leads, and the first keeps its place. So:
///
/// - every request is followed by a term that begins after it: by the one who asked, unless it [leaves](Self::leave);
/// - nobody leads twice in a row while somebody else waits, unless it gave way to it in between;
/// - nobody waits for a thread that does not come.
///
/// There is one place in line for each candidate, so no more wait than there are candidates.
#[derive(Default)]
pub struct Leader {
    state: Mutex<State>,
}

/// Nobody leads and somebody waits: then everybody in line has been woken since it last asked.
#[derive(Default)]
struct State {
    is_led: bool,
    /// Who asked and has not led since, in order, each once.
    line: VecDeque<Waiting>,
}

struct Waiting {
    candidate: Candidate,
    waker: Waker,
    /// It came while somebody before it in line had not, and gave way.
    stepped_back: bool,
}

/// Somebody who may lead: an event loop, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate(u64);

impl Candidate {
    /// One that is nobody else.
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

    /// May this one lead, now that nobody does? If so it leaves the line.
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
    /// A leader's place, free.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to lead one unit of work. `None`: the waker is kept, and woken when it is time to ask again.
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

    /// This candidate asks no more. `true`: it was in line and nobody else is, so the caller has to find somebody who
    /// asks in its stead.
    pub fn leave(&self, candidate: Candidate) -> bool {
        let mut state = lock(&self.state);
        let Some(at) = state.place_of(candidate) else {
            return false;
        };
        state.line.remove(at);
        // The others were woken as it was, or will be when the term under way ends.
        state.line.is_empty()
    }

    /// Those in line are woken while nobody leads: whoever comes finds the place free, or led by one of them.
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

/// The right to do one unit of work alone. Dropping it hands over.
#[must_use = "dropping it hands over"]
pub struct Term<'a> {
    leader: &'a Leader,
    candidate: Candidate,
    again: Option<Waker>,
}

impl Term<'_> {
    /// There is more to do: this candidate is the last in line, and woken with the others.
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
