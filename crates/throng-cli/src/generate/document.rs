//! The part of an OpenAPI document that a client's types are made of.

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A service, as its document describes it.
#[derive(Debug)]
pub(super) struct Document {
    /// The name of its type.
    pub(super) service: String,
    /// Schemas by the names of their types, in the order of the document.
    pub(super) schemas: Vec<(String, Value)>,
    /// All names of types so far.
    pub(super) taken: Names,
    /// The type's name of each component.
    names: BTreeMap<String, String>,
    pub(super) kinds: BTreeMap<String, Kind>,
}

/// Schemas of a kind: of its commands' content, its queries, its answers.
#[derive(Debug, Default)]
pub(super) struct Kind {
    pub(super) commands: BTreeMap<String, Value>,
    /// Arguments and answer.
    pub(super) queries: BTreeMap<String, (Value, Value)>,
    pub(super) reply: Value,
    pub(super) rejection: Value,
    pub(super) event: Value,
}

impl Document {
    /// Reads an OpenAPI document. Types get other names than the `reserved` ones.
    ///
    /// # Errors
    /// The text is not JSON, is not an OpenAPI document, or describes no kind.
    pub(super) fn read(text: &str, reserved: &str) -> anyhow::Result<Self> {
        let document: Value = serde_json::from_str(text)?;
        let title = document["info"]["title"].as_str().context("it has no info.title")?;
        let service = pascal(title);
        let mut taken = Names::of(reserved);
        taken.unique(&service);
        let none = Map::new();
        let components = document.pointer("/components/schemas").and_then(Value::as_object);
        let mut names = BTreeMap::new();
        let mut schemas = Vec::new();
        for (component, schema) in components.unwrap_or(&none) {
            let name = taken.unique(&pascal(component));
            names.insert(component.clone(), name.clone());
            schemas.push((name, schema.clone()));
        }
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        for (path, methods) in document["paths"].as_object().context("it has no paths")? {
            let parts: Vec<&str> = path.split('/').collect();
            let ["", "api", kind, "{id}", rest @ ..] = &parts[..] else {
                continue;
            };
            for (method, operation) in methods.as_object().unwrap_or(&none) {
                let is_kinds = operation["operationId"].as_str().is_some_and(|id| id.starts_with(kind));
                if is_kinds {
                    let kind = kinds.entry((*kind).to_owned()).or_default();
                    kind.add(method, rest, operation);
                }
            }
        }
        ensure!(!kinds.is_empty(), "it describes no kind below /api/");
        Ok(Self {
            service,
            schemas,
            taken,
            names,
            kinds,
        })
    }

    /// Returns the name of the file for its types, without extension.
    pub(super) fn module(&self) -> String {
        let mut name = String::new();
        for (at, letter) in self.service.char_indices() {
            if at > 0 && letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    /// The type that a schema refers to.
    pub(super) fn referred(&self, schema: &Value) -> Option<&str> {
        let component = schema.get("$ref")?.as_str()?.rsplit('/').next()?;
        self.names.get(component).map(String::as_str)
    }
}

/// The names of a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// A scope with these words.
    pub(super) fn of(words: &str) -> Self {
        Self(words.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the name, or a similar one that is not taken.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let mut own = name.to_owned();
        while !self.0.insert(own.clone()) {
            own.push('_');
        }
        own
    }
}

impl Kind {
    fn add(&mut self, method: &str, rest: &[&str], operation: &Value) {
        let answer = || json(operation, "/responses/200/content/application~1json/schema");
        match (method, rest) {
            ("post", [command]) => {
                let body = json(operation, "/requestBody/content/application~1json/schema");
                self.commands.insert((*command).to_owned(), body);
                self.reply = answer();
                let refusal = "/responses/409/content/application~1problem+json/schema/allOf/1/properties/rejection";
                self.rejection = json(operation, refusal);
            }
            ("get", ["events"]) => {
                let page = "/responses/200/content/application~1json/schema/properties/events/items";
                self.event = json(operation, page);
            }
            ("get", [] | [_]) => {
                let name = rest.first().copied().unwrap_or("view");
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let mut fields = parameters.filter(|parameter| parameter["name"] == "fields");
                let arguments = fields.next().map_or(Value::Null, |fields| fields["schema"].clone());
                self.queries.insert(name.to_owned(), (arguments, answer()));
            }
            _ => {}
        }
    }
}

fn json(operation: &Value, pointer: &str) -> Value {
    operation.pointer(pointer).cloned().unwrap_or_default()
}

/// `account.event.transfer_started` → `AccountEventTransferStarted`: a type's name in any language.
pub(super) fn pascal(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let mut pascal = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        pascal += &first.to_uppercase();
        pascal += rest;
    }
    match pascal.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => pascal,
        false => format!("T{pascal}"),
    }
}

/// Returns the types of a schema: one or several.
pub(super) fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ if schema.get("properties").is_some() => vec!["object"],
        _ => Vec::new(),
    }
}

/// Alternatives of a schema, if it is a choice of several.
pub(super) fn alternatives(schema: &Value) -> Option<&Vec<Value>> {
    schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array())
}

/// Returns the schema of an object's additional properties.
pub(super) fn other_fields(schema: &Value) -> Option<&Value> {
    let patterns = schema["patternProperties"]
        .as_object()
        .and_then(|patterns| patterns.values().next());
    patterns.or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

/// Returns the fields of an object: name, schema, and whether the field is required.
pub(super) fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value, bool)> {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.map(move |(name, schema)| (name, schema, required.contains(&name.as_str())))
}

/// Returns the first paragraph of a description, on one line.
pub(super) fn about(schema: &Value) -> Option<String> {
    let text = schema["description"].as_str()?.split("\n\n").next()?;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line.replace("*/", "* /").replace('\\', "\\\\")).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_are_words_without_marks() {
        assert_eq!(pascal("account.event.transfer_started"), "AccountEventTransferStarted");
        assert_eq!(
            (pascal("resort-day"), pascal("2nd")),
            ("ResortDay".into(), "T2nd".into())
        );
    }

    #[test]
    fn other_documents_are_refused() {
        let wrong = |text: &str| Document::read(text, "").unwrap_err().to_string();
        assert!(wrong(r#"{"swagger":"2.0"}"#).contains("info.title"));
        assert!(wrong(r#"{"info":{"title":"a"},"paths":{"/pets":{}}}"#).contains("no kind"));
    }
}
