use super::{Cost, Value};
use indexmap::IndexMap;
use std::sync::Arc;

/// A map from names to values, in the order of a JavaScript object: array indices first, ascending, then other names in order of insertion.
#[derive(Clone, Debug)]
pub struct Map {
    entries: Storage,
    /// The number of keys that are array indices.
    indices: usize,
    /// The cost of the entries. Every method that changes them updates it.
    cost: Cost,
}

/// The most entries compared one by one rather than hashed. Most maps are small and short-lived: attributes, directives, paths.
const FEW: usize = 16;

#[derive(Clone, Debug)]
enum Storage {
    /// At most [`FEW`] entries, in their order.
    Few(Vec<(Arc<str>, Value)>),
    /// More entries, in the order of insertion.
    Many(IndexMap<Arc<str>, Value>),
}

impl Storage {
    fn with_capacity(count: usize) -> Self {
        if count <= FEW {
            Storage::Few(Vec::with_capacity(count))
        } else {
            Storage::Many(IndexMap::with_capacity(count))
        }
    }
}

fn place(few: &[(Arc<str>, Value)], key: &str) -> Option<usize> {
    few.iter().position(|(name, _)| **name == *key)
}

impl Map {
    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.entries {
            Storage::Few(few) => few.len(),
            Storage::Many(many) => many.len(),
        }
    }

    /// True if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a key, or `None` if the key is missing.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        match &self.entries {
            Storage::Few(few) => Some(&few.get(place(few, key)?)?.1),
            Storage::Many(many) => many.get(key),
        }
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        match &mut self.entries {
            Storage::Few(few) => {
                let place = place(few, key)?;
                Some(&mut few.get_mut(place)?.1)
            }
            Storage::Many(many) => many.get_mut(key),
        }
    }

    /// Sets the value of a key. An existing key keeps its place.
    pub fn insert(&mut self, key: Arc<str>, value: Value) {
        let key_bytes = key.len() + 16;
        self.cost.add(key_bytes, &value);
        if let Some(known) = self.get_mut(&key) {
            let old = std::mem::replace(known, value);
            self.cost.subtract(key_bytes, &old);
            return;
        }
        let index = array_index(&key);
        match &mut self.entries {
            Storage::Few(few) if few.len() < FEW => {
                let place = index.map_or(few.len(), |index| {
                    few[..self.indices].partition_point(|(name, _)| array_index(name) < Some(index))
                });
                few.insert(place, (key, value));
            }
            Storage::Few(few) => {
                let mut many: IndexMap<_, _> = few.drain(..).collect();
                many.insert(key, value);
                self.entries = Storage::Many(many);
            }
            Storage::Many(many) => drop(many.insert(key, value)),
        }
        self.indices += usize::from(index.is_some());
    }

    /// Removes a key. The others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let value = match &mut self.entries {
            Storage::Few(few) => few.remove(place(few, key)?).1,
            Storage::Many(many) => many.shift_remove(key)?,
        };
        self.cost.subtract(key.len() + 16, &value);
        self.indices -= usize::from(array_index(key).is_some());
        Some(value)
    }

    /// Takes out the value of a key, so that it can be changed and inserted again. Leaves null, so the key keeps its place.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        let value = std::mem::take(self.get_mut(key)?);
        self.cost.subtract(0, &value);
        self.cost.add(0, &Value::Null);
        Some(value)
    }

    /// Returns the keys and values, in order.
    #[must_use]
    pub fn iter(&self) -> Entries<'_> {
        let many = match &self.entries {
            Storage::Few(few) => return Entries(Order::Few(few.iter())),
            Storage::Many(many) => many,
        };
        if self.indices == 0 {
            return Entries(Order::AsInserted(many.iter()));
        }
        let rank = |key: &str| array_index(key).map_or(u64::MAX, u64::from);
        // Sorted by rank, then by insertion.
        let mut places: Vec<_> = many.keys().enumerate().map(|(place, key)| (rank(key), place)).collect();
        places.sort_unstable();
        Entries(Order::Sorted {
            many,
            places: places.into_iter(),
        })
    }

    /// Returns the keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns the values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.iter().map(|(_, value)| value)
    }
}

/// Parses a key as a JavaScript array index: decimal, without leading zeros, below 2^32 - 1.
pub(super) fn array_index(key: &str) -> Option<u32> {
    let bytes = key.as_bytes();
    let is_canonical =
        matches!(bytes, [b'0'] | [b'1'..=b'9', ..]) && bytes.len() <= 10 && bytes.iter().all(u8::is_ascii_digit);
    if !is_canonical {
        return None;
    }
    key.parse().ok().filter(|index| *index != u32::MAX)
}

impl Default for Map {
    fn default() -> Map {
        Map {
            entries: Storage::Few(Vec::new()),
            indices: 0,
            cost: Cost::EMPTY,
        }
    }
}

impl FromIterator<(Arc<str>, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(entries: I) -> Map {
        let entries = entries.into_iter();
        let mut map = Map {
            entries: Storage::with_capacity(entries.size_hint().0),
            ..Map::default()
        };
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        let is_same = |(key, value): (&Arc<str>, &Value)| other.get(key) == Some(value);
        self.len() == other.len()
            && match &self.entries {
                Storage::Few(few) => few.iter().all(|(key, value)| is_same((key, value))),
                Storage::Many(many) => many.iter().all(is_same),
            }
    }
}

/// The entries of a map, in order.
#[derive(Debug)]
pub struct Entries<'a>(Order<'a>);

#[derive(Debug)]
enum Order<'a> {
    Few(std::slice::Iter<'a, (Arc<str>, Value)>),
    AsInserted(indexmap::map::Iter<'a, Arc<str>, Value>),
    Sorted {
        many: &'a IndexMap<Arc<str>, Value>,
        places: std::vec::IntoIter<(u64, usize)>,
    },
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a Arc<str>, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Order::Few(entries) => entries.next().map(|(key, value)| (key, value)),
            Order::AsInserted(entries) => entries.next(),
            Order::Sorted { many, places } => many.get_index(places.next()?.1),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Order::Few(entries) => entries.size_hint(),
            Order::AsInserted(entries) => entries.size_hint(),
            Order::Sorted { places, .. } => places.size_hint(),
        }
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a Arc<str>, &'a Value);
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow, simple model of a JavaScript object.
    #[derive(Default)]
    struct Object(Vec<(String, Value)>);

    impl Object {
        fn insert(&mut self, key: &str, value: Value) {
            match self.0.iter_mut().find(|(name, _)| name == key) {
                Some(entry) => entry.1 = value,
                None => self.0.push((key.to_owned(), value)),
            }
        }

        fn entries(&self) -> Vec<(String, Value)> {
            let mut entries = self.0.clone();
            entries.sort_by_key(|(key, _)| array_index(key).map_or(u64::MAX, u64::from));
            entries
        }
    }

    fn entries(map: &Map) -> Vec<(String, Value)> {
        map.iter()
            .map(|(key, value)| (key.to_string(), value.clone()))
            .collect()
    }

    #[test]
    fn entries_have_the_order_of_a_javascript_object_at_any_size() {
        let names = ["b", "10", "a", "2", "01", "0", "-1", "4294967295", "4294967294"];
        let more: Vec<String> = (0..2 * FEW).map(|number| format!("{}", number * 7 % 31)).collect();
        let keys: Vec<&str> = names.iter().copied().chain(more.iter().map(String::as_str)).collect();
        let (mut map, mut object) = (Map::default(), Object::default());
        for (number, key) in keys.iter().enumerate() {
            map.insert((*key).into(), (number as f64).into());
            object.insert(key, (number as f64).into());
            assert_eq!(entries(&map), object.entries());
            let collected: Map = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!((&collected, collected.cost()), (&map, map.cost()));
        }
        for key in keys {
            object.0.retain(|(name, _)| name != key);
            map.remove(key);
            assert_eq!(entries(&map), object.entries());
            assert!(map.get(key).is_none());
        }
        assert_eq!((map.len(), map.cost()), (0, Cost::EMPTY));
    }
}
