//! A fair division of places among picos, so that none takes all.
//!
//! A pico gets another place only while more places are free than it holds. Alone it gets half of them; two get a third each. So some places stay
//! free for the next pico, unless there are as many picos as places. The room for waiting requests is divided in the same way. Waiting picos take
//! turns.

use crate::id::PicoId;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// The holder of a place: a pico, or `None` for a client.
pub(super) type Holder = Option<PicoId>;

/// The places. Clones share them.
#[derive(Clone)]
pub(super) struct Places(Arc<Mutex<State>>);

struct State {
    free: usize,
    /// The number of further requests that may wait.
    room: usize,
    /// The holders of places, and the holders that wait.
    shares: HashMap<Holder, Share>,
    /// The holders with a waiting request, in the order of their turns.
    turns: VecDeque<Holder>,
}

#[derive(Default)]
struct Share {
    held: usize,
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// A place. It is given back on drop.
pub(super) struct Place {
    of: Holder,
    places: Places,
}

/// The error for a waiting room that is full for this holder.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many requests to elsewhere wait already, {waiting} of them from here: ask fewer at a time, or again later"
)]
pub(super) struct Full {
    waiting: usize,
}

impl Places {
    /// Makes places, and room for requests that wait for one.
    pub(super) fn new(places: usize, waiting_max: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: places,
            room: waiting_max,
            shares: HashMap::new(),
            turns: VecDeque::new(),
        })))
    }

    /// Asks for a place, which arrives in turn. Dropping the receiver cancels the request.
    ///
    /// # Errors
    ///
    /// [`Full`]: too many requests wait.
    pub(super) fn enter(&self, of: Holder) -> Result<oneshot::Receiver<Place>, Full> {
        let (give, given) = oneshot::channel();
        self.state().enter(of, give)?;
        self.give();
        Ok(given)
    }

    /// Hands free places to those that may have one.
    fn give(&self) {
        // The lock is not held here: a place without a taker is dropped at once, and that takes the lock.
        while let Some((of, give)) = self.next() {
            let places = self.clone();
            drop(give.send(Place { of, places }));
        }
    }

    fn next(&self) -> Option<(Holder, oneshot::Sender<Place>)> {
        self.state().next()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, of: Holder, give: oneshot::Sender<Place>) -> Result<(), Full> {
        let share = self.shares.entry(of).or_default();
        if share.waiting.len() >= self.room {
            let before = share.waiting.len();
            share.waiting.retain(|give| !give.is_closed());
            self.room += before - share.waiting.len();
        }
        let waiting = share.waiting.len();
        if waiting >= self.room {
            self.forget_idle(of);
            return Err(Full { waiting });
        }
        share.waiting.push_back(give);
        self.room -= 1;
        if waiting == 0 && !self.turns.contains(&of) {
            self.turns.push_back(of);
        }
        Ok(())
    }

    /// Takes the next request that may have a place.
    fn next(&mut self) -> Option<(Holder, oneshot::Sender<Place>)> {
        for _ in 0..self.turns.len() {
            let of = self.turns.pop_front()?;
            let share = self.shares.entry(of).or_default();
            while share.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                share.waiting.pop_front();
                self.room += 1;
            }
            let may_have_one = share.held < self.free;
            let given = if may_have_one { share.waiting.pop_front() } else { None };
            if !share.waiting.is_empty() {
                self.turns.push_back(of);
            }
            match given {
                Some(give) => {
                    share.held += 1;
                    self.free -= 1;
                    self.room += 1;
                    return Some((of, give));
                }
                None => self.forget_idle(of),
            }
        }
        None
    }

    fn left(&mut self, of: Holder) {
        self.free += 1;
        if let Some(share) = self.shares.get_mut(&of) {
            share.held -= 1;
        }
        self.forget_idle(of);
    }

    fn forget_idle(&mut self, of: Holder) {
        let is_idle = |share: &Share| share.held == 0 && share.waiting.is_empty();
        if self.shares.get(&of).is_some_and(is_idle) {
            self.shares.remove(&of);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state().left(self.of);
        self.places.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Given = oneshot::Receiver<Place>;

    fn pico(number: u64) -> Holder {
        Some(PicoId(number))
    }

    fn enter(places: &Places, of: Holder, times: usize) -> Vec<Given> {
        (0..times).map(|_| places.enter(of).unwrap()).collect()
    }

    /// Returns the places given so far.
    fn held(given: &mut [Given]) -> Vec<Place> {
        given.iter_mut().filter_map(|given| given.try_recv().ok()).collect()
    }

    #[test]
    fn pico_that_floods_leaves_places_for_each_further_pico() {
        let places = Places::new(32, 1_000);
        let mut floods: Vec<Vec<Given>> = (0..3).map(|number| enter(&places, pico(number), 100)).collect();
        let taken: Vec<Vec<Place>> = floods.iter_mut().map(|flood| held(flood)).collect();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [16, 8, 4]);
        assert_eq!(held(&mut enter(&places, pico(9), 1)).len(), 1);
    }

    #[test]
    fn picos_that_wait_take_turns() {
        let places = Places::new(2, 100);
        let mut first = enter(&places, pico(1), 1);
        let mut others = enter(&places, pico(2), 1);
        let (one, other) = (held(&mut first), held(&mut others));
        assert_eq!((one.len(), other.len()), (1, 1));
        let mut flood = enter(&places, pico(3), 5);
        let mut late = enter(&places, pico(4), 1);
        drop(one);
        let of_flood = held(&mut flood);
        assert_eq!((of_flood.len(), held(&mut late).len()), (1, 0));
        drop(other);
        assert_eq!((held(&mut flood).len(), held(&mut late).len()), (0, 1));
        drop(of_flood);
        assert_eq!(held(&mut flood).len(), 1);
    }

    #[test]
    fn place_of_one_that_waits_no_longer_goes_to_the_next() {
        let places = Places::new(1, 100);
        let place = held(&mut enter(&places, pico(1), 1));
        assert_eq!(place.len(), 1);
        drop(enter(&places, pico(2), 3));
        let mut next = enter(&places, None, 1);
        drop(place);
        assert_eq!(held(&mut next).len(), 1);
        // Given, but its receiver is dropped.
        drop(places.enter(pico(5)).unwrap());
        drop(next);
        let state = places.state();
        assert_eq!(
            (state.free, state.room, state.shares.len(), state.turns.len()),
            (1, 100, 0, 0)
        );
    }

    #[test]
    fn waiting_requests_have_a_bound_shared_by_picos() {
        let places = Places::new(0, 8);
        let flood = enter(&places, pico(1), 4);
        assert_eq!(places.enter(pico(1)).err(), Some(Full { waiting: 4 }));
        let other = enter(&places, pico(2), 2);
        assert_eq!(places.enter(pico(2)).err(), Some(Full { waiting: 2 }));
        // Cancelled requests no longer count.
        drop(flood);
        let again = enter(&places, pico(1), 3);
        drop((other, again));
    }
}
