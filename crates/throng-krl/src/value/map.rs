use super::{Cost, Value};
use indexmap::IndexMap;
use std::sync::Arc;

/// Values by name, in the order of a JavaScript object: names that are array indices first, ascending, then the others as they came.
#[derive(Clone, Debug)]
pub struct Map {
    entries: IndexMap<Arc<str>, Value>,
    /// How many keys are array indices. Without any, the order is that of insertion.
    indices: usize,
    /// What the entries cost; kept by every method that changes them.
    cost: Cost,
}

impl Map {
    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key, none where the key is missing.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Sets the value of a key, which keeps its place if it is there already.
    pub fn insert(&mut self, key: Arc<str>, value: Value) {
        self.cost.add(key.len() + 16, &value);
        let key_bytes = key.len() + 16;
        let is_index = array_index(&key).is_some();
        match self.entries.insert(key, value) {
            Some(old) => self.cost.subtract(key_bytes, &old),
            None => self.indices += usize::from(is_index),
        }
    }

    /// Removes a key; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let value = self.entries.shift_remove(key)?;
        self.cost.subtract(key.len() + 16, &value);
        self.indices -= usize::from(array_index(key).is_some());
        Some(value)
    }

    /// Takes the value of a key out, to be changed and inserted again at its place; null stays.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        let value = std::mem::take(self.entries.get_mut(key)?);
        self.cost.subtract(0, &value);
        self.cost.add(0, &Value::Null);
        Some(value)
    }

    /// Keys with their values, in the order in which the keys came.
    #[must_use]
    pub fn iter(&self) -> Entries<'_> {
        if self.indices == 0 {
            return Entries(Order::AsInserted(self.entries.iter()));
        }
        let mut places: Vec<usize> = (0..self.entries.len()).collect();
        let rank = |place: &usize| self.entries.get_index(*place).and_then(|(key, _)| array_index(key));
        // Stable: keys that are no indices keep their order.
        places.sort_by_key(|place| rank(place).map_or(u64::MAX, u64::from));
        Entries(Order::Sorted {
            map: self,
            places: places.into_iter(),
        })
    }

    /// The keys, in the order in which they came.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.iter().map(|(_, value)| value)
    }
}

/// The array index a key is, if it is one, as JavaScript has it: decimal, without leading zeros, below 2^32 - 1.
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
            entries: IndexMap::new(),
            indices: 0,
            cost: Cost::EMPTY,
        }
    }
}

impl FromIterator<(Arc<str>, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(entries: I) -> Map {
        let entries = entries.into_iter();
        let mut map = Map {
            entries: IndexMap::with_capacity(entries.size_hint().0),
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
        self.len() == other.len() && self.entries.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

/// The entries of a map, in order.
#[derive(Debug)]
pub struct Entries<'a>(Order<'a>);

#[derive(Debug)]
enum Order<'a> {
    AsInserted(indexmap::map::Iter<'a, Arc<str>, Value>),
    Sorted {
        map: &'a Map,
        places: std::vec::IntoIter<usize>,
    },
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a Arc<str>, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Order::AsInserted(entries) => entries.next(),
            Order::Sorted { map, places } => map.entries.get_index(places.next()?),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
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
