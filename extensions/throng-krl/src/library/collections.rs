//! Operators that call a function for each item of an array or a map.

use super::{Given, Result};
use crate::run::Run;
use crate::value::Map;
use crate::{Error, Value};
use std::sync::Arc;

/// Calls a function with each item, its key and the collection, while `step` returns true.
fn each(
    run: &mut Run<'_>,
    collection: &Value,
    function: &Value,
    mut step: impl FnMut(&mut Run<'_>, &Value, &Value, Value) -> Result<bool>,
) -> Result<()> {
    let mut visit = |run: &mut Run<'_>, item: &Value, key: Value| {
        let result = match function {
            // Without a function, the item is its own result.
            function if function.is_null() => item.clone(),
            function => run.call_function(function, &[item.clone(), key.clone(), collection.clone()])?,
        };
        step(run, item, &key, result)
    };
    match collection {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                if !visit(run, item, Value::Number(place as f64))? {
                    break;
                }
            }
        }
        Value::Map(map) => {
            for (key, item) in map.iter() {
                if !visit(run, item, Value::String(Arc::clone(key)))? {
                    break;
                }
            }
        }
        _ => return Err(Error::type_error("only works on collections").into()),
    }
    Ok(())
}

fn every(run: &mut Run<'_>, given: &Given) -> Result<bool> {
    let mut holds = true;
    each(run, given.get(0), function(given)?, |_, _, _, result| {
        holds = result.is_true();
        Ok(holds)
    })?;
    Ok(holds)
}

fn some(run: &mut Run<'_>, given: &Given) -> Result<bool> {
    let mut holds = false;
    each(run, given.get(0), function(given)?, |_, _, _, result| {
        holds = result.is_true();
        Ok(!holds)
    })?;
    Ok(holds)
}

/// Returns the second argument. It must be a function if the collection has items.
fn function(given: &Given) -> Result<&Value> {
    let has_items = match given.get(0) {
        Value::Array(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty(),
        _ => false,
    };
    match given.get(1) {
        function if function.is_null() && has_items => Err(Error::type_error("null is not a function").into()),
        other => Ok(other),
    }
}

pub(super) fn all(run: &mut Run<'_>, given: Given) -> Result<Value> {
    every(run, &given).map(Value::Boolean)
}

pub(super) fn not_all(run: &mut Run<'_>, given: Given) -> Result<Value> {
    every(run, &given).map(|holds| Value::Boolean(!holds))
}

pub(super) fn any(run: &mut Run<'_>, given: Given) -> Result<Value> {
    some(run, &given).map(Value::Boolean)
}

pub(super) fn none(run: &mut Run<'_>, given: Given) -> Result<Value> {
    some(run, &given).map(|holds| Value::Boolean(!holds))
}

pub(super) fn collect(run: &mut Run<'_>, given: Given) -> Result<Value> {
    let mut groups: indexmap::IndexMap<Arc<str>, Vec<Value>> = indexmap::IndexMap::new();
    each(run, given.get(0), given.get(1), |run, item, _, result| {
        run.budget().allocate(24)?;
        groups.entry(result.to_text()).or_default().push(item.clone());
        Ok(true)
    })?;
    Ok(Value::map(
        groups.into_iter().map(|(key, items)| (key, Value::array(items))),
    ))
}

/// Makes a collection of the same shape. `keep` maps each item and the function's result for it to a new item, or drops it.
fn made(given: &Given, run: &mut Run<'_>, keep: impl Fn(&Value, Value) -> Option<Value>) -> Result<Value> {
    let mut items = Vec::new();
    let mut entries = Map::default();
    let is_array = matches!(given.get(0), Value::Array(_));
    each(run, given.get(0), given.get(1), |_, item, key, result| {
        if let Some(value) = keep(item, result) {
            match key {
                Value::String(key) if !is_array => entries.insert(Arc::clone(key), value),
                _ => items.push(value),
            }
        }
        Ok(true)
    })?;
    Ok(if is_array {
        Value::array(items)
    } else {
        Value::from(entries)
    })
}

pub(super) fn filter(run: &mut Run<'_>, given: Given) -> Result<Value> {
    made(&given, run, |item, result| result.is_true().then(|| item.clone()))
}

pub(super) fn map(run: &mut Run<'_>, given: Given) -> Result<Value> {
    made(&given, run, |_, result| Some(result))
}

/// Calls a function with the first items of several arrays, then with their second items, and so on.
pub(super) fn pairwise(run: &mut Run<'_>, given: Given) -> Result<Value> {
    let refused = |message: String| Err(Error::type_error(message).into());
    let Some(arrays) = given.get(0).as_array() else {
        return refused(format!(
            "The .pairwise() operator cannot be called on {}",
            given.get(0).text()
        ));
    };
    if arrays.len() < 2 {
        return refused("The .pairwise() operator needs a longer array".into());
    }
    let function = given.get(1);
    if function.as_function().is_none() {
        return refused(format!(
            "The .pairwise() operator cannot use {} as a function",
            function.text()
        ));
    }
    let item = |array: &Value, place: usize| match array {
        Value::Array(items) => items.get(place).cloned().unwrap_or(Value::Undefined),
        other if place == 0 => other.clone(),
        _ => Value::Undefined,
    };
    let longest = arrays
        .iter()
        .map(|array| array.as_array().map_or(1, <[Value]>::len))
        .max()
        .unwrap_or(0);
    let mut made = Vec::new();
    for place in 0..longest {
        run.budget().step(arrays.len() as u64)?;
        let arguments: Vec<Value> = arrays.iter().map(|array| item(array, place)).collect();
        made.push(run.call_function(function, &arguments)?);
    }
    Ok(Value::array(made))
}

pub(super) fn reduce(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let array = given.take(0);
    let Some(items) = array.as_array() else {
        return Err(Error::type_error("only works on Arrays").into());
    };
    let has_default = given.count() >= 3;
    let default = given.take(2);
    let function = given.get(1);
    if items.is_empty() {
        return Ok(if has_default { default } else { Value::Number(0.0) });
    }
    if function.as_function().is_none() && (!has_default || items.len() > 1) {
        let message = format!("The .reduce() operator cannot use {} as a function", function.text());
        return Err(Error::value_error(message).into());
    }
    let (mut result, from) = if has_default {
        (default, 0)
    } else {
        (items[0].clone(), 1)
    };
    for (place, item) in items.iter().enumerate().skip(from) {
        let place = Value::Number(place as f64);
        let before = std::mem::take(&mut result);
        result = run.call_function(function, &[before, item.clone(), place, array.clone()])?;
    }
    Ok(result)
}
