//! Rows of [indexed fields](crate::model::Entity::INDEXED): what an entity's fields were after one of its events.
//!
//! A checkpoint writes the rows of entities that have changed since the one before, as far as they are in memory. A row is right as long as
//! its event is the entity's last one, so no row has to be complete or new: whoever filters asks those entities whose row is not. Such an
//! entity's row is written by the next checkpoint. An older journal gets its rows in this way, and so does a kind with other fields.
//!
//! ```text
//! i, kind, 0, id   → the fields' print (8 bytes), the number of the last event (8), the values as a JSON array
//! ```

use crate::{
    limits::{self, INDEXED_BYTES_MAX, INDEXED_ROW_BYTES_MAX},
    model::Entity,
};
use serde_json::{Map, Value};

/// The indexed fields of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// Its row. The next checkpoint writes it.
    Row(Vec<u8>),
    /// The entity is not there, or has ended.
    Gone,
    /// The entity is quarantined.
    Unknown,
    /// The entity has to be [loaded](crate::shard::Shard::load_request) first.
    Load,
}

/// The print of a kind's indexed fields: a row of others counts for nothing.
pub(crate) fn print_of<E: Entity>() -> u64 {
    let names: Vec<&str> = E::INDEXED.iter().map(|field| field.name()).collect();
    limits::hash(&E::STATE_VERSION.to_string(), &names.join(","))
}

/// Returns true if this can be an indexed field's name: 1 to 64 of `[a-z0-9_]`.
pub(crate) fn is_field(name: &str) -> bool {
    let may_have = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(may_have)
}

/// The number of the last event and the fields' values, from a row of the fields with this print.
#[must_use]
pub fn read_indexed(row: &[u8], print: u64) -> Option<(u64, Vec<Value>)> {
    let (found, rest) = row.split_first_chunk::<8>()?;
    let (seq, values) = rest.split_first_chunk::<8>()?;
    let is_alike = u64::from_be_bytes(*found) == print;
    is_alike.then(|| Some((u64::from_be_bytes(*seq), serde_json::from_slice(values).ok()?)))?
}

/// The row of these values, as they are after an event. An object stands for a value that is not known, as lists are if the row would be too
/// long with them.
pub(crate) fn row_of(print: u64, seq: u64, mut values: Vec<Value>) -> Vec<u8> {
    for value in &mut values {
        match value {
            Value::Array(members) => members.iter_mut().for_each(cut),
            Value::Object(fields) => fields.clear(),
            value => cut(value),
        }
    }
    let write = |values: &[Value]| {
        let mut row = [print, seq].map(u64::to_be_bytes).concat();
        serde_json::to_writer(&mut row, values).expect("numbers, texts and truths are JSON");
        row
    };
    let row = write(&values);
    if row.len() <= INDEXED_ROW_BYTES_MAX {
        return row;
    }
    for list in values.iter_mut().filter(|value| value.is_array()) {
        *list = not_known();
    }
    write(&values)
}

/// The value of a field that is not known.
pub(crate) fn not_known() -> Value {
    Value::Object(Map::new())
}

/// Makes a value one that can be compared, and has a bound.
fn cut(value: &mut Value) {
    match value {
        Value::Array(_) | Value::Object(_) => *value = Value::Null,
        Value::String(text) => text.truncate(text.floor_char_boundary(INDEXED_BYTES_MAX)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the values that a filter keeps of a state with these values.
    fn kept(values: Vec<Value>) -> Vec<Value> {
        read_indexed(&row_of(3, 7, values), 3).unwrap().1
    }

    #[test]
    fn values_that_cannot_be_compared_are_cut() {
        let long = "ä".repeat(INDEXED_BYTES_MAX);
        let shorter = format!("a{}", &long[..INDEXED_BYTES_MAX - 2]);
        assert_eq!(
            kept(vec![json!(long), json!(format!("a{long}")), json!({"a": 1})]),
            [json!(long[..INDEXED_BYTES_MAX]), json!(shorter), json!({})]
        );
        assert_eq!(
            kept(vec![json!([1, long, [2], {"a": 1}])]),
            [json!([1, long[..INDEXED_BYTES_MAX], null, null])]
        );
        let values = vec![json!(null), json!(true), json!(u64::MAX), json!(0.5), json!([])];
        assert_eq!(kept(values.clone()), values);
    }

    #[test]
    fn lists_of_a_row_that_is_too_long_are_not_known() {
        let list = |members: usize| json!(vec!["12345678"; members]);
        let members = (INDEXED_ROW_BYTES_MAX - 16 - "[9,[]]".len()) / "\"12345678\",".len();
        assert_eq!(kept(vec![json!(9), list(members)]), [json!(9), list(members)]);
        assert_eq!(kept(vec![json!(9), list(members + 1)]), [json!(9), json!({})]);
    }

    #[test]
    fn longest_row_fits_its_part_of_a_frame() {
        let values = vec![json!("\u{1}".repeat(INDEXED_BYTES_MAX)); limits::INDEXED_FIELDS_MAX];
        assert!(
            row_of(u64::MAX, u64::MAX, values).len() <= limits::INDEXED_FIELDS_MAX * (INDEXED_BYTES_MAX * 6 + 3) + 17
        );
    }

    #[test]
    fn row_of_another_print_or_shape_is_none() {
        let row = |print: u64, values: &[u8]| [&print.to_be_bytes(), &7_u64.to_be_bytes(), values].concat();
        assert_eq!(
            read_indexed(&row(3, b"[1,null]"), 3),
            Some((7, vec![json!(1), Value::Null]))
        );
        assert_eq!(read_indexed(&row(4, b"[1]"), 3), None);
        for short in [&row(3, b"[1")[..], &row(3, b"")[..12], b""] {
            assert_eq!(read_indexed(short, 3), None, "{short:?}");
        }
    }

    #[test]
    fn field_names_are_words_of_a_filter() {
        assert!(is_field("is_open2") && is_field(&"a".repeat(64)));
        for wrong in ["", "is open", "Open", "a=b", &"a".repeat(65)] {
            assert!(!is_field(wrong), "{wrong:?}");
        }
    }
}
