//! Conversions of values to other types.

use super::number::{parse_digits, parse_number};
use super::{Value, format_number};
use std::borrow::Cow;
use std::sync::Arc;

impl Value {
    /// Returns the name of the type, as `typeof` does.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null | Value::Undefined => "Null",
            Value::Boolean(_) => "Boolean",
            Value::Number(number) if number.is_nan() => "Null",
            Value::Number(number) if number.is_infinite() => "JSObject",
            Value::Number(_) => "Number",
            Value::String(text) if is_hex(text) => "Hex",
            Value::String(_) => "String",
            Value::Array(_) => "Array",
            Value::Map(_) => "Map",
            Value::Regex(_) => "RegExp",
            Value::Function(function) => function.type_name(),
        }
    }

    /// True for null and undefined.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::Undefined)
    }

    /// True if a condition accepts the value: all but null, false, 0 and the empty text.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match self {
            Value::Null | Value::Undefined => false,
            Value::Boolean(boolean) => *boolean,
            Value::Number(number) => *number != 0.0 && !number.is_nan(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        }
    }

    /// Returns the value as text. Arrays, maps and functions give only the name of their type.
    #[must_use]
    pub fn to_text(&self) -> Arc<str> {
        match self {
            Value::String(text) => Arc::clone(text),
            other => Arc::from(&*other.text()),
        }
    }

    /// Works like [`to_text`](Value::to_text), but borrows the text of a text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Value::String(text) => Cow::Borrowed(text),
            Value::Null | Value::Undefined => Cow::Borrowed("null"),
            Value::Boolean(true) => Cow::Borrowed("true"),
            Value::Boolean(false) => Cow::Borrowed("false"),
            Value::Number(number) if number.is_finite() => Cow::Owned(format_number(*number)),
            Value::Regex(regex) => Cow::Owned(regex.to_string()),
            other => Cow::Owned(format!("[{}]", other.type_name())),
        }
    }

    /// Returns the value as a number: null is 0, true is 1, an array or a map is its length. `None` for a text that is no number, a regular
    /// expression and a function.
    #[must_use]
    pub fn to_number(&self) -> Option<f64> {
        match self {
            Value::Null | Value::Undefined => Some(0.0),
            Value::Boolean(boolean) => Some(f64::from(u8::from(*boolean))),
            Value::Number(number) => number.is_finite().then_some(*number),
            Value::String(text) if is_hex(text) => parse_digits(&text[2..], 16),
            Value::String(text) => parse_number(text),
            Value::Array(array) => Some(array.len() as f64),
            Value::Map(map) => Some(map.len() as f64),
            Value::Regex(_) | Value::Function(_) => None,
        }
    }
}

/// True for a text of `0x` and hexadecimal digits.
fn is_hex(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 2 && bytes[0] == b'0' && bytes[1] | 0x20 == b'x' && bytes[2..].iter().all(u8::is_ascii_hexdigit)
}
