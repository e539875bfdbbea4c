//! Compares two JSON Schemas: can a reader of one take all that a writer of the other may write?

use serde_json::{Map, Value};
use std::fmt;

/// The depth to which types are compared. Recursive types have no end.
const DEPTH_MAX: usize = 64;

/// A type with the definitions that its references point to.
#[derive(Clone, Copy)]
pub(super) struct Type<'a> {
    pub(super) schema: &'a Value,
    pub(super) definitions: &'a Map<String, Value>,
}

/// A place where a reader does not take all that a writer may write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    /// The path to it: the names of the fields.
    pub(super) path: String,
    pub(super) what: Mismatch,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mismatch {
    /// The reader requires it, the writer may omit it.
    Missing,
    /// The writer may write it, the reader refuses unknown fields.
    Unknown,
    /// The reader's enum lacks a value that the writer's has.
    Variant(String),
    /// The values are of different types.
    Kind { reader: String, writer: String },
    /// The reader's limit is narrower.
    Limit {
        keyword: &'static str,
        reader: String,
        writer: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("may be absent, and is required there"),
            Self::Unknown => f.write_str("is not known there, and unknown fields are refused"),
            Self::Variant(value) => write!(f, "{value} is not known there"),
            Self::Kind { reader, writer } => write!(f, "is {writer}, and {reader} is expected there"),
            Self::Limit {
                keyword,
                reader,
                writer,
            } => {
                write!(f, "has {keyword} {writer}, and {reader} there")
            }
        }
    }
}

/// Compares what a reader takes with what a writer may write.
pub(super) struct Comparison {
    /// True if the reader refuses unknown fields unless its schema says otherwise.
    pub(super) refuses_unknown: bool,
}

impl Comparison {
    /// Returns each place where the reader does not take all that the writer may write.
    pub(super) fn run(&self, reader: Type<'_>, writer: Type<'_>) -> Vec<Difference> {
        let mut found = Found {
            is_strict: self.refuses_unknown,
            active: Vec::new(),
            path: Vec::new(),
            differences: Vec::new(),
        };
        found.compare(reader, writer);
        found.differences
    }
}

struct Found {
    is_strict: bool,
    /// The pairs under comparison. A recursive pair counts as compatible; the rest of the type decides.
    active: Vec<(*const Value, *const Value)>,
    path: Vec<String>,
    differences: Vec<Difference>,
}

impl<'a> Type<'a> {
    fn of(self, schema: &'a Value) -> Self {
        Self { schema, ..self }
    }

    fn get(self, keyword: &str) -> Option<&'a Value> {
        self.schema.get(keyword)
    }

    /// Follows references until there is none.
    fn resolved(self) -> Self {
        let mut at = self;
        for _ in 0..DEPTH_MAX {
            let reference = at.get("$ref").and_then(Value::as_str);
            let name = reference.and_then(|reference| reference.strip_prefix("#/$defs/"));
            match name.and_then(|name| at.definitions.get(name)) {
                Some(schema) => at.schema = schema,
                None => break,
            }
        }
        at
    }

    fn is_any(self) -> bool {
        const CONSTRAINTS: &[&str] = &[
            "$ref",
            "allOf",
            "anyOf",
            "const",
            "enum",
            "items",
            "oneOf",
            "properties",
            "required",
            "type",
        ];
        match self.schema {
            Value::Bool(any) => *any,
            Value::Object(members) => !CONSTRAINTS.iter().any(|keyword| members.contains_key(*keyword)),
            _ => false,
        }
    }

    /// Returns the alternatives that a value can be one of.
    fn alternatives(self) -> Vec<Alternative<'a>> {
        let at = self.resolved();
        if let Some(choice) = ["oneOf", "anyOf"].into_iter().find_map(|list| at.get(list)?.as_array()) {
            return choice.iter().flat_map(|one| at.of(one).alternatives()).collect();
        }
        if let Some(values) = at.get("enum").and_then(Value::as_array) {
            return values.iter().map(Alternative::Value).collect();
        }
        if let Some(value) = at.get("const") {
            return vec![Alternative::Value(value)];
        }
        match at.get("type") {
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .map(|name| Alternative::Typed(name, at))
                .collect(),
            Some(Value::String(name)) => vec![Alternative::Typed(name, at)],
            _ if at.is_any() => vec![Alternative::Any],
            _ => vec![Alternative::Typed("object", at)],
        }
    }

    /// Returns the type of a tuple's element.
    fn item(self, at: usize) -> Option<Self> {
        self.get("prefixItems")?.get(at).map(|item| self.of(item))
    }

    fn has_required(self, name: &str) -> bool {
        let required = self.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|one| one == name))
    }
}

#[derive(Clone, Copy)]
enum Alternative<'a> {
    Any,
    Value(&'a Value),
    Typed(&'a str, Type<'a>),
}

impl Alternative<'_> {
    fn kind(&self) -> &str {
        match self {
            Self::Any => "anything",
            Self::Value(Value::String(_)) => "string",
            Self::Value(Value::Number(number)) if number.is_f64() => "number",
            Self::Value(Value::Number(_)) => "integer",
            Self::Value(Value::Bool(_)) => "boolean",
            Self::Value(Value::Null) => "null",
            Self::Value(_) => "object",
            Self::Typed(name, _) => name,
        }
    }

    /// Returns the name of the enum's variant, if this is one.
    fn variant(&self) -> Option<&str> {
        match self {
            Self::Value(Value::String(name)) => Some(name),
            Self::Typed("object", at) => match at.get("required")?.as_array()?.as_slice() {
                // A struct with one required field looks alike, but allows further fields.
                [Value::String(name)] if at.get("additionalProperties") == Some(&Value::Bool(false)) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    fn takes_kind_of(&self, writer: &Self) -> bool {
        matches!(self, Self::Any)
            || self.kind() == writer.kind()
            || (self.kind(), writer.kind()) == ("number", "integer")
    }
}

fn kinds(alternatives: &[Alternative<'_>]) -> String {
    let mut names: Vec<&str> = alternatives.iter().map(Alternative::kind).collect();
    names.dedup();
    names.join(" or ")
}

impl Found {
    fn add(&mut self, what: Mismatch) {
        let path = self.path.join("/");
        self.differences.push(Difference { path, what });
    }

    fn within(&mut self, name: &str, work: impl FnOnce(&mut Self)) {
        if self.path.len() < DEPTH_MAX {
            self.path.push(name.to_owned());
            work(self);
            self.path.pop();
        }
    }

    fn compare(&mut self, reader: Type<'_>, writer: Type<'_>) {
        // An unchanged schema needs no comparison, unless a definition that it refers to has changed.
        if reader.schema == writer.schema && reader.definitions == writer.definitions {
            return;
        }
        let (reader, writer) = (reader.resolved(), writer.resolved());
        let pair = (std::ptr::from_ref(reader.schema), std::ptr::from_ref(writer.schema));
        if self.active.contains(&pair) {
            return;
        }
        self.active.push(pair);
        self.compare_alternatives(&reader.alternatives(), &writer.alternatives());
        self.active.pop();
    }

    fn compare_alternatives(&mut self, takes: &[Alternative<'_>], writes: &[Alternative<'_>]) {
        if let ([taken], [written]) = (takes, writes) {
            return self.compare_one(taken, written);
        }
        let are_variants = |all: &[Alternative<'_>]| all.iter().any(|one| one.variant().is_some());
        for written in writes {
            if self.is_taken(takes, written) {
                continue;
            }
            let same = |taken: &&Alternative<'_>| match (taken.variant(), written.variant()) {
                (None, None) => taken.takes_kind_of(written),
                (one, other) => one == other,
            };
            match (takes.iter().find(same), written.variant()) {
                (Some(taken), _) => self.compare_one(taken, written),
                (None, Some(name)) if are_variants(takes) => self.add(Mismatch::Variant(name.to_owned())),
                (None, _) => self.add(Mismatch::Kind {
                    reader: kinds(takes),
                    writer: written.kind().to_owned(),
                }),
            }
        }
    }

    fn is_taken(&mut self, takes: &[Alternative<'_>], written: &Alternative<'_>) -> bool {
        let known = self.differences.len();
        takes.iter().any(|taken| {
            self.compare_one(taken, written);
            let is_taken = self.differences.len() == known;
            self.differences.truncate(known);
            is_taken
        })
    }

    fn compare_one(&mut self, taken: &Alternative<'_>, written: &Alternative<'_>) {
        let differs = |found: &mut Self| {
            let (reader, writer) = (taken.kind().to_owned(), written.kind().to_owned());
            found.add(Mismatch::Kind { reader, writer });
        };
        match (taken, written) {
            (Alternative::Any, _) => {}
            (Alternative::Value(one), Alternative::Value(other)) if one == other => {}
            (Alternative::Typed("object", _), Alternative::Value(_)) => differs(self),
            (Alternative::Typed(..), Alternative::Value(_)) if taken.takes_kind_of(written) => {}
            (Alternative::Typed(name, reader), Alternative::Typed(_, writer)) if taken.takes_kind_of(written) => {
                match *name {
                    "object" => self.compare_objects(*reader, *writer),
                    "array" => self.compare_arrays(*reader, *writer),
                    _ => {}
                }
                if *name != "null" {
                    self.compare_limits(*reader, *writer);
                }
            }
            _ => differs(self),
        }
    }

    fn compare_objects(&mut self, reader: Type<'_>, writer: Type<'_>) {
        let none = Map::new();
        let (takes, writes) = (
            reader.get("properties").and_then(Value::as_object).unwrap_or(&none),
            writer.get("properties").and_then(Value::as_object).unwrap_or(&none),
        );
        for name in reader
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !writer.has_required(name) {
                self.within(name, |found| found.add(Mismatch::Missing));
            }
        }
        let rest = reader.get("additionalProperties");
        let is_closed =
            rest == Some(&Value::Bool(false)) || self.is_strict && rest.is_none() && reader.get("properties").is_some();
        for (name, written) in writes {
            self.within(name, |found| match (takes.get(name), rest) {
                (Some(taken), _) => found.compare(reader.of(taken), writer.of(written)),
                (None, Some(taken @ Value::Object(_))) => found.compare(reader.of(taken), writer.of(written)),
                (None, _) if is_closed => found.add(Mismatch::Unknown),
                (None, _) => {}
            });
        }
        if let (Some(taken @ Value::Object(_)), Some(written @ Value::Object(_))) =
            (rest, writer.get("additionalProperties"))
        {
            self.within("*", |found| found.compare(reader.of(taken), writer.of(written)));
        }
    }

    fn compare_arrays(&mut self, reader: Type<'_>, writer: Type<'_>) {
        let listed = |of: Type<'_>| of.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
        if listed(reader) != listed(writer) {
            let tuple = |of: Type<'_>| match listed(of) {
                0 => "a list".to_owned(),
                items => format!("a tuple of {items}"),
            };
            return self.add(Mismatch::Kind {
                reader: tuple(reader),
                writer: tuple(writer),
            });
        }
        for at in 0..listed(reader) {
            if let (Some(taken), Some(written)) = (reader.item(at), writer.item(at)) {
                self.within(&at.to_string(), |found| found.compare(taken, written));
            }
        }
        if let (Some(taken), Some(written)) = (reader.get("items"), writer.get("items")) {
            self.within("*", |found| found.compare(reader.of(taken), writer.of(written)));
        }
    }

    fn compare_limits(&mut self, reader: Type<'_>, writer: Type<'_>) {
        for (keyword, is_least) in [
            ("minimum", true),
            ("maximum", false),
            ("minLength", true),
            ("maxLength", false),
            ("minItems", true),
            ("maxItems", false),
            ("minProperties", true),
            ("maxProperties", false),
        ] {
            let Some(taken) = limit(reader, keyword) else { continue };
            let written = limit(writer, keyword);
            let is_within = written.is_some_and(|written| if is_least { written >= taken } else { written <= taken });
            if !is_within {
                let writer = written.map_or_else(|| "none".to_owned(), |written| written.to_string());
                self.add(Mismatch::Limit {
                    keyword,
                    reader: taken.to_string(),
                    writer,
                });
            }
        }
        for keyword in ["format", "pattern"] {
            let is_text = |text: &&str| range(text).is_none() && !matches!(*text, "double" | "float");
            let text = |of: Type<'_>| {
                of.get(keyword)
                    .and_then(Value::as_str)
                    .filter(is_text)
                    .map(str::to_owned)
            };
            if let Some(taken) = text(reader)
                && text(writer).as_ref() != Some(&taken)
            {
                let writer = text(writer).unwrap_or_else(|| "none".to_owned());
                self.add(Mismatch::Limit {
                    keyword,
                    reader: taken,
                    writer,
                });
            }
        }
    }
}

/// Returns the least and the greatest number of an integer format.
fn range(format: &str) -> Option<(f64, f64)> {
    Some(match format {
        "int8" => (f64::from(i8::MIN), f64::from(i8::MAX)),
        "int16" => (f64::from(i16::MIN), f64::from(i16::MAX)),
        "int32" => (f64::from(i32::MIN), f64::from(i32::MAX)),
        "int64" | "int" => (i64::MIN as f64, i64::MAX as f64),
        "int128" => (i128::MIN as f64, i128::MAX as f64),
        "uint8" => (0.0, f64::from(u8::MAX)),
        "uint16" => (0.0, f64::from(u16::MAX)),
        "uint32" => (0.0, f64::from(u32::MAX)),
        "uint64" | "uint" => (0.0, u64::MAX as f64),
        "uint128" => (0.0, u128::MAX as f64),
        _ => return None,
    })
}

/// Returns the limit of a type, from a keyword or from the format of an integer.
fn limit(of: Type<'_>, keyword: &str) -> Option<f64> {
    let said = of.get(keyword).and_then(Value::as_f64);
    let format = of.get("format").and_then(Value::as_str).and_then(range);
    let by_format = format.and_then(|(least, most)| match keyword {
        "minimum" => Some(least),
        "maximum" => Some(most),
        _ => None,
    });
    match (said, by_format) {
        (Some(said), Some(by_format)) if keyword == "minimum" => Some(said.max(by_format)),
        (Some(said), Some(by_format)) => Some(said.min(by_format)),
        (said, by_format) => said.or(by_format),
    }
}
