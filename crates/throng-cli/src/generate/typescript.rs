//! Types in TypeScript.

use super::document::{Document, about, alternatives, fields, other_fields, types};
use serde_json::Value;
use std::fmt::Write as _;

/// All types of a service, and the service's own.
pub(super) fn write(document: &Document) -> String {
    let mut out = "// Written by `throng client typescript` from the service's OpenAPI document: write it anew when that changes.\n".to_owned();
    for (name, schema) in &document.schemas {
        comment(&mut out, schema, "");
        let _ = writeln!(out, "export type {name} = {}\n", of(document, schema, ""));
    }
    let _ = writeln!(
        out,
        "/** The service, for `new Client<{0}>(url)` of ./throng.js. */\nexport interface {0} {{",
        document.service
    );
    for (name, kind) in &document.kinds {
        let typed = |schema: &Value| of(document, schema, "    ");
        let _ = writeln!(out, "  {}: {{\n    commands: {{", quoted(name));
        for (command, body) in &kind.commands {
            let _ = writeln!(out, "      {}: {}", quoted(command), of(document, body, "      "));
        }
        out += "    }\n    queries: {\n";
        for (query, (arguments, answer)) in &kind.queries {
            let (arguments, answer) = (typed(arguments), typed(answer));
            let _ = writeln!(
                out,
                "      {}: {{ arguments: {arguments}; answer: {answer} }}",
                quoted(query)
            );
        }
        let event = match &kind.event {
            Value::Null => "never".to_owned(),
            event => typed(event),
        };
        let (reply, rejection) = (typed(&kind.reply), typed(&kind.rejection));
        let _ = writeln!(
            out,
            "    }}\n    reply: {reply}\n    rejection: {rejection}\n    event: {event}\n  }}"
        );
    }
    out + "}\n"
}

fn comment(out: &mut String, schema: &Value, indent: &str) {
    if let Some(about) = about(schema) {
        let _ = writeln!(out, "{indent}/** {about} */");
    }
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

/// The type of a schema.
fn of(document: &Document, schema: &Value, indent: &str) -> String {
    let each = |schemas: &Vec<Value>| {
        schemas
            .iter()
            .map(|schema| of(document, schema, indent))
            .collect::<Vec<_>>()
    };
    if let Some(name) = document.referred(schema) {
        return name.to_owned();
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(several) = alternatives(schema) {
        return format!("({})", each(several).join(" | "));
    }
    if let Some(all) = schema["allOf"].as_array() {
        return format!("({})", each(all).join(" & "));
    }
    let types = types(schema).into_iter().map(|name| match name {
        "string" => "string".into(),
        "boolean" => "boolean".into(),
        "null" => "null".into(),
        "number" => "number".into(),
        // Beyond 2^53 - 1 the client reads a `bigint`.
        "integer" => match schema["format"].as_str() {
            Some("uint64" | "int64" | "uint" | "int") => "number | bigint".into(),
            _ => "number".into(),
        },
        "array" => match schema["prefixItems"].as_array() {
            Some(items) => format!("[{}]", each(items).join(", ")),
            None => format!("({})[]", of(document, &schema["items"], indent)),
        },
        "object" => object(document, schema, indent),
        _ => "unknown".into(),
    });
    let types: Vec<String> = types.collect();
    if types.is_empty() {
        "unknown".into()
    } else {
        types.join(" | ")
    }
}

fn object(document: &Document, schema: &Value, indent: &str) -> String {
    if fields(schema).next().is_none() {
        let other = other_fields(schema).map_or("unknown".into(), |other| of(document, other, indent));
        return format!("{{ [name: string]: {other} }}");
    }
    let mut out = "{\n".to_owned();
    let inner = format!("{indent}  ");
    for (name, field, is_required) in fields(schema) {
        comment(&mut out, field, &inner);
        let mark = if is_required { "" } else { "?" };
        let _ = writeln!(out, "{inner}{}{mark}: {}", quoted(name), of(document, field, &inner));
    }
    out + indent + "}"
}
