//! Values of the language: variables, attributes, arguments and options of directives.
//!
//! A clone is cheap: strings, arrays and maps are shared, and copied only when one of several owners changes them. Every array and map
//! stores its depth and its cost. So the machine can refuse a value without walking over it: values share parts, and one made of a few
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

/// A value of KRL; cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value, as in JSON. Also a number that is not one (0/0).
    #[default]
    Null,
    /// No value in a program: the literal `null`, a missing argument or setting. The language treats it as null, except that it is left out
    /// of a map that leaves the program.
    Undefined,
    /// True or false.
    Boolean(bool),
    /// A number; integers are exact up to 2^53.
    Number(f64),
    /// Text. A text that reads `0x` and hexadecimal digits is of type `Hex`.
    String(Arc<str>),
    /// Items from index 0 without a gap.
    Array(Arc<Array>),
    /// Values by name, in the order of a JavaScript object.
    Map(Arc<Map>),
    /// `re#…#`, with its flags.
    Regex(Arc<Regex>),
    /// A function or an action. It belongs to the event or query it was made in.
    Function(Function),
}

/// The cost of an array or a map, which they keep up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The depth of its nesting: 1 if nothing in it nests.
    pub(crate) depth: u16,
    /// Bytes, about, if nothing were shared.
    pub(crate) bytes: u64,
    /// Tells whether it holds nothing but data: what is the same once it was written as JSON.
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
    /// A number, or null for what is not one.
    #[must_use]
    pub fn number(number: f64) -> Value {
        if number.is_nan() {
            Value::Null
        } else {
            Value::Number(number)
        }
    }

    /// An array of these items, in their order.
    #[must_use]
    pub fn array(items: Vec<Value>) -> Value {
        Value::Array(Arc::new(Array::from(items)))
    }

    /// A map of these entries; of two with one key the later one stays.
    #[must_use]
    pub fn map<K: Into<Arc<str>>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value));
        Value::Map(Arc::new(entries.collect()))
    }

    /// Returns the depth of arrays and maps in it; 0 for neither. An upper bound where values were removed.
    #[must_use]
    pub fn depth(&self) -> u16 {
        match self {
            Value::Array(array) => array.cost().depth,
            Value::Map(map) => map.cost().depth,
            _ => 0,
        }
    }

    /// Returns the approximate bytes that it would take in memory if nothing in it were shared.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Value::Array(array) => array.cost().bytes,
            Value::Map(map) => map.cost().bytes,
            Value::String(text) => 24 + text.len() as u64,
            _ => 24,
        }
    }

    /// True if it holds nothing but data: no function, no regular expression.
    #[must_use]
    pub fn is_data(&self) -> bool {
        match self {
            Value::Array(array) => array.cost().is_data,
            Value::Map(map) => map.cost().is_data,
            Value::Undefined | Value::Regex(_) | Value::Function(_) => false,
            _ => true,
        }
    }

    /// The value after a way through JSON in JavaScript, as an entity variable or an attribute keeps it: maps are without what is undefined or
    /// a function, elsewhere these are null, and a regular expression is an empty map.
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

    /// Tells whether a map that becomes data goes without it.
    fn is_left_out(&self) -> bool {
        matches!(self, Value::Undefined | Value::Function(_))
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The map, if it is one.
    #[must_use]
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The array, if it is one.
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

/// Deep equality, as `==` has it: no conversions between types, the order of a map's keys does not count.
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
