//! Read models in memory.

use crate::{Applied, Error, Later, ViewBatch, ViewOffset, ViewRange, ViewRow, Views};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Read models in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryViews {
    views: Arc<Mutex<BTreeMap<String, View>>>,
}

#[derive(Debug)]
struct View {
    offset: ViewOffset,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryViews {
    /// Returns an empty place.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn views(&self) -> MutexGuard<'_, BTreeMap<String, View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> Later<'a, Result<T, Error>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Views for MemoryViews {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        ready(self.views().get(view).map(|view| view.offset))
    }

    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        let mut views = self.views();
        let found = views.get(view).map(|view| view.offset);
        if found != batch.expected {
            return ready(Applied::Moved(found));
        }
        let view = views.entry(view.to_owned()).or_insert_with(|| View {
            offset: batch.offset,
            rows: BTreeMap::new(),
        });
        view.offset = batch.offset;
        for (key, value) in batch.changes {
            match value {
                Some(value) => view.rows.insert(key, value),
                None => view.rows.remove(&key),
            };
        }
        ready(Applied::Done)
    }

    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        let views = self.views();
        let view = views.get(view);
        ready(
            keys.iter()
                .map(|key| view.and_then(|view| view.rows.get(key).cloned()))
                .collect(),
        )
    }

    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        let views = self.views();
        let (Some(view), false) = (views.get(view), range.is_empty()) else {
            return ready(Vec::new());
        };
        let mut bytes = 0;
        let rows = view
            .rows
            .range((range.from, range.to))
            .take(range.rows_max)
            .take_while(|(key, value)| {
                let is_first = bytes == 0;
                bytes += key.len() + value.len();
                is_first || bytes <= range.bytes_max
            });
        ready(rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        self.views().remove(view);
        ready(())
    }

    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        ready(self.views().keys().cloned().collect())
    }
}
