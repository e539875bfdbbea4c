//! Interned values: one copy of each value that a million picos share.

use std::{
    borrow::Borrow,
    collections::HashSet,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

/// A table that keeps one copy of each value. Each time it has doubled, unused values are dropped.
pub(crate) struct Interned<T: ?Sized> {
    table: Mutex<Option<Table<T>>>,
}

struct Table<T: ?Sized> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
}

const SWEEP_AT_FIRST: usize = 1_024;

impl<T: Eq + Hash + ?Sized> Interned<T> {
    pub(crate) const fn new() -> Self {
        Self {
            table: Mutex::new(None),
        }
    }

    /// Returns the single copy of this value.
    pub(crate) fn get(&self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.get_or_insert_with(|| Table {
            values: HashSet::new(),
            sweep_at: SWEEP_AT_FIRST,
        });
        if let Some(known) = table.values.get(value.borrow()) {
            return known.clone();
        }
        if table.values.len() >= table.sweep_at {
            table.values.retain(|value| Arc::strong_count(value) > 1);
            table.sweep_at = (table.values.len() * 2).max(SWEEP_AT_FIRST);
        }
        let value: Arc<T> = value.into();
        table.values.insert(value.clone());
        value
    }
}

/// Serialization of interned names of rulesets and variables. They are written as text and shared in memory.
pub(crate) mod name {
    use super::Interned;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::{borrow::Cow, sync::Arc};

    static NAMES: Interned<str> = Interned::new();

    pub(crate) fn intern(text: &str) -> Arc<str> {
        NAMES.get(text)
    }

    pub(crate) fn serialize<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(name)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        Cow::<'de, str>::deserialize(deserializer).map(|text| intern(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        static NUMBERS: Interned<usize> = Interned::new();
        let kept = NUMBERS.get(1);
        assert!(Arc::ptr_eq(&kept, &NUMBERS.get(1)));
        for number in 2..=3 * SWEEP_AT_FIRST {
            NUMBERS.get(number);
        }
        let count = NUMBERS.table.lock().unwrap().as_ref().unwrap().values.len();
        assert!(count <= SWEEP_AT_FIRST + 1, "{count}");
        assert!(Arc::ptr_eq(&kept, &NUMBERS.get(1)));
    }
}
