use super::{Given, Result};
use crate::run::{Run, checked_path};
use crate::value::{array_as_map, path_of};
use crate::{Error, Map, Value};
use std::sync::Arc;

type Path = Vec<Arc<str>>;

fn path(value: &Value) -> std::result::Result<Path, Error> {
    let path = path_of(value);
    checked_path(&path)?;
    Ok(path)
}

/// Returns the value at the second argument's path, or the first argument itself without one.
fn inner(given: &Given) -> Result<Value> {
    let value = given.get(0);
    if !matches!(value, Value::Array(_) | Value::Map(_)) {
        return Ok(Value::Null);
    }
    if given.get(1).is_true() {
        below(value, given.get(1))
    } else {
        Ok(value.clone())
    }
}

/// Returns the value at a path; null for an empty path.
fn below(value: &Value, keys: &Value) -> Result<Value> {
    let path = path(keys)?;
    Ok(if path.is_empty() {
        Value::Null
    } else {
        value.at_path(&path)
    })
}

pub(super) fn keys(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let count = |count: usize| (0..count).map(|place| Value::from(place.to_string())).collect();
    Ok(Value::array(match inner(&given)? {
        Value::Map(map) => map.keys().cloned().map(Value::String).collect(),
        Value::Array(items) => count(items.len()),
        Value::String(text) => count(text.chars().count()),
        _ => Vec::new(),
    }))
}

pub(super) fn values(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(match inner(&given)? {
        Value::Map(map) => Value::array(map.values().cloned().collect()),
        Value::Array(items) => Value::Array(items),
        Value::String(text) => Value::array(
            text.chars()
                .map(|character| Value::from(character.to_string()))
                .collect(),
        ),
        _ => Value::array(Vec::new()),
    })
}

pub(super) fn get(_: &mut Run<'_>, given: Given) -> Result<Value> {
    below(given.get(0), given.get(1))
}

pub(super) fn set(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let path = path(given.get(1))?;
    let mut value = given.take(0);
    if !matches!(value, Value::Array(_) | Value::Map(_)) {
        value = Value::from(Map::default());
    }
    if value.has_place_for(&path) {
        value.set_at_path(&path, given.take(2));
    }
    Ok(value)
}

pub(super) fn delete(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let path = path(given.get(1))?;
    let mut value = given.take(0);
    value.remove_at_path(&path);
    Ok(value)
}

/// Sets the value at a path. Without a path, merges a map into a map.
pub(super) fn put(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let mut value = given.take(0);
    if !matches!(value, Value::Array(_) | Value::Map(_)) || given.count() < 2 {
        return Ok(value);
    }
    let (keys, new) = if given.count() < 3 {
        (Path::new(), given.take(1))
    } else {
        (path(given.get(1))?, given.take(2))
    };
    if !keys.is_empty() {
        put_below(&mut value, &keys, new);
        return Ok(value);
    }
    match (&mut value, &new) {
        (Value::Map(map), Value::Map(new)) => {
            run.budget().step(new.len() as u64)?;
            let map = Arc::make_mut(map);
            for (key, value) in new.iter() {
                map.insert(Arc::clone(key), value.clone());
            }
            Ok(value)
        }
        (Value::Array(array), Value::Array(new)) => {
            let array = Arc::make_mut(array);
            for (place, item) in new.iter().enumerate() {
                array.set(place, item.clone());
            }
            Ok(value)
        }
        _ => Ok(new),
    }
}

/// Works like `set` in an array or a map, with one difference: a missing value on the way always becomes a map. So does an array without
/// such an index.
fn put_below(value: &mut Value, keys: &[Arc<str>], new: Value) {
    let Some((key, rest)) = keys.split_first() else {
        *value = new;
        return;
    };
    let at = std::slice::from_ref(key);
    if !value.has_place_for(at) {
        return;
    }
    let Some(next) = rest.first() else {
        value.set_at_path(at, new);
        return;
    };
    let mut child = match value.child(key) {
        Some(Value::Array(array)) if !is_near(array, next) => Value::from(array_as_map(array)),
        Some(child @ (Value::Array(_) | Value::Map(_))) => child.clone(),
        _ => Value::from(Map::default()),
    };
    // Without this, the parent would share the child that is changed now, and the change would copy it.
    value.set_at_path(at, Value::Null);
    put_below(&mut child, rest, new);
    value.set_at_path(at, child);
}

/// True if the number at the start of a key is an index of the array, or the next index.
fn is_near(array: &[Value], key: &str) -> bool {
    let end = key.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(key.len());
    key[..end].parse::<usize>().is_ok_and(|index| index <= array.len())
}
