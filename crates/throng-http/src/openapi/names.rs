//! Names for types of the same name in several kinds: `OrderRefusal` and `ConcertRefusal`, not `Refusal` and `Refusal2`.

use super::tidy::pascal;
use schemars::Schema;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const PREFIX: &str = "#/components/schemas/";

/// Prefixes a type's name with its kind if another type has the same name. A type that several kinds share keeps its name.
pub(super) fn distinguish(document: &mut Value, kinds: &[(&str, Vec<&Schema>)]) {
    let Some(Value::Object(schemas)) = document.pointer("/components/schemas") else {
        return;
    };
    let numbered = schemas.keys().filter_map(|name| Some((name, base(name, schemas)?)));
    let alike: BTreeMap<&str, &str> = numbered
        .flat_map(|(name, base)| [(name.as_str(), base), (base, base)])
        .collect();
    // For each name, the only kind that reaches the type; `None` if several do.
    let mut owners: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (kind, of_kind) in kinds {
        let mut reached = BTreeSet::new();
        for schema in of_kind {
            reach(schema.as_value(), schemas, &mut reached);
        }
        for name in reached.into_iter().filter(|name| alike.contains_key(name)) {
            owners
                .entry(name)
                .and_modify(|owner| *owner = None)
                .or_insert(Some(*kind));
        }
    }
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for (name, owner) in owners {
        let Some(kind) = owner else { continue };
        let new = pascal(kind) + alike[name];
        if !schemas.contains_key(&new) && renamed.values().all(|other| *other != new) {
            renamed.insert(name.to_owned(), new);
        }
    }
    refer(document, &renamed);
    if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") {
        for (old, new) in renamed {
            if let Some(schema) = schemas.remove(&old) {
                schemas.insert(new, schema);
            }
        }
    }
}

/// Returns the name of a type without the number that distinguishes it from others.
fn base<'a>(name: &'a str, schemas: &Map<String, Value>) -> Option<&'a str> {
    let base = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    (base != name && schemas.contains_key(base)).then_some(base)
}

/// Gathers the components that a schema refers to, also through others.
fn reach<'a>(schema: &Value, schemas: &'a Map<String, Value>, reached: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            let name = reference.and_then(|reference| reference.strip_prefix(PREFIX));
            if let Some((name, schema)) = name.and_then(|name| schemas.get_key_value(name))
                && reached.insert(name)
            {
                reach(schema, schemas, reached);
            }
            members.values().for_each(|member| reach(member, schemas, reached));
        }
        Value::Array(items) => items.iter().for_each(|item| reach(item, schemas, reached)),
        _ => {}
    }
}

/// Updates each reference to the new name of its component.
fn refer(part: &mut Value, renamed: &BTreeMap<String, String>) {
    match part {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(new) = reference.strip_prefix(PREFIX).and_then(|name| renamed.get(name))
            {
                *reference = format!("{PREFIX}{new}");
            }
            members.values_mut().for_each(|member| refer(member, renamed));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, renamed)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_called_alike_are_named_after_their_kinds() {
        let refers = |name: &str| json!({ "$ref": format!("{PREFIX}{name}") });
        let schema = |name: &str| Schema::try_from(refers(name)).unwrap();
        let components = json!({
            "Refusal": { "oneOf": [refers("Zone2")] }, "Refusal2": {}, "Zone": {}, "Zone2": {}, "Page": {}, "Page2": {}, "View": {},
        });
        let mut document = json!({ "paths": { "/": refers("Refusal2") }, "components": { "schemas": components } });
        let of_order = [schema("Refusal"), schema("Page"), schema("View")];
        let of_concert = [schema("Refusal2"), schema("Page")];
        let kinds = [
            ("order", of_order.iter().collect()),
            ("concert-hall", of_concert.iter().collect()),
        ];
        distinguish(&mut document, &kinds);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let names: BTreeSet<&str> = schemas.keys().map(String::as_str).collect();
        let expected = [
            "ConcertHallRefusal",
            "OrderRefusal",
            "OrderZone",
            "Page",
            "Page2",
            "View",
            "Zone",
        ];
        assert_eq!(names, expected.into());
        assert_eq!(schemas["OrderRefusal"]["oneOf"][0], refers("OrderZone"));
        assert_eq!(document["paths"]["/"], refers("ConcertHallRefusal"));
    }
}
