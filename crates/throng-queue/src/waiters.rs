//! The waiters for the other side: threads and tasks alike, as wakers.

use std::task::Waker;

/// The waiting handles, each at most once, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<(u64, Waker)>);

impl Waiters {
    /// Enters a handle, or renews the waker it waits with.
    pub(crate) fn enter(&mut self, handle: u64, waker: &Waker) {
        match self.0.iter_mut().find(|(waiting, _)| *waiting == handle) {
            Some((_, known)) => known.clone_from(waker),
            None => self.0.push((handle, waker.clone())),
        }
    }

    /// Removes a handle. The caller drops its waker after releasing the lock.
    pub(crate) fn leave(&mut self, handle: u64) -> Option<Waker> {
        let place = self.0.iter().position(|(waiting, _)| *waiting == handle)?;
        Some(self.0.remove(place).1)
    }

    /// Removes the one that has waited longest.
    pub(crate) fn first(&mut self) -> Option<Waker> {
        (!self.0.is_empty()).then(|| self.0.remove(0).1)
    }

    /// Takes out all.
    pub(crate) fn all(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.0.drain(..).map(|(_, waker)| waker));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Wakes them all, in order, even if one of them panics.
pub(crate) fn wake(wakers: &mut Vec<Waker>) {
    struct Rest<'a>(&'a mut Vec<Waker>);

    impl Rest<'_> {
        fn wake(&mut self) {
            while let Some(waker) = self.0.pop() {
                waker.wake();
            }
        }
    }

    impl Drop for Rest<'_> {
        fn drop(&mut self) {
            self.wake();
        }
    }

    wakers.reverse();
    Rest(wakers).wake();
}
