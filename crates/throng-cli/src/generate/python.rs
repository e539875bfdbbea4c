//! Types and methods in Python.

use super::{
    document::Document,
    types::{Definition, Field, KindTypes, Shape, Type, Types},
};
use serde_json::Value;
use std::fmt::Write as _;

/// Writes all types of a service, and a client with a method for each command and query.
pub(super) fn write(document: &Document) -> String {
    let types = Types::of(document);
    let mut defined = String::new();
    for definition in &types.definitions {
        define(&mut defined, definition);
    }
    let mut methods = String::new();
    for (name, kind) in &types.kinds {
        write_methods(&mut methods, name, kind);
    }
    let service = &document.service;
    format!(
        "\"\"\"Written by `throng client python` from the service's OpenAPI document: write it anew when that changes.\"\"\"\n\n\
         import collections.abc as abc\nimport typing as t\n\nimport throng_client as throng\n\n{defined}\n\n\
         class {service}(throng.Client):\n    \"\"\"A client of the service, with a method for each command and query.\"\"\"\n{methods}"
    )
}

fn define(out: &mut String, Definition { name, about, shape, .. }: &Definition) {
    if let Some(about) = about {
        let _ = writeln!(out, "\n# {about}");
    }
    let _ = match shape {
        Shape::Object(fields) => {
            let mut members = String::new();
            for Field { name, of, is_required } in fields {
                let typed = match is_required {
                    true => written(of),
                    false => format!("t.NotRequired[{}]", written(of)),
                };
                let _ = write!(members, "\n    {}: {},", quoted(name), quoted(&typed));
            }
            writeln!(out, "{name} = t.TypedDict({}, {{{members}\n}})", quoted(name))
        }
        Shape::Alias(of) => writeln!(out, "{name}: t.TypeAlias = {}", quoted(&written(of))),
    };
}

fn written(of: &Type) -> String {
    let each = |several: &[Type], separator| several.iter().map(written).collect::<Vec<_>>().join(separator);
    match of {
        Type::Any => "t.Any".into(),
        Type::Null => "None".into(),
        Type::Text => "str".into(),
        Type::Boolean => "bool".into(),
        Type::Number => "float".into(),
        Type::Integer(_) => "int".into(),
        Type::Named(name) => name.clone(),
        Type::Literal(values) => {
            let literals: Vec<String> = values.iter().map(literal).collect();
            format!("t.Literal[{}]", literals.join(", "))
        }
        Type::OneOf(several) => each(several, " | "),
        Type::List(item) => format!("list[{}]", written(item)),
        Type::Tuple(items) => format!("tuple[{}]", each(items, ", ")),
        Type::Map(value) => format!("dict[str, {}]", written(value)),
    }
}

fn write_methods(out: &mut String, name: &str, kind: &KindTypes) {
    let (method, reply) = (snake(name), quoted(&written(&kind.reply)));
    let name = quoted(name);
    for command in &kind.commands {
        let _ = write!(
            out,
            "\n    def {method}_{}(self, id: str, body: {}{}, **options: t.Unpack[throng.CommandOptions]) -> {reply}:\n        \
             reply: {reply} = self.command({name}, id, {}, body, **options)\n        return reply\n",
            snake(&command.name),
            quoted(&written(&command.content)),
            if command.is_optional { " = {}" } else { "" },
            quoted(&command.name),
        );
    }
    for query in &kind.queries {
        let answer = quoted(&written(&query.answer));
        let _ = write!(
            out,
            "\n    def {method}_{}(self, id: str, arguments: {} = None, **options: t.Unpack[throng.Options]) -> {answer}:\n        \
             answer: {answer} = self.query({name}, id, {}, t.cast(\"t.Any\", arguments), **options)\n        return answer\n",
            snake(&query.name),
            quoted(&format!("{} | None", written(&query.arguments))),
            quoted(&query.name),
        );
    }
    if let Some(event) = &kind.event {
        let _ = write!(
            out,
            "\n    def {method}_events(self, id: str, *, after: str | int | None = None, cancel: throng.Cancel | None = None) -> abc.Iterator[{}]:\n        \
             return self.events({name}, id, after=after, cancel=cancel)\n",
            quoted(event),
        );
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
