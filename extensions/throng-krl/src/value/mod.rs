//! Values of the language: variables, attributes, arguments and options of directives.
//!
//! A clone is cheap: strings, arrays and maps are shared, and copied only when one of several owners changes them. Every array and map stores its
//! depth and its cost, so the machine can refuse a value without walking over it. That matters because values share parts: one made of a few
//! kilobytes can be gigabytes when written out.

mod array;
mod convert;
mod json;
mod map;
mod number;
mod path;
mod regex;

pub use array::Array;
pub use map::{Entries, Map};
pub use number::format_number;
pub use regex::{Regex, RegexError};

pub(crate) use path::{array_as_map, path_of};

use crate::run::Function;
use std::sync::Arc;

/// The deepest nesting of arrays and maps.
pub const NESTING_MAX: u16 = 200;

/// A value of KRL. Cloning it is cheap.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value, as in JSON. NaN (0/0) becomes null too.
    #[default]
    Null,
    /// An absent value in a program: the literal `null`, a missing argument or setting. The language treats it as null. But a map that leaves the
    /// program loses its undefined entries.
    Undefined,
    /// True or false.
    Boolean(bool),
    /// A number; integers are exact up to 2^53.
    Number(f64),
    /// A text. One of `0x` and hexadecimal digits has the type `Hex`.
    String(Arc<str>),
    /// A list of values, indexed from 0.
    Array(Arc<Array>),
    /// A map by name, in the order of a JavaScript object.
    Map(Arc<Map>),
    /// A regular expression `re#…#` with its flags.
    Regex(Arc<Regex>),
    /// A function or an action. It is valid only within the event or query that made it.
    Function(Function),
}

/// The cost of an array or a map. They keep it up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The nesting depth: 1 if no item is an array or a map.
    pub(crate) depth: u16,
    /// The approximate bytes, counted as if nothing were shared.
    pub(crate) bytes: u64,
    /// True if all of it is data, which does not change on its way through JSON.
    pub(crate) is_data: bool,
}

impl Cost {
    const EMPTY: Cost = Cost {
        depth: 1,
        bytes: 32,
        is_data: true,
    };

    fn add(&mut self, key_bytes: usize, value: &Value) {
        self.depth = self.depth.max(value.depth().saturating_add(1));
        self.bytes = self.bytes.saturating_add(value.bytes() + key_bytes as u64);
        self.is_data &= value.is_data();
    }

    fn subtract(&mut self, key_bytes: usize, value: &Value) {
        self.bytes = self.bytes.saturating_sub(value.bytes() + key_bytes as u64);
    }
}

impl Value {
    /// Returns a number, or null for NaN.
    #[must_use]
    pub fn number(number: f64) -> Value {
        if number.is_nan() {
            Value::Null
        } else {
            Value::Number(number)
        }
    }

    /// Returns an array of these items, in their order.
    #[must_use]
    pub fn array(items: Vec<Value>) -> Value {
        Value::Array(Arc::new(Array::from(items)))
    }

    /// Returns a map of these entries. Of two entries with one key, the later one stays.
    #[must_use]
    pub fn map<K: Into<Arc<str>>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value));
        Value::Map(Arc::new(entries.collect()))
    }

    /// Returns the nesting depth of arrays and maps; 0 for other values. It is an upper bound after removals.
    #[must_use]
    pub fn depth(&self) -> u16 {
        match self {
            Value::Array(array) => array.cost().depth,
            Value::Map(map) => map.cost().depth,
            _ => 0,
        }
    }

    /// Returns the approximate bytes in memory, counted as if nothing were shared.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Value::Array(array) => array.cost().bytes,
            Value::Map(map) => map.cost().bytes,
            Value::String(text) => 24 + text.len() as u64,
            _ => 24,
        }
    }

    /// True if the value is data: no function and no regular expression.
    #[must_use]
    pub fn is_data(&self) -> bool {
        match self {
            Value::Array(array) => array.cost().is_data,
            Value::Map(map) => map.cost().is_data,
            Value::Undefined | Value::Regex(_) | Value::Function(_) => false,
            _ => true,
        }
    }

    /// Converts the value as JavaScript does by way of JSON. Entity variables and attributes are kept so. Maps lose undefined values and functions;
    /// elsewhere these become null. A regular expression becomes an empty map.
    #[must_use]
    pub fn into_data(self) -> Value {
        if self.is_data() {
            return self;
        }
        match self {
            Value::Array(array) => Value::array(array.iter().map(|item| item.clone().into_data()).collect()),
            Value::Map(map) => {
                let kept = map.iter().filter(|(_, value)| !value.is_left_out());
                Value::map(kept.map(|(key, value)| (Arc::clone(key), value.clone().into_data())))
            }
            Value::Regex(_) => Value::from(Map::default()),
            _ => Value::Null,
        }
    }

    /// True if a map that becomes data loses this value.
    fn is_left_out(&self) -> bool {
        matches!(self, Value::Undefined | Value::Function(_))
    }

    /// Returns the text, if the value is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the map, if the value is one.
    #[must_use]
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the array, if the value is one.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(Arc::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(Arc::from(text))
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Value {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(boolean: bool) -> Value {
        Value::Boolean(boolean)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::number(number)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::array(items)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Value {
        Value::Map(Arc::new(map))
    }
}

/// Deep equality, like `==`: without conversions between types, and independent of the order of keys.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null | Value::Undefined, Value::Null | Value::Undefined) => true,
            (Value::Boolean(left), Value::Boolean(right)) => left == right,
            (Value::Number(left), Value::Number(right)) => left == right,
            (Value::String(left), Value::String(right)) => left == right,
            (Value::Array(left), Value::Array(right)) => Arc::ptr_eq(left, right) || left[..] == right[..],
            (Value::Map(left), Value::Map(right)) => Arc::ptr_eq(left, right) || left == right,
            (Value::Regex(left), Value::Regex(right)) => left == right,
            (Value::Function(left), Value::Function(right)) => left.is_same(right),
            _ => false,
        }
    }
}
