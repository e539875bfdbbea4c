//! Adapts a document to the usual client generators, which read less than JSON Schema allows.

use schemars::{Schema, transform::transform_subschemas};
use serde_json::{Map, Value, json};

/// Mends each schema of a document.
pub(super) fn tidy(document: &mut Value) {
    if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") {
        schemas.values_mut().for_each(mend);
        name_contents(schemas);
    }
    for part in ["/paths", "/components/responses"] {
        if let Some(part) = document.pointer_mut(part) {
            mend_within(part);
        }
    }
}

/// Mends what stands under `schema`, wherever that is.
fn mend_within(part: &mut Value) {
    match part {
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "schema" => mend(member),
                    _ => mend_within(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mend_within),
        _ => {}
    }
}

/// Replaces an answer that is null by any answer: generators name the former type, but do not write it.
fn mend(schema: &mut Value) {
    if *schema == json!({ "type": "null" }) {
        *schema = json!({});
    }
    if let Ok(schema) = schema.try_into() {
        mend_schema(schema);
    }
}

/// Mends a schema for generators. They refuse a schema that is `true`, and a default of null if null is not allowed. `{}` means the same as
/// `true`, and a field without a default may be absent as well.
fn mend_schema(schema: &mut Schema) {
    let members = schema.ensure_object();
    if members.get("default").is_some_and(Value::is_null) {
        members.remove("default");
    }
    // Under this name a boolean is usual, and all read it.
    let additional = "additionalProperties";
    let is_open = members.get(additional).and_then(Value::as_bool);
    if is_open.is_some() {
        members.remove(additional);
    }
    transform_subschemas(&mut mend_schema, schema);
    if let Some(is_open) = is_open {
        schema.insert(additional.into(), is_open.into());
    }
}

/// Names the content of each variant of an enum: `AccountRejection` gets `AccountRejectionBalanceTooLow`. Generators make a type of it in
/// any case, and some find no name for it.
fn name_contents(schemas: &mut Map<String, Value>) {
    let taken: Vec<String> = schemas.keys().cloned().collect();
    let mut named = Map::new();
    for (name, schema) in schemas.iter_mut() {
        let variants = ["oneOf", "anyOf"].into_iter().find(|list| schema.get(list).is_some());
        let variants = variants.and_then(|list| schema[list].as_array_mut());
        for variant in variants.into_iter().flatten() {
            let Some(properties) = variant.get_mut("properties").and_then(Value::as_object_mut) else {
                continue;
            };
            let mut properties = properties.iter_mut();
            let (Some((variant, content)), None) = (properties.next(), properties.next()) else {
                continue;
            };
            let name = name.clone() + &pascal(variant);
            if content.get("type").is_some_and(|kind| kind == "object") && !taken.contains(&name) {
                let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
                named.insert(name, std::mem::replace(content, reference));
            }
        }
    }
    schemas.extend(named);
}

/// `balance_too_low` → `BalanceTooLow`.
pub(super) fn pascal(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let capital = |word: &str| word[..1.min(word.len())].to_uppercase() + &word[1.min(word.len())..];
    words.map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(schema: Value) -> Value {
        let mut document =
            json!({ "paths": { "/": { "get": { "schema": schema } } }, "components": { "schemas": {} } });
        tidy(&mut document);
        document["paths"]["/"]["get"]["schema"].take()
    }

    #[test]
    fn boolean_schemas_become_objects() {
        assert_eq!(mended(json!(true)), json!({}));
        let nested = json!({ "properties": { "any": true }, "additionalProperties": { "items": true }, "items": true });
        let expected = json!({ "properties": { "any": {} }, "additionalProperties": { "items": {} }, "items": {} });
        assert_eq!(mended(nested), expected);
        let closed = json!({ "type": "object", "additionalProperties": false });
        assert_eq!(mended(closed.clone()), closed);
    }

    #[test]
    fn null_defaults_are_left_out() {
        let schema = json!({ "properties": { "a": { "type": "integer", "default": null }, "b": { "default": 0 } } });
        let expected = json!({ "properties": { "a": { "type": "integer" }, "b": { "default": 0 } } });
        assert_eq!(mended(schema), expected);
    }

    #[test]
    fn null_alone_becomes_any_answer_and_stays_a_choice() {
        assert_eq!(mended(json!({ "type": "null" })), json!({}));
        let choice = json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] });
        assert_eq!(mended(choice.clone()), choice);
    }

    #[test]
    fn empty_variant_contents_stand_in_components() {
        let variants = json!([{ "type": "object", "properties": { "NoData": { "type": "object" } } }]);
        let mut document = json!({ "components": { "schemas": { "Refused": { "oneOf": variants } } } });
        tidy(&mut document);
        let schemas = &document["components"]["schemas"];
        let variant = &schemas["Refused"]["oneOf"][0]["properties"]["NoData"];
        assert_eq!(variant["$ref"], "#/components/schemas/RefusedNoData");
        assert_eq!(schemas["RefusedNoData"], json!({ "type": "object" }));
    }

    #[test]
    fn variant_contents_stand_in_components() {
        let content = json!({ "type": "object", "properties": { "cents": { "type": "integer" } } });
        let variants =
            json!([{ "type": "object", "properties": { "too_low": content.clone() } }, { "const": "closed" }]);
        let mut document = json!({ "components": { "schemas": { "Refusal": { "oneOf": variants } } } });
        tidy(&mut document);
        let schemas = &document["components"]["schemas"];
        let variant = &schemas["Refusal"]["oneOf"][0]["properties"]["too_low"];
        assert_eq!(variant["$ref"], "#/components/schemas/RefusalTooLow");
        assert_eq!(schemas["RefusalTooLow"], content);
    }
}
