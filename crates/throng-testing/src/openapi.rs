//! Rules for an OpenAPI document, so that client generators can use it.

use serde_json::Value;
use std::collections::BTreeSet;

/// Keys under which a schema holds a schema, a list of schemas, or schemas by name.
const ONE: &[&str] = &["items", "schema", "not", "additionalProperties"];
const LISTS: &[&str] = &["oneOf", "anyOf", "allOf", "prefixItems"];
const BY_NAME: &[&str] = &["properties", "patternProperties", "schemas"];

/// Returns the faults of a document, each as a sentence: what validators refuse, and what generators cannot turn into a working client.
#[must_use]
pub fn openapi_faults(document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if !document["security"].is_array() {
        faults.push("no security is said".into());
    }
    let mut ids = BTreeSet::new();
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let at = format!("{method} {path}");
            if let Some(body) = operation.get("requestBody").filter(|body| body["required"] != true) {
                faults.push(format!("{at}: a body that may be left out: {body}"));
            }
            let id = operation["operationId"].as_str().unwrap_or_default();
            if !ids.insert(id) {
                faults.push(format!("{at}: a second operation {id:?}"));
            }
        }
    }
    let components = document["components"]["schemas"].as_object().into_iter().flatten();
    for (name, schema) in components {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if !name.chars().all(is_plain) {
            faults.push(format!("a component cannot be named {name:?}"));
        }
        let variants = ["oneOf", "anyOf"]
            .into_iter()
            .filter_map(|list| schema[list].as_array());
        for variant in variants.flatten() {
            let contents = variant["properties"].as_object().into_iter().flatten();
            let unnamed = contents.filter(|(_, content)| content.get("properties").is_some());
            // An event has several fields, and its name among them.
            let unnamed = unnamed.filter(|_| variant["required"].as_array().is_some_and(|names| names.len() == 1));
            faults
                .extend(unnamed.map(|(variant, _)| format!("{name}: the content of {variant} has no name of its own")));
        }
    }
    look(document, document, "", &mut faults);
    faults
}

fn look(document: &Value, part: &Value, at: &str, faults: &mut Vec<String>) {
    let Value::Object(members) = part else {
        for (number, item) in part.as_array().into_iter().flatten().enumerate() {
            look(document, item, &format!("{at}/{number}"), faults);
        }
        return;
    };
    let mut add = |name: &str, why: &str| faults.push(format!("{at}/{name}: {why}"));
    for (name, member) in members {
        let name = name.as_str();
        let may_be_boolean = name == "additionalProperties";
        if ONE.contains(&name) && member.is_boolean() && !may_be_boolean {
            add(name, "a schema that is true or false");
        }
        if LISTS.contains(&name) {
            let schemas = member.as_array().into_iter().flatten();
            match member.as_array().map(Vec::len) {
                Some(0) => add(name, "a choice of nothing"),
                _ if schemas.into_iter().any(Value::is_boolean) => add(name, "a schema that is true or false"),
                _ => {}
            }
        }
        if BY_NAME.contains(&name) {
            let schemas = member.as_object().into_iter().flatten();
            if let Some((field, _)) = schemas.into_iter().find(|(_, schema)| schema.is_boolean()) {
                add(&format!("{name}/{field}"), "a schema that is true or false");
            }
        }
        if name == "default" && member.is_null() {
            add(name, "a default of null");
        }
        if let Some(reference) = member.as_str().filter(|_| name == "$ref") {
            let target = reference
                .strip_prefix('#')
                .and_then(|pointer| document.pointer(pointer));
            if target.is_none() {
                add(name, &format!("{reference} leads nowhere"));
            }
        }
    }
    for (name, member) in members {
        look(document, member, &format!("{at}/{}", name.replace('/', "~1")), faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_schema(schema: Value) -> Vec<String> {
        openapi_faults(&json!({ "security": [], "components": { "schemas": { "A": schema } } }))
    }

    #[test]
    fn faults_of_schemas_are_found() {
        assert_eq!(of_schema(json!({ "additionalProperties": false })), [""; 0]);
        let content = json!({ "properties": { "cents": { "type": "integer" } } });
        let faulty = [
            json!(true),
            json!({ "items": true }),
            json!({ "properties": { "x": true } }),
            json!({ "anyOf": [true, {}] }),
            json!({ "oneOf": [] }),
            json!({ "type": "integer", "default": null }),
            json!({ "$ref": "#/components/schemas/B" }),
            json!({ "oneOf": [{ "required": ["low"], "properties": { "low": content } }] }),
        ];
        for schema in faulty {
            assert_eq!(of_schema(schema.clone()).len(), 1, "{schema}");
        }
    }

    #[test]
    fn faults_of_operations_are_found() {
        let operation = json!({ "operationId": "a", "requestBody": { "content": {} } });
        let document = json!({ "paths": { "/a": { "post": operation, "put": operation } } });
        let faults = openapi_faults(&document);
        assert_eq!(faults.len(), 4, "{faults:?}");
    }
}
