//! Conversion between values and JSON.

use super::{Array, Map, Value, format_number};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::fmt;
use std::sync::Arc;

/// Writes integers of up to 63 bits without a fraction, functions and regular expressions as text, and undefined as null. Only
/// [`to_json`](Value::to_json) writes all numbers as JavaScript does.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null | Value::Undefined => serializer.serialize_unit(),
            Value::Boolean(boolean) => serializer.serialize_bool(*boolean),
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 9_223_372_036_854_775_808.0 => {
                serializer.serialize_i64(*number as i64)
            }
            Value::Number(number) => serializer.serialize_f64(*number),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(array) => {
                let mut sequence = serializer.serialize_seq(Some(array.len()))?;
                for item in array.iter() {
                    sequence.serialize_element(item)?;
                }
                sequence.end()
            }
            Value::Map(map) => {
                let mut entries = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map.iter() {
                    entries.serialize_entry(&**key, value)?;
                }
                entries.end()
            }
            other => serializer.serialize_str(&other.text()),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Value, E> {
        Ok(Value::Boolean(boolean))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut array = Array::default();
        while let Some(item) = sequence.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(Arc::new(array)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::default();
        while let Some((key, value)) = entries.next_entry::<String, Value>()? {
            map.insert(Arc::from(key), value);
        }
        Ok(Value::from(map))
    }
}

impl Value {
    /// Parses JSON. Returns `None` if the text is not JSON or nests too deeply.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Value> {
        serde_json::from_str(text).ok()
    }

    /// Returns the value as JSON on one line, as JavaScript writes it.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.to_json_indented(0)
    }

    /// Returns the value as JSON with each item on its own line. Each level is indented by `indent` blanks; with 0 all is one line.
    #[must_use]
    pub(crate) fn to_json_indented(&self, indent: usize) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out, indent, 1);
        String::from_utf8(out).unwrap_or_default()
    }

    /// Writes the value, with its items at this level. The recursion is bounded, since values nest at most [`NESTING_MAX`](super::NESTING_MAX) deep.
    fn write_json(&self, out: &mut Vec<u8>, indent: usize, level: usize) {
        let separate = |out: &mut Vec<u8>, place: usize, level: usize| {
            if place > 0 {
                out.push(b',');
            }
            if indent > 0 {
                out.push(b'\n');
                out.resize(out.len() + indent * level, b' ');
            }
        };
        match self {
            Value::Null | Value::Undefined => out.extend(b"null"),
            Value::Boolean(boolean) => out.extend(if *boolean { &b"true"[..] } else { b"false" }),
            Value::Number(number) if number.is_finite() => out.extend(format_number(*number).as_bytes()),
            Value::Number(_) => out.extend(b"null"),
            Value::Array(items) => {
                out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    separate(out, place, level);
                    item.write_json(out, indent, level + 1);
                }
                if !items.is_empty() {
                    separate(out, 0, level - 1);
                }
                out.push(b']');
            }
            Value::Map(map) => {
                out.push(b'{');
                for (place, (key, value)) in map.iter().enumerate() {
                    separate(out, place, level);
                    write_text(out, key);
                    out.extend(if indent > 0 { &b": "[..] } else { b":" });
                    value.write_json(out, indent, level + 1);
                }
                if !map.is_empty() {
                    separate(out, 0, level - 1);
                }
                out.push(b'}');
            }
            other => write_text(out, &other.text()),
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(out, text);
}

impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(boolean) => Value::Boolean(*boolean),
            serde_json::Value::Number(number) => number.as_f64().map_or(Value::Null, Value::number),
            serde_json::Value::String(text) => Value::from(text.as_str()),
            serde_json::Value::Array(items) => Value::array(items.iter().map(Value::from).collect()),
            serde_json::Value::Object(entries) => {
                Value::map(entries.iter().map(|(key, value)| (key.as_str(), Value::from(value))))
            }
        }
    }
}

impl From<&Value> for serde_json::Value {
    fn from(value: &Value) -> serde_json::Value {
        serde_json::to_value(value).unwrap_or(serde_json::Value::Null)
    }
}
