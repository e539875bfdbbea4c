//! A kind's commands, read from the schema of its enum.

use schemars::Schema;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CommandDoc {
    /// The command's serde name.
    pub(super) name: String,
    /// The command's documentation.
    pub(super) description: Option<String>,
    /// The schema of its content.
    pub(super) body: Value,
}

/// Returns the variants of an externally tagged enum; empty if the schema is not one.
pub(super) fn of(schema: &Schema, definitions: &Map<String, Value>) -> Vec<CommandDoc> {
    let whole = resolve(schema.as_value(), definitions);
    let alone = [whole.clone()];
    let variants = whole
        .get("oneOf")
        .or_else(|| whole.get("anyOf"))
        .and_then(Value::as_array)
        .map_or(&alone[..], Vec::as_slice);
    variants.iter().flat_map(commands).collect()
}

/// Follows a reference into the definitions.
fn resolve<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    let name = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.rsplit('/').next());
    name.and_then(|name| definitions.get(name)).unwrap_or(schema)
}

fn commands(variant: &Value) -> Vec<CommandDoc> {
    let description = variant.get("description").and_then(Value::as_str).map(str::to_owned);
    let nothing = || json!({ "type": "object", "description": "Nothing; the body may be empty." });
    let unit = |name: &Value| {
        let name = name.as_str()?.to_owned();
        Some(CommandDoc {
            name,
            description: description.clone(),
            body: nothing(),
        })
    };
    if let Some(name) = variant.get("const") {
        return unit(name).into_iter().collect();
    }
    if let Some(names) = variant.get("enum").and_then(Value::as_array) {
        return names.iter().filter_map(unit).collect();
    }
    // A variant with content is an object with one required property, its name.
    let required = variant.get("required").and_then(Value::as_array);
    let (Some([name]), Some(properties)) = (
        required.map(Vec::as_slice),
        variant.get("properties").and_then(Value::as_object),
    ) else {
        return Vec::new();
    };
    let Some((name, body)) = name.as_str().and_then(|name| properties.get_key_value(name)) else {
        return Vec::new();
    };
    vec![CommandDoc {
        name: name.clone(),
        description,
        body: body.clone(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::{JsonSchema, generate::SchemaSettings};
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Many {
        Open {
            capacity: u32,
        },
        Rename(String),
        CloseNow,
        /// Documented, without content.
        Reopen,
    }

    #[derive(Deserialize, JsonSchema)]
    enum One {
        Hit,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum OneWithContent {
        Hit { hard: bool },
    }

    fn names<T: JsonSchema>() -> Vec<String> {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let schema = generator.subschema_for::<T>();
        let definitions = generator.take_definitions(true);
        of(&schema, &definitions)
            .into_iter()
            .map(|command| command.name)
            .collect()
    }

    #[test]
    fn every_variant_is_a_command() {
        let mut found = names::<Many>();
        found.sort();
        assert_eq!(found, ["close_now", "open", "rename", "reopen"]);
        assert_eq!(names::<One>(), ["Hit"]);
        assert_eq!(names::<OneWithContent>(), ["Hit"]);
    }

    #[test]
    fn a_type_that_is_not_an_enum_has_no_commands() {
        assert_eq!(names::<u64>(), [""; 0]);
    }
}
