//! Operators on arrays as sets. Equal items are found by hash, so that thousands of items do not take quadratic time.

use super::{Given, Result};
use crate::run::Run;
use crate::value::Map;
use crate::{Error, Value};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A set of values, by hash.
#[derive(Default)]
struct Set {
    places: HashMap<u64, Vec<Value>>,
}

/// The base steps to insert or find a value. Each 16 bytes of the value add one step.
const STEPS: u64 = 4;

/// Charges for hashing a value and comparing it with an equal one.
fn hashed(run: &mut Run<'_>, value: &Value) -> std::result::Result<(), Error> {
    run.budget().step(STEPS + value.bytes() / 16)
}

impl Set {
    fn of(run: &mut Run<'_>, values: &[Value]) -> std::result::Result<Set, Error> {
        let mut set = Set::default();
        for value in values {
            set.insert(run, value)?;
        }
        Ok(set)
    }

    /// Inserts a value, and returns true if it is new.
    fn insert(&mut self, run: &mut Run<'_>, value: &Value) -> std::result::Result<bool, Error> {
        hashed(run, value)?;
        let equals = self.places.entry(hash_of(value)).or_default();
        if equals.contains(value) {
            return Ok(false);
        }
        equals.push(value.clone());
        Ok(true)
    }

    fn contains(&self, run: &mut Run<'_>, value: &Value) -> std::result::Result<bool, Error> {
        hashed(run, value)?;
        Ok(self
            .places
            .get(&hash_of(value))
            .is_some_and(|equals| equals.contains(value)))
    }
}

fn hash_of(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Null and undefined are equal.
    let kind = if value.is_null() { &Value::Null } else { value };
    std::mem::discriminant(kind).hash(&mut hasher);
    match value {
        Value::Boolean(boolean) => boolean.hash(&mut hasher),
        // 0 and -0 are equal.
        Value::Number(number) => (number + 0.0).to_bits().hash(&mut hasher),
        Value::String(text) => text.hash(&mut hasher),
        Value::Array(items) => {
            for item in items.iter() {
                hash_of(item).hash(&mut hasher);
            }
        }
        // Independent of the order of keys.
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| {
                let mut hasher = DefaultHasher::new();
                (key, hash_of(value)).hash(&mut hasher);
                hasher.finish()
            });
            entries.fold(0, u64::wrapping_add).hash(&mut hasher);
        }
        Value::Regex(regex) => regex.to_string().hash(&mut hasher),
        Value::Null | Value::Undefined | Value::Function(_) => {}
    }
    hasher.finish()
}

/// Returns the items of an array. Any other value is its own single item.
fn items_of(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.to_vec(),
        other => vec![other],
    }
}

pub(super) fn intersection(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(Value::array(Vec::new()));
    }
    let others = Set::of(run, &items_of(given.take(1)))?;
    let mut seen = Set::default();
    let mut kept = Vec::new();
    for item in items_of(given.take(0)) {
        if others.contains(run, &item)? && seen.insert(run, &item)? {
            kept.push(item);
        }
    }
    Ok(Value::array(kept))
}

pub(super) fn union(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(given.take(0));
    }
    let mut items = items_of(given.take(0));
    items.extend(items_of(given.take(1)));
    only_first(run, items)
}

fn only_first(run: &mut Run<'_>, items: Vec<Value>) -> Result<Value> {
    let mut seen = Set::default();
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        if seen.insert(run, &item)? {
            kept.push(item);
        }
    }
    Ok(Value::array(kept))
}

pub(super) fn difference(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(given.take(0));
    }
    let (left, right) = (items_of(given.take(0)), items_of(given.take(1)));
    Ok(Value::array(without(run, left, &right)?))
}

fn without(run: &mut Run<'_>, left: Vec<Value>, right: &[Value]) -> Result<Vec<Value>> {
    let others = Set::of(run, right)?;
    let mut kept = Vec::new();
    for item in left {
        if !others.contains(run, &item)? {
            kept.push(item);
        }
    }
    Ok(kept)
}

/// True if an array has all items of another.
pub(super) fn has(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let (values, wanted) = (items_of(given.take(0)), items_of(given.take(1)));
    Ok(Value::Boolean(without(run, wanted, &values)?.is_empty()))
}

pub(super) fn unique(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    match given.take(0) {
        Value::Array(items) => only_first(run, items.to_vec()),
        other => Ok(other),
    }
}

/// Groups the items of an array by their text. Returns one of each group and its size, in the order of a JavaScript object.
fn by_text(run: &mut Run<'_>, items: &[Value]) -> Result<Vec<(Value, usize)>> {
    let mut counts: Vec<(Value, usize)> = Vec::new();
    let mut places = Map::default();
    for item in items {
        // Charges for making the text, keeping it, and finding it in a map that keeps its order.
        run.budget().step(2 * STEPS)?;
        hashed(run, item)?;
        let key: Arc<str> = match item {
            Value::Array(_) | Value::Map(_) => Arc::from(item.to_json()),
            other => other.to_text(),
        };
        match places.get(&key) {
            Some(Value::Number(place)) => counts[*place as usize].1 += 1,
            _ => {
                places.insert(key, Value::Number(counts.len() as f64));
                counts.push((item.clone(), 1));
            }
        }
    }
    let places = places.values().filter_map(Value::to_number);
    let places = places.map(|place| place as usize);
    Ok(places.filter_map(|place| counts.get(place).cloned()).collect())
}

pub(super) fn once(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let value = given.take(0);
    let Some(items) = value.as_array() else {
        return Ok(value);
    };
    let found = by_text(run, items)?.into_iter().filter(|(_, count)| *count == 1);
    Ok(Value::array(found.map(|(item, _)| item).collect()))
}

pub(super) fn duplicates(run: &mut Run<'_>, given: Given) -> Result<Value> {
    let items = given.get(0).as_array().unwrap_or_default();
    let found = by_text(run, items)?.into_iter().filter(|(_, count)| *count > 1);
    Ok(Value::array(found.map(|(item, _)| item).collect()))
}
