//! Filters as they are written: `taken >= 300, is_open = true`.

use serde_json::{Number, Value};
use std::{cmp::Ordering, slice};
use throng_core::limits::INDEXED_BYTES_MAX;

/// Conditions of one filter, at most.
const CONDITIONS_MAX: usize = 8;

/// A filter: the entities that meet all its conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    /// The place of the field among the kind's; `None`: any of them.
    field: Option<usize>,
    comparison: Comparison,
    /// The value. A number or a truth is also the text as it is written: an id of digits may be either.
    with: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The signs, the longer ones first.
const SIGNS: [(&str, Comparison); 6] = [
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// A text is no filter of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The kind does not index this field.
    #[error("the kind has no field {name:?} to filter by; it has {}", listed(.fields))]
    UnknownField {
        /// The name that was given.
        name: String,
        /// The fields that the kind indexes.
        fields: Vec<&'static str>,
    },
    /// A condition has no sign, or nothing on one side of it.
    #[error("{0:?} is no condition; write a field, one of = != < <= > >=, and a number, true, false, null or a text")]
    NoCondition(String),
    /// The filter has more conditions than are taken.
    #[error("a filter has {CONDITIONS_MAX} conditions at most")]
    TooMany,
}

fn listed(fields: &[&str]) -> String {
    match fields {
        [] => "none".to_owned(),
        fields => fields.join(", "),
    }
}

impl Filter {
    /// Reads conditions, separated by commas, about these fields. A value is JSON or, up to the next comma, a text without quotes.
    ///
    /// # Errors
    /// [`FilterError`] names the first condition that is none.
    pub fn read(text: &str, fields: &[&'static str]) -> Result<Self, FilterError> {
        let mut conditions = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if conditions.len() >= CONDITIONS_MAX {
                return Err(FilterError::TooMany);
            }
            let none = || FilterError::NoCondition(rest.to_owned());
            let at = rest.find(['=', '!', '<', '>']).ok_or_else(none)?;
            let (name, behind) = (rest[..at].trim(), &rest[at..]);
            let sign = SIGNS.iter().find(|(sign, _)| behind.starts_with(sign));
            let (sign, comparison) = sign.ok_or_else(none)?;
            let unknown = || FilterError::UnknownField {
                name: name.to_owned(),
                fields: fields.to_vec(),
            };
            let field = fields.iter().position(|field| *field == name).ok_or_else(unknown)?;
            let (with, behind) = value(behind[sign.len()..].trim_start()).ok_or_else(none)?;
            conditions.push(Condition {
                field: Some(field),
                comparison: *comparison,
                with,
            });
            rest = behind.trim_start();
        }
        Ok(Self(conditions))
    }

    /// This filter, and one of the fields is this text, or a list with it.
    #[must_use]
    pub fn holding(mut self, text: &str) -> Self {
        self.0.push(Condition {
            field: None,
            comparison: Comparison::Equal,
            with: vec![text_of(text)],
        });
        self
    }

    /// Tells whether an entity with these values of the kind's fields meets all conditions. `None`: a value that decides it is not known.
    pub(super) fn matches(&self, fields: &[Value]) -> Option<bool> {
        let mut is_known = true;
        for condition in &self.0 {
            match condition.is_met(fields) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => is_known = false,
            }
        }
        is_known.then_some(true)
    }
}

impl Condition {
    fn is_met(&self, fields: &[Value]) -> Option<bool> {
        let fields = match self.field {
            Some(field) => fields.get(field..=field)?,
            None => fields,
        };
        // An object stands for a list that was too long for its row.
        let mut known = fields.iter().filter(|value| !value.is_object());
        if known.any(|value| self.comparison.holds(value, &self.with)) {
            return Some(true);
        }
        (!fields.iter().any(Value::is_object)).then_some(false)
    }
}

/// A text, cut to the bytes that count.
fn text_of(text: &str) -> Value {
    Value::from(&text[..text.floor_char_boundary(INDEXED_BYTES_MAX)])
}

/// The value at the beginning of a text, as what it may be, and the text behind the comma after it.
fn value(text: &str) -> Option<(Vec<Value>, &str)> {
    let mut json = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = json.next() {
        let (written, behind) = text.split_at(json.byte_offset());
        let behind = behind.trim_start();
        if let Some(behind) = behind.strip_prefix(',').or_else(|| behind.is_empty().then_some("")) {
            let with = match value {
                Value::Array(_) | Value::Object(_) => return None,
                Value::Number(_) | Value::Bool(_) => vec![value, text_of(written.trim_end())],
                Value::String(text) => vec![text_of(&text)],
                Value::Null => vec![value],
            };
            return Some((with, behind));
        }
    }
    let (bare, behind) = text.split_once(',').unwrap_or((text, ""));
    let bare = bare.trim_end();
    (!bare.is_empty()).then(|| (vec![text_of(bare)], behind))
}

impl Comparison {
    /// Compares a field's value, or any member of a list.
    fn holds(self, value: &Value, with: &[Value]) -> bool {
        let is_any = |is_met: fn(Ordering) -> bool| {
            let members = match value {
                Value::Array(members) => members,
                value => slice::from_ref(value),
            };
            let mut orders = members
                .iter()
                .flat_map(|member| with.iter().filter_map(move |with| compared(member, with)));
            orders.any(is_met)
        };
        match self {
            Self::Equal => is_any(Ordering::is_eq),
            Self::NotEqual => !is_any(Ordering::is_eq),
            Self::Less => is_any(Ordering::is_lt),
            Self::LessOrEqual => is_any(Ordering::is_le),
            Self::Greater => is_any(Ordering::is_gt),
            Self::GreaterOrEqual => is_any(Ordering::is_ge),
        }
    }
}

/// The order of two values of the same type; `None` of different ones.
fn compared(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        (Value::Number(one), Value::Number(other)) => match (whole(one), whole(other)) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
        },
        _ => None,
    }
}

fn whole(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIELDS: &[&str] = &["taken", "is_open", "name"];

    fn matched(filter: &str, fields: [Value; 3]) -> bool {
        Filter::read(filter, FIELDS).unwrap().matches(&fields).unwrap()
    }

    #[test]
    fn conditions_all_hold_or_nothing_is_matched() {
        let fields = || [json!(300), json!(true), json!("a, b")];
        for (filter, is_matched) in [
            ("", true),
            ("taken=300", true),
            ("taken >= 300, is_open = true", true),
            ("taken>300", false),
            ("taken<=299.5", false),
            ("taken!=300,is_open=true", false),
            (r#"name="a, b", taken < 301"#, true),
            ("name = a", false),
            ("name > a", true),
            // Values of another type have no order, and are not equal.
            ("is_open=1", false),
            ("taken != true", true),
            ("name = null", false),
        ] {
            assert_eq!(matched(filter, fields()), is_matched, "{filter}");
        }
        assert!(matched("name=null", [json!(0), json!(false), json!(null)]));
        assert!(matched(
            "name=Ann Smith, taken=0",
            [json!(0), json!(false), json!("Ann Smith")]
        ));
    }

    #[test]
    fn integers_are_compared_with_all_their_digits() {
        let next = (1_u64 << 53) + 1;
        assert!(matched("taken=9007199254740993", [json!(next), json!(true), json!("")]));
        assert!(!matched(
            "taken=9007199254740992",
            [json!(next), json!(true), json!("")]
        ));
        assert!(matched("taken>-1", [json!(u64::MAX), json!(true), json!("")]));
    }

    #[test]
    fn list_meets_conditions_by_any_member() {
        let fields = || [json!([3, 9]), json!(null), json!(["ann", "bob", "7"])];
        for (filter, is_matched) in [
            ("name = bob", true),
            ("name = cem", false),
            ("name = 7", true),
            ("name = \"7\"", true),
            ("name = 07", false),
            ("name != cem", true),
            ("name != bob", false),
            ("taken > 8, taken < 4", true),
            ("taken > 9", false),
        ] {
            assert_eq!(matched(filter, fields()), is_matched, "{filter}");
        }
        let holds = |text: &str| Filter::default().holding(text).matches(&fields());
        assert_eq!(
            (holds("ann"), holds("an"), holds("9")),
            (Some(true), Some(false), Some(false))
        );
    }

    #[test]
    fn list_that_is_not_known_decides_nothing() {
        let fields = [json!(3), json!(true), json!({})];
        let matches = |filter: &str| Filter::read(filter, FIELDS).unwrap().matches(&fields);
        for filter in ["name = ann", "name != ann", "name = ann, taken = 3"] {
            assert_eq!(matches(filter), None, "{filter}");
        }
        assert_eq!(matches("name = ann, taken = 4"), Some(false));
        assert_eq!(matches("taken = 3"), Some(true));
        let holds = |filter: Filter| filter.holding("ann").matches(&fields);
        assert_eq!(holds(Filter::default()), None);
        assert_eq!(holds(Filter::read("taken = 4", FIELDS).unwrap()), Some(false));
        assert_eq!(Filter::read("name = a", FIELDS).unwrap().matches(&fields[..1]), None);
    }

    #[test]
    fn text_is_compared_by_the_bytes_that_count() {
        let long = "ä".repeat(INDEXED_BYTES_MAX);
        let kept = json!(long[..INDEXED_BYTES_MAX]);
        assert!(matched(&format!("name = {long}"), [json!(0), json!(true), kept]));
    }

    #[test]
    fn text_that_is_no_filter_is_told() {
        let said = |text: &str| Filter::read(text, FIELDS).unwrap_err().to_string();
        assert!(said("seats=1").contains("it has taken, is_open, name"));
        for none in [
            "taken",
            "taken ! 3",
            "taken =",
            "taken = , is_open = true",
            "taken = [1]",
            "name != {}",
        ] {
            assert!(said(none).contains("is no condition"), "{none}");
        }
        assert!(said(&["taken=1"; CONDITIONS_MAX + 1].join(",")).contains("at most"));
    }
}
