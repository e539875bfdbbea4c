//! Types and methods in Python.

use super::document::{Document, Kind, about, alternatives, fields, other_fields, pascal, types};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Write as _};

/// All types of a service, and a client with a method for each command and query.
pub(super) fn write(document: &Document) -> String {
    let names = document.schemas.iter().map(|(name, _)| name.clone());
    let events = document.kinds.iter().flat_map(|(kind, schemas)| {
        let named = alternatives(&schemas.event).into_iter().flatten();
        let named = named.filter_map(move |event| document.referred(event).map(str::to_owned));
        named.chain([format!("{}Event", pascal(kind))])
    });
    let mut writer = Writer {
        document,
        events: events.collect(),
        taken: names.chain([document.service.clone()]).collect(),
        types: String::new(),
    };
    for (name, schema) in &document.schemas {
        writer.define(name, schema);
    }
    let mut methods = String::new();
    for (name, kind) in &document.kinds {
        writer.methods(&mut methods, name, kind);
    }
    let (types, service) = (&writer.types, &document.service);
    format!(
        "\"\"\"Written by `throng client python` from the service's OpenAPI document: write it anew when that changes.\"\"\"\n\n\
         import collections.abc as abc\nimport typing as t\n\nimport throng_client as throng\n\n{types}\n\n\
         class {service}(throng.Client):\n    \"\"\"A client of the service, with a method for each command and query.\"\"\"\n{methods}"
    )
}

struct Writer<'a> {
    document: &'a Document,
    /// Types of events, which have a cursor where they are followed.
    events: BTreeSet<String>,
    taken: BTreeSet<String>,
    types: String,
}

impl Writer<'_> {
    /// Writes a type of a name.
    fn define(&mut self, name: &str, schema: &Value) {
        let is_object = types(schema) == ["object"] && alternatives(schema).is_none();
        let definition = match is_object && fields(schema).next().is_some() {
            true => {
                let mut members = String::new();
                for (field, schema, is_required) in fields(schema) {
                    let typed = self.of(schema, &format!("{name}{}", pascal(field)));
                    let typed = if is_required {
                        typed
                    } else {
                        format!("t.NotRequired[{typed}]")
                    };
                    let _ = write!(members, "\n    {}: {},", quoted(field), quoted(&typed));
                }
                if self.events.contains(name) {
                    members += "\n    \"cursor\": \"t.NotRequired[str]\",";
                }
                format!("t.TypedDict({}, {{{members}\n}})", quoted(name))
            }
            false => quoted(&self.of(schema, name)),
        };
        if let Some(about) = about(schema) {
            let _ = writeln!(self.types, "\n# {about}");
        }
        let alias = if definition.starts_with('"') {
            ": t.TypeAlias"
        } else {
            ""
        };
        let _ = writeln!(self.types, "{name}{alias} = {definition}");
    }

    /// The type of a schema. An object within it becomes a type of its own, after this name.
    fn of(&mut self, schema: &Value, name: &str) -> String {
        if let Some(name) = self.document.referred(schema) {
            return name.to_owned();
        }
        let literals = schema.get("const").map(|value| vec![value]);
        let literals = literals.or_else(|| Some(schema["enum"].as_array()?.iter().collect()));
        if let Some(literals) = literals {
            let literals: Vec<String> = literals.into_iter().map(literal).collect();
            return format!("t.Literal[{}]", literals.join(", "));
        }
        if let Some(several) = alternatives(schema) {
            let each = several.iter().enumerate();
            let each: Vec<String> = each
                .map(|(at, schema)| self.of(schema, &variant(name, at, schema)))
                .collect();
            return each.join(" | ");
        }
        // There is no type that is two at once.
        if schema["allOf"].is_array() {
            return "t.Any".into();
        }
        let typed: Vec<String> = types(schema)
            .into_iter()
            .map(|one| self.of_type(one, schema, name))
            .collect();
        if typed.is_empty() {
            "t.Any".into()
        } else {
            typed.join(" | ")
        }
    }

    fn of_type(&mut self, one: &str, schema: &Value, name: &str) -> String {
        match one {
            "string" => "str".into(),
            "boolean" => "bool".into(),
            "null" => "None".into(),
            "number" => "float".into(),
            "integer" => "int".into(),
            "array" => match schema["prefixItems"].as_array() {
                Some(items) => {
                    let items = items.iter().enumerate();
                    let items: Vec<String> = items.map(|(at, item)| self.of(item, &format!("{name}{at}"))).collect();
                    format!("tuple[{}]", items.join(", "))
                }
                None => format!("list[{}]", self.of(&schema["items"], &format!("{name}Item"))),
            },
            "object" if fields(schema).next().is_none() => match other_fields(schema) {
                Some(other) => format!("dict[str, {}]", self.of(other, &format!("{name}Value"))),
                None => "dict[str, t.Any]".into(),
            },
            "object" => {
                let mut own = name.to_owned();
                while !self.taken.insert(own.clone()) {
                    own.push('_');
                }
                let mut object = schema.clone();
                object["type"] = "object".into();
                self.define(&own, &object);
                own
            }
            _ => "t.Any".into(),
        }
    }

    fn methods(&mut self, out: &mut String, name: &str, kind: &Kind) {
        let (own, method) = (pascal(name), snake(name));
        let reply = self.of(&kind.reply, &format!("{own}Reply"));
        for (command, body) in &kind.commands {
            let content = self.of(body, &format!("{own}{}", pascal(command)));
            let default = if fields(body).any(|(_, _, is_required)| is_required)
                || !body.is_object()
                || body.get("$ref").is_some()
            {
                String::new()
            } else {
                " = {}".into()
            };
            let _ = write!(
                out,
                "\n    def {method}_{}(self, id: str, body: {}{default}, **options: t.Unpack[throng.CommandOptions]) -> {}:\n        \
                 reply: {} = self.command({}, id, {}, body, **options)\n        return reply\n",
                snake(command),
                quoted(&content),
                quoted(&reply),
                quoted(&reply),
                quoted(name),
                quoted(command),
            );
        }
        for (query, (arguments, answer)) in &kind.queries {
            let arguments = match arguments {
                Value::Null => "dict[str, t.Any]".into(),
                schema => self.of(schema, &format!("{own}{}Query", pascal(query))),
            };
            let answer = self.of(answer, &format!("{own}{}", pascal(query)));
            let _ = write!(
                out,
                "\n    def {method}_{}(self, id: str, arguments: {} = None, **options: t.Unpack[throng.Options]) -> {}:\n        \
                 answer: {} = self.query({}, id, {}, t.cast(\"t.Any\", arguments), **options)\n        return answer\n",
                snake(query),
                quoted(&format!("{arguments} | None")),
                quoted(&answer),
                quoted(&answer),
                quoted(name),
                quoted(query),
            );
        }
        if !kind.event.is_null() {
            let event = self.of(&kind.event, &format!("{own}Event"));
            let alias = format!("{own}Event");
            let event = match self.taken.insert(alias.clone()) {
                true => {
                    let _ = writeln!(self.types, "{alias}: t.TypeAlias = {}", quoted(&event));
                    alias
                }
                false => event,
            };
            let _ = write!(
                out,
                "\n    def {method}_events(self, id: str, *, after: str | int | None = None, cancel: throng.Cancel | None = None) -> abc.Iterator[{}]:\n        \
                 return self.events({}, id, after=after, cancel=cancel)\n",
                quoted(&event),
                quoted(name),
            );
        }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        value => value.to_string(),
    }
}

/// A name for one of several: after its only field, or its number.
fn variant(name: &str, at: usize, schema: &Value) -> String {
    let mut fields = fields(schema);
    match (fields.next(), fields.next()) {
        (Some((field, _, true)), None) => format!("{name}{}Variant", pascal(field)),
        _ => format!("{name}{}", at + 1),
    }
}

/// `resort-day` → `resort_day`, `CreateShow` → `create_show`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.push(if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            '_'
        });
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_named_in_snake_case() {
        assert_eq!(
            (snake("resort-day"), snake("CreateShow")),
            ("resort_day".into(), "create_show".into())
        );
    }
}
