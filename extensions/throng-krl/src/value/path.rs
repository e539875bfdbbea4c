//! Access to a value by a path of keys, for `{[...]}`, `get`, `set`, `put`, `delete` and entity variables.

use super::map::array_index;
use super::{Array, Map, Value};
use std::sync::Arc;

/// Returns the keys of a path: the items of an array as texts, or any other value as the only key.
pub(crate) fn path_of(path: &Value) -> Vec<Arc<str>> {
    match path {
        Value::Array(keys) => keys.iter().map(Value::to_text).collect(),
        key => vec![key.to_text()],
    }
}

/// Parses a key as an array index.
fn index_of(key: &str) -> Option<usize> {
    array_index(key).and_then(|index| usize::try_from(index).ok())
}

impl Value {
    /// Returns the value at a key of a map or an index of an array.
    #[must_use]
    pub fn child(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Array(array) => array.get(index_of(key)?),
            Value::Map(map) => map.get(key),
            _ => None,
        }
    }

    /// Returns the value at the end of a path; null if there is none or it is undefined.
    #[must_use]
    pub fn at_path(&self, path: &[Arc<str>]) -> Value {
        let found = path.iter().try_fold(self, |value, key| value.child(key));
        found.filter(|value| !value.is_null()).cloned().unwrap_or_default()
    }

    /// Tells whether a value can be set at the end of a path. In an array only indices can be set; any other key is lost, as in
    /// pico-engine.
    #[must_use]
    pub fn has_place_for(&self, path: &[Arc<str>]) -> bool {
        let mut value = Some(self);
        path.iter().all(|key| {
            let has = !matches!(value, Some(Value::Array(_))) || index_of(key).is_some();
            value = value.and_then(|value| value.child(key));
            has
        })
    }

    /// Sets the value at the end of a path. Missing values on the way are created: an array if the next key is an index, else a map. Only
    /// shared values are copied. A value that is neither array nor map is replaced by a map. An empty path changes nothing.
    pub fn set_at_path(&mut self, path: &[Arc<str>], value: Value) {
        if path.is_empty() {
            return;
        }
        if !matches!(self, Value::Array(_) | Value::Map(_)) {
            *self = Value::from(Map::default());
        }
        self.set_below(path, value);
    }

    fn set_below(&mut self, path: &[Arc<str>], value: Value) {
        let Some((key, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        // An index far beyond the end would fill the array with nulls, so the array becomes a map.
        let fits = |array: &Array| index_of(key).is_some_and(|index| index <= array.len() + 1000);
        match self {
            Value::Map(_) => {}
            Value::Array(array) if fits(array) => {}
            Value::Array(array) => *self = Value::from(array_as_map(array)),
            _ if index_of(key).is_some_and(|index| index <= 1000) => *self = Value::array(Vec::new()),
            _ => *self = Value::from(Map::default()),
        }
        match self {
            Value::Array(array) => {
                let array = Arc::make_mut(array);
                let index = index_of(key).unwrap_or(0);
                let mut child = array.take(index);
                child.set_below(rest, value);
                array.set(index, child);
            }
            Value::Map(map) => {
                let map = Arc::make_mut(map);
                let mut child = map.take(key).unwrap_or_default();
                child.set_below(rest, value);
                map.insert(Arc::clone(key), child);
            }
            _ => {}
        }
    }

    /// Removes the value at the end of a path. In an array, null takes its place.
    pub fn remove_at_path(&mut self, path: &[Arc<str>]) {
        let Some((key, rest)) = path.split_first() else {
            return;
        };
        if self.child(key).is_none() {
            return;
        }
        match self {
            Value::Array(array) => {
                let array = Arc::make_mut(array);
                let Some(index) = index_of(key) else { return };
                let mut child = array.take(index);
                if rest.is_empty() {
                    child = Value::Null;
                }
                child.remove_at_path(rest);
                array.set(index, child);
            }
            Value::Map(map) => {
                let map = Arc::make_mut(map);
                if rest.is_empty() {
                    map.remove(key);
                } else if let Some(mut child) = map.take(key) {
                    child.remove_at_path(rest);
                    map.insert(Arc::clone(key), child);
                }
            }
            _ => {}
        }
    }
}

/// Returns an array's items by their indices.
pub(crate) fn array_as_map(array: &[Value]) -> Map {
    let entries = array.iter().enumerate();
    entries
        .map(|(index, item)| (Arc::from(index.to_string()), item.clone()))
        .collect()
}
