use super::{Given, Result};
use crate::run::{Run, order, text_order};
use crate::{Array, Value};
use std::sync::Arc;

/// Sorts an array: as texts (`default`, `reverse`), as numbers (`numeric`, `ciremun`), or by a comparing function.
pub(super) fn sort(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let value = given.take(0);
    let Value::Array(array) = value else {
        return Ok(value);
    };
    // The approximate number of comparisons of a sort.
    let comparisons = array.len() as u64 * (u64::from(usize::BITS - array.len().leading_zeros()) + 1);
    run.budget().step(comparisons)?;
    let by = given.get(1);
    // Undefined items go to the end in every order.
    let (undefined, mut items): (Vec<Value>, Vec<Value>) =
        array.iter().cloned().partition(|item| matches!(item, Value::Undefined));
    match by.as_str() {
        Some("numeric") => items.sort_by(order),
        Some("ciremun") => items.sort_by(|left, right| order(right, left)),
        Some("reverse") => items.sort_by(|left, right| text_order(right, left)),
        _ if by.as_function().is_some() => items = sort_by(run, items, by)?,
        _ => items.sort_by(text_order),
    }
    items.extend(undefined);
    Ok(Value::Array(Arc::new(Array::from(items))))
}

/// Sorts by a function that may fail. Merge sort calls it seldom and keeps the order of equal items.
fn sort_by(run: &mut Run<'_>, items: Vec<Value>, function: &Value) -> Result<Vec<Value>> {
    let mut runs: Vec<Vec<Value>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(left) = pairs.next() {
            merged.push(match pairs.next() {
                Some(right) => merge(run, left, right, function)?,
                None => left,
            });
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}

fn merge(run: &mut Run<'_>, left: Vec<Value>, right: Vec<Value>, function: &Value) -> Result<Vec<Value>> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(first), Some(second)) = (left.peek(), right.peek()) {
        let result = run.call_function(function, &[first.clone(), second.clone()])?;
        // As JavaScript compares with 0: undefined and NaN are not below it.
        let number = if matches!(result, Value::Undefined) {
            None
        } else {
            result.to_number()
        };
        let takes_right = number.is_none_or(|number| number > 0.0);
        merged.extend(if takes_right { right.next() } else { left.next() });
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}
