//! Counted places: no more are taken than exist.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A bounded number of places.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// A place, until this is dropped.
pub(crate) struct Taken {
    of: Arc<AtomicUsize>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        let taken = Arc::default();
        Self { taken, most }
    }

    /// Takes one, if one is free.
    pub(crate) fn take(&self) -> Option<Taken> {
        if self.taken.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let of = self.taken.clone();
        Some(Taken { of })
    }

    /// Returns the number of places, taken or free.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns the number of places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_again_when_free() {
        let places = Places::new(2);
        let (first, _second) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert!(places.take().is_some());
    }
}
