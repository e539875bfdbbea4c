//! What all loops of a gateway share.

use crate::{Limits, kinds::Kinds, metrics::Metrics, openapi};
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use throng::Engine;

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) kinds: Kinds,
    /// The OpenAPI document.
    pub(crate) openapi: Bytes,
    /// Of connections.
    pub(crate) places: Places,
    /// Of live streams.
    pub(crate) live: Places,
}

impl Shared {
    pub(crate) fn new(engine: Engine, limits: Limits, about: &openapi::About) -> Self {
        let (places, live) = (Places::new(limits.connections_max), Places::new(limits.live_max));
        let metrics = Metrics::register(&engine, places.clone(), live.clone());
        let described = openapi::describe(engine.registry(), about);
        Self {
            kinds: described.kinds,
            openapi: described.document,
            metrics,
            places,
            live,
            limits,
            engine,
        }
    }
}

/// A bounded number of places.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// One of them, until it is dropped.
pub(crate) struct Taken(Arc<AtomicUsize>);

impl Places {
    fn new(most: usize) -> Self {
        Self {
            taken: Arc::default(),
            most,
        }
    }

    /// Takes one, if one is free.
    pub(crate) fn take(&self) -> Option<Taken> {
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.most {
            return Some(Taken(self.taken.clone()));
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_up_to_their_number_and_again_when_one_is_free() {
        let places = Places::new(2);
        let (first, _second) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert!(places.take().is_some());
    }
}
