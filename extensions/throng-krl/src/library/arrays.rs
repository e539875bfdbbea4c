use super::{Given, Result};
use crate::run::Run;
use crate::{Array, Error, Value};
use std::sync::Arc;

fn array(given: &Given) -> Result<&[Value]> {
    match given.get(0).as_array() {
        Some(items) => Ok(items),
        None => Err(Error::type_error("only works on Arrays").into()),
    }
}

/// Concatenates the items of arrays and other values.
fn concatenated(first: Value, rest: impl IntoIterator<Item = Value>) -> Value {
    let mut array = match first {
        Value::Array(array) => array,
        other => Arc::new(Array::from(vec![other])),
    };
    let items = Arc::make_mut(&mut array);
    for value in rest {
        match value {
            Value::Array(more) => {
                for item in more.iter() {
                    items.push(item.clone());
                }
            }
            other => items.push(other),
        }
    }
    Value::Array(array)
}

pub(super) fn append(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if given.count() == 0 {
        return Ok(Value::array(Vec::new()));
    }
    let first = given.take(0);
    let rest: Vec<Value> = given.values.into_iter().skip(1).take(5).collect();
    let more: usize = rest
        .iter()
        .map(|value| value.as_array().map_or(1, <[Value]>::len))
        .sum();
    run.budget().step(more as u64)?;
    Ok(concatenated(first, rest))
}

pub(super) fn head(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let value = given.take(0);
    Ok(match value.as_array() {
        Some(items) => items.first().cloned().unwrap_or(Value::Undefined),
        None => value,
    })
}

pub(super) fn tail(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let items = given.get(0).as_array().unwrap_or_default();
    Ok(Value::array(items.get(1..).unwrap_or_default().to_vec()))
}

pub(super) fn index(run: &mut Run<'_>, given: Given) -> Result<Value> {
    let items = array(&given)?;
    let wanted = given.get(1);
    for (place, item) in items.iter().enumerate() {
        run.compared(item, wanted)?;
        if item == wanted {
            return Ok(Value::Number(place as f64));
        }
    }
    Ok(Value::Number(-1.0))
}

pub(super) fn join(run: &mut Run<'_>, given: Given) -> Result<Value> {
    let Some(items) = given.get(0).as_array() else {
        return Ok(Value::String(given.get(0).to_text()));
    };
    let separator = if given.get(1).is_null() {
        Arc::from(",")
    } else {
        given.get(1).to_text()
    };
    let mut text = String::new();
    for (place, item) in items.iter().enumerate() {
        let before = text.len();
        if place > 0 {
            text.push_str(&separator);
        }
        text.push_str(&item.text());
        run.budget().allocate((text.len() - before) as u64)?;
    }
    Ok(Value::from(text))
}

pub(super) fn length(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let count = match given.get(0) {
        Value::Array(items) => items.len(),
        Value::Map(map) => map.len(),
        Value::String(text) => text.chars().count(),
        _ => 0,
    };
    Ok(Value::Number(count as f64))
}

pub(super) fn is_empty(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::Boolean(match given.get(0) {
        Value::Array(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => true,
    }))
}

pub(super) fn reverse(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::array(array(&given)?.iter().rev().cloned().collect()))
}

/// Returns an argument as a number, or the error if it is none.
fn number(value: &Value, refused: impl FnOnce(&str) -> String) -> Result<f64> {
    value
        .to_number()
        .ok_or_else(|| Error::type_error(refused(&value.text())).into())
}

/// Returns a place in an array. Like lodash, it counts a negative number from the end.
fn place(number: f64, count: usize) -> usize {
    let all = count as f64;
    let number = if number < 0.0 {
        all + number.trunc()
    } else {
        number.trunc()
    };
    number.clamp(0.0, all) as usize
}

/// Returns the items from one index to another, inclusive. With one index, returns those up to it.
pub(super) fn slice(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let items = array(&given)?;
    if items.is_empty() {
        return Ok(Value::array(Vec::new()));
    }
    if given.count() == 1 {
        return Ok(given.take(0));
    }
    let count = items.len();
    let all = count as f64;
    let first = number(given.get(1), |text| {
        format!("The .slice() operator cannot use {text} as an index")
    })?;
    if given.count() == 2 {
        let kept = if first > all { 0 } else { place(first + 1.0, count) };
        return Ok(Value::array(items[..kept].to_vec()));
    }
    let second = number(given.get(2), |text| {
        format!("The .slice() operator cannot use {text} as the other index")
    })?;
    let (first, second) = (first.min(second), first.max(second));
    if first >= 0.0 && second < all {
        let (from, to) = (place(first, count), place(second + 1.0, count));
        return Ok(Value::array(items[from..to.max(from)].to_vec()));
    }
    Ok(Value::array(Vec::new()))
}

/// Replaces some of the items by others.
pub(super) fn splice(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let items = array(&given)?;
    if items.is_empty() {
        return Ok(Value::array(Vec::new()));
    }
    let count = items.len();
    let all = count as f64;
    let start = number(given.get(1), |text| {
        format!("The .splice() operator cannot use {text}as an index")
    })?;
    let start = start.max(0.0).min(all - 1.0);
    let removed = number(given.get(2), |text| {
        format!("The .splice() operator cannot use {text}as a number of elements")
    })?;
    let removed = if removed < 0.0 || start + removed > all {
        all - start
    } else {
        removed
    };
    let before = Value::array(items[..place(start, count)].to_vec());
    let after = Value::array(items[place(start + removed, count)..].to_vec());
    if given.count() < 4 {
        return Ok(concatenated(before, [after]));
    }
    Ok(concatenated(before, [given.take(3), after]))
}
