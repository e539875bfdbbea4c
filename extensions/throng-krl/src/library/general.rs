use super::{Given, Result};
use crate::host::Level;
use crate::run::Run;
use crate::value::{Regex, format_number};
use crate::{Error, Value};
use std::sync::Arc;

/// The most items of a range.
const RANGE_MAX: f64 = 1_000_000.0;

pub(super) fn negate(_: &mut Run<'_>, given: Given) -> Result<Value> {
    match given.get(0).to_number() {
        Some(number) => Ok(Value::number(-number)),
        None => Err(Error::type_error(format!("Cannot negate {}", given.get(0).text())).into()),
    }
}

pub(super) fn is_null(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::Boolean(given.get(0).is_null()))
}

pub(super) fn type_of(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::from(given.get(0).type_name()))
}

/// The operator `as`: converts a value to another type; null if that is impossible.
pub(super) fn convert(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(given.take(0));
    }
    let (value, wanted) = (given.get(0), given.get(1).text());
    let found = value.type_name();
    if found == wanted {
        return Ok(value.clone());
    }
    match &*wanted {
        "Boolean" => Ok(Value::Boolean(value.as_str() != Some("false") && value.is_true())),
        "String" => Ok(Value::String(value.to_text())),
        "Number" => Ok(value.to_number().map_or(Value::Null, Value::Number)),
        "Hex" => Ok(to_hex(value)),
        "RegExp" => to_regex(value),
        _ => {
            let text = value.text();
            let message = format!("Cannot use the .as(\"{wanted}\") operator with {text} (type {found})");
            Err(Error::type_error(message).into())
        }
    }
}

fn to_hex(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 => {
            let sign = if *number < 0.0 { "-" } else { "" };
            Value::from(format!("{sign}{:x}", (number.abs() as i64)))
        }
        Value::Number(number) => Value::from(format_number(*number)),
        Value::Boolean(_) | Value::String(_) => Value::String(value.to_text()),
        _ => Value::Null,
    }
}

fn to_regex(value: &Value) -> Result<Value> {
    let text = value.text();
    let is_type_name = !matches!(value, Value::String(_))
        && text.starts_with('[')
        && text.ends_with(']')
        && text[1..text.len() - 1].bytes().all(|byte| byte.is_ascii_alphabetic());
    let source = if is_type_name {
        format!("\\[{}\\]", &text[1..text.len() - 1])
    } else {
        text.into_owned()
    };
    match Regex::new(&source, "") {
        Ok(regex) => Ok(Value::Regex(Arc::new(regex))),
        Err(error) => Err(Error::value_error(error.to_string()).into()),
    }
}

pub(super) fn klog(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let message = match given.get(1) {
        message if message.is_null() => Arc::from("klog"),
        message => message.to_text(),
    };
    run.log(Level::Klog, message, given.get(0).clone());
    Ok(given.take(0))
}

pub(super) fn defaults_to(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if !given.get(0).is_null() {
        return Ok(given.take(0));
    }
    if !given.get(2).is_null() {
        let message = format!("[DEFAULTSTO] {}", given.get(2).text());
        run.log(Level::Debug, Arc::from(message), Value::Null);
    }
    Ok(given.take(1))
}

pub(super) fn decode(_: &mut Run<'_>, mut given: Given) -> Result<Value> {
    let value = given.take(0);
    let decoded = value.as_str().and_then(Value::from_json);
    Ok(decoded.unwrap_or(value))
}

pub(super) fn encode(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let indent = given.get(1);
    let indent = match indent {
        Value::Number(number) => *number,
        other => {
            let digits: String = other
                .text()
                .trim_start()
                .chars()
                .take_while(char::is_ascii_digit)
                .take(3)
                .collect();
            digits.parse().unwrap_or(0.0)
        }
    };
    let value = given.get(0);
    if indent < 1.0 {
        return Ok(Value::from(value.to_json()));
    }
    let indent = indent.min(10.0) as usize;
    Ok(Value::from(value.to_json_indented(indent)))
}

/// Replaces `%d` by a number and `%s` by a text. A backslash escapes them.
pub(super) fn sprintf(run: &mut Run<'_>, given: Given) -> Result<Value> {
    if given.get(1).is_null() {
        return Ok(Value::from(""));
    }
    let template = given.get(1).to_text();
    let value = given.get(0);
    let specifier = match value {
        Value::Number(number) if number.is_finite() => "%d",
        Value::String(_) => "%s",
        _ => return Ok(Value::String(template)),
    };
    let value = value.text();
    let places = template.matches(specifier).count();
    run.budget().allocate((places * value.len() + template.len()) as u64)?;
    let parts = template.split("\\\\").map(|part| {
        let mut text = String::new();
        let mut rest = part;
        // A specifier directly behind another one is plain text, as in the original.
        let mut is_free = true;
        while let Some(at) = rest.find(specifier) {
            let before = &rest[..at];
            let is_placed = if before.is_empty() {
                is_free
            } else {
                !before.ends_with('\\')
            };
            text.push_str(before);
            text.push_str(if is_placed { &value } else { specifier });
            rest = &rest[at + specifier.len()..];
            is_free = false;
        }
        text.push_str(rest);
        text
    });
    let text = parts.collect::<Vec<_>>().join("\\");
    Ok(Value::from(text.replace(&format!("\\{specifier}"), specifier)))
}

pub(super) fn range(run: &mut Run<'_>, given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(Value::array(Vec::new()));
    }
    let (Some(start), Some(end)) = (given.get(0).to_number(), given.get(1).to_number()) else {
        return Ok(Value::array(Vec::new()));
    };
    let count = ((end - start).abs() + 1.0).ceil();
    if count > RANGE_MAX {
        return Err(Error::limit(format!("a range of more than {RANGE_MAX} numbers")).into());
    }
    let count = count as u32;
    run.budget().step(u64::from(count))?;
    run.budget().allocate(u64::from(count) * 24)?;
    let step = if start < end { 1.0 } else { -1.0 };
    // Each number adds a step to the one before, as in the original. So rounding errors accumulate alike.
    let numbers = std::iter::successors(Some(start), |before| Some(before + step)).take(count as usize);
    Ok(Value::array(numbers.map(Value::Number).collect()))
}
