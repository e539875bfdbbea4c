//! Operators on text. Positions count UTF-16 units, as in JavaScript.

use super::{Given, Result};
use crate::run::Run;
use crate::value::Regex;
use crate::{Error, Value};
use std::sync::Arc;

pub(super) fn chr(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let Some(code) = given.get(0).to_number() else {
        return Ok(Value::Null);
    };
    let unit = code.trunc().rem_euclid(65_536.0) as u16;
    Ok(Value::from(String::from_utf16_lossy(&[unit])))
}

pub(super) fn ord(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let unit = given.get(0).text().encode_utf16().next();
    Ok(unit.map_or(Value::Null, |unit| Value::Number(f64::from(unit))))
}

pub(super) fn capitalize(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let text = given.get(0).text();
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    Ok(Value::from(first + characters.as_str()))
}

pub(super) fn lower_case(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::from(given.get(0).text().to_lowercase()))
}

pub(super) fn upper_case(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::from(given.get(0).text().to_uppercase()))
}

/// True for a character that JavaScript trims: white space and the byte order mark.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

pub(super) fn trim(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::from(given.get(0).text().trim_matches(is_blank)))
}

pub(super) fn trim_leading(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::from(given.get(0).text().trim_start_matches(is_blank)))
}

pub(super) fn trim_trailing(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::from(given.get(0).text().trim_end_matches(is_blank)))
}

pub(super) fn starts_with(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::Boolean(given.get(0).text().starts_with(&*given.get(1).text())))
}

pub(super) fn ends_with(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::Boolean(given.get(0).text().ends_with(&*given.get(1).text())))
}

pub(super) fn contains(_: &mut Run<'_>, given: Given) -> Result<Value> {
    Ok(Value::Boolean(given.get(0).text().contains(&*given.get(1).text())))
}

pub(super) fn matches(run: &mut Run<'_>, given: Given) -> Result<Value> {
    if !matches!(given.get(1), Value::String(_) | Value::Regex(_)) {
        return Ok(Value::Boolean(false));
    }
    let regex = run.regex(given.get(1))?;
    let text = given.get(0).text();
    searched(run, &text)?;
    Ok(Value::Boolean(regex.engine().is_match(&text)))
}

/// Charges for searching a text.
pub(super) fn searched(run: &mut Run<'_>, text: &str) -> std::result::Result<(), Error> {
    run.budget().step(text.len() as u64 / 8 + 1)
}

pub(super) fn extract(run: &mut Run<'_>, given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(Value::array(Vec::new()));
    }
    let regex = run.regex(given.get(1))?;
    let text = given.get(0).text();
    searched(run, &text)?;
    if regex.is_global() {
        let mut found = Vec::new();
        for part in regex.engine().find_iter(&text) {
            run.budget().step(1)?;
            run.budget().allocate(48)?;
            found.push(Value::from(part.as_str()));
        }
        return Ok(Value::array(found));
    }
    let captures = regex.engine().captures(&text);
    let groups = captures.iter().flat_map(|captures| captures.iter().skip(1));
    let groups = groups.map(|group| group.map_or(Value::Undefined, |group| Value::from(group.as_str())));
    Ok(Value::array(groups.collect()))
}

pub(super) fn split(run: &mut Run<'_>, given: Given) -> Result<Value> {
    let text = given.get(0).text();
    searched(run, &text)?;
    // Each part is a separate value.
    run.budget().allocate(text.len() as u64)?;
    let parts = match given.get(1) {
        Value::Regex(regex) => split_by_regex(&text, regex),
        other => {
            let separator = other.text();
            if separator.is_empty() {
                text.chars()
                    .map(|character| Value::from(character.to_string()))
                    .collect()
            } else {
                text.split(&*separator).map(Value::from).collect()
            }
        }
    };
    run.budget().allocate(48 * parts.len() as u64)?;
    Ok(Value::array(parts))
}

/// Splits as JavaScript does. Matches of groups are among the parts. An empty match at either end splits nothing off.
fn split_by_regex(text: &str, regex: &Arc<Regex>) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut from = 0;
    if text.is_empty() {
        return if regex.engine().is_match("") {
            parts
        } else {
            vec![Value::from("")]
        };
    }
    for captures in regex.engine().captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        let is_nothing = whole.is_empty() && (whole.start() == from || whole.start() == text.len());
        if is_nothing {
            continue;
        }
        parts.push(Value::from(&text[from..whole.start()]));
        let groups = captures.iter().skip(1);
        parts.extend(groups.map(|group| group.map_or(Value::Undefined, |group| Value::from(group.as_str()))));
        from = whole.end();
    }
    parts.push(Value::from(&text[from..]));
    parts
}

pub(super) fn substr(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let text = given.get(0).to_text();
    let Some(start) = given.get(1).to_number() else {
        return Ok(Value::String(text));
    };
    let length = given.get(2).to_number().filter(|_| !given.get(2).is_null());
    let units: Vec<u16> = if text.is_ascii() {
        Vec::new()
    } else {
        text.encode_utf16().collect()
    };
    let count = if text.is_ascii() { text.len() } else { units.len() };
    let all = count as f64;
    if start > all {
        return Ok(Value::from(""));
    }
    let end = match length {
        None => all,
        Some(length) if length > 0.0 => start + length,
        Some(length) => all + length,
    };
    let place = |number: f64| number.trunc().clamp(0.0, all) as usize;
    let (start, end) = (place(start), place(end));
    let (start, end) = (start.min(end), start.max(end));
    Ok(if text.is_ascii() {
        Value::from(&text[start..end])
    } else {
        Value::from(String::from_utf16_lossy(&units[start..end]))
    })
}
