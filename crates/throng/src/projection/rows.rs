//! A read model's rows, as a projection sees them while it applies an event.

use super::place::PLACE_KEY;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::{BTreeSet, HashMap};

/// Longest key of a row, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 1 << 10;
/// Largest value of a row, in bytes.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 20;

/// The reason why an event was not applied.
#[derive(Debug, PartialEq, Eq)]
pub struct Interrupt(pub(super) Why);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A row has to be fetched first.
    Missing,
    /// The event cannot be applied at all.
    Poison(String),
}

impl Interrupt {
    /// Returns the interrupt for an event that cannot be applied: the projection stops before its commit, with this reason.
    #[must_use]
    pub fn poison(reason: impl Into<String>) -> Self {
        Self(Why::Poison(reason.into()))
    }
}

/// Rows in memory, each with its present value and whether it has changed since it was written.
#[derive(Debug, Default)]
pub(crate) struct RowCache {
    values: HashMap<Vec<u8>, Option<Vec<u8>>>,
    changed: BTreeSet<Vec<u8>>,
    bytes: usize,
}

/// The approximate memory of a row besides its bytes.
const ROW_BYTES: usize = 80;

impl RowCache {
    pub(super) fn fetched(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += ROW_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
        self.values.insert(key, value);
    }

    /// True if the row is in memory, even as one that does not exist.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key)
    }

    fn change(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        if !self.changed.contains(&key) {
            self.changed.insert(key.clone());
        }
        self.fetched(key, value);
    }

    /// Takes the changes since the last call, in the order of the keys.
    pub(super) fn changes(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let changed = std::mem::take(&mut self.changed);
        let with_value = |key: Vec<u8>| {
            let value = self.values.get(&key).cloned().flatten();
            (key, value)
        };
        changed.into_iter().map(with_value).collect()
    }

    /// Applies the changes of one event.
    pub(super) fn apply(&mut self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for (key, value) in changes {
            self.change(key, value);
        }
    }

    /// Drops every row from memory. They are read from the views again when needed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets all if it takes more than this. Only between batches.
    pub(super) fn shrink(&mut self, bytes_max: usize) {
        if self.bytes > bytes_max {
            self.clear();
        }
    }
}

/// A read model's rows while an event is applied: keys of 1 byte to 1 KiB, values of at most 16 MiB. The changes of an event are
/// visible to the next one, and count only if the event is applied completely.
#[derive(Debug)]
pub struct Rows<'a> {
    cache: &'a RowCache,
    own: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    missing: Vec<Vec<u8>>,
    unfit: Option<String>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(cache: &'a RowCache) -> Self {
        Self {
            cache,
            own: Vec::new(),
            missing: Vec::new(),
            unfit: None,
        }
    }

    /// Returns a row's value; `None` if there is no such row.
    ///
    /// # Errors
    /// [`Interrupt`]: the row is not in memory. Pass it on with `?`; the event is applied again once the row has been fetched.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, Interrupt> {
        let key = key.as_ref();
        // Of several changes of one key, the last counts.
        if let Some(at) = self.own.iter().rposition(|(changed, _)| changed == key) {
            return Ok(self.own[at].1.as_deref());
        }
        match self.cache.values.get(key) {
            Some(value) => Ok(value.as_deref()),
            None => {
                self.missing.push(key.to_vec());
                Err(Interrupt(Why::Missing))
            }
        }
    }

    /// Returns a row's value, parsed as JSON.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get), and a poison if the value is not such JSON.
    pub fn json<T: DeserializeOwned>(&mut self, key: impl AsRef<[u8]>) -> Result<Option<T>, Interrupt> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        serde_json::from_slice(value)
            .map(Some)
            .map_err(|why| Interrupt::poison(format!("a row cannot be read: {why}")))
    }

    /// Sets a row.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) {
        let (key, value) = (key.as_ref().to_vec(), value.into());
        if key == PLACE_KEY {
            self.unfit = Some("a key of 0 bytes, at least 1 is needed".into());
        }
        for (what, found, limit) in [
            ("a key", key.len(), KEY_BYTES_MAX),
            ("a value", value.len(), VALUE_BYTES_MAX),
        ] {
            if found > limit {
                self.unfit = Some(format!("{what} of {found} bytes, at most {limit} are kept"));
            }
        }
        self.own.push((key, Some(value)));
    }

    /// Sets a row to a value as JSON.
    ///
    /// # Errors
    /// A poison if the value cannot be written as JSON.
    pub fn put_json(&mut self, key: impl AsRef<[u8]>, value: &impl Serialize) -> Result<(), Interrupt> {
        let value = serde_json::to_vec(value)
            .map_err(|why| Interrupt::poison(format!("a row cannot be written as JSON: {why}")))?;
        self.put(key, value);
        Ok(())
    }

    /// Removes a row.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) {
        if key.as_ref() != PLACE_KEY {
            self.own.push((key.as_ref().to_vec(), None));
        }
    }

    /// Returns the outcome of applying an event to these rows.
    pub(super) fn finish(self, applied: Result<(), Interrupt>) -> Outcome {
        match (applied, self.unfit) {
            (Err(Interrupt(Why::Poison(reason))), _) | (Ok(()), Some(reason)) => Outcome::Poison(reason),
            // A row is missing, even if the projection ignored the interrupt: its changes then rest on nothing.
            _ if !self.missing.is_empty() => Outcome::Missing(self.missing),
            (Err(Interrupt(Why::Missing)), _) => Outcome::Poison("it was interrupted for no row".into()),
            (Ok(()), None) => Outcome::Changes(self.own),
        }
    }
}

/// The outcome of an event: its changes, the rows to fetch first, or the reason why it cannot be applied.
pub(super) enum Outcome {
    Changes(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Missing(Vec<Vec<u8>>),
    Poison(String),
}
