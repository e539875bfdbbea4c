//! Types and methods in Go.

use super::{
    document::{Document, Names, pascal},
    types::{Choice, Definition, Field, Role, Shape, Type, Types},
};
use anyhow::Context as _;
use std::{fmt::Write as _, fs, path::Path};

/// A function of the package.
pub(super) const RESERVED: &str = "New";

/// Returns the import path of a directory within its module.
///
/// # Errors
/// No directory above has a `go.mod`.
pub(super) fn import_path(directory: &Path) -> anyhow::Result<String> {
    let directory = std::path::absolute(directory)?;
    for root in directory.ancestors() {
        let Ok(text) = fs::read_to_string(root.join("go.mod")) else {
            continue;
        };
        let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("module "));
        let module = lines.next().context("go.mod names no module")?;
        let mut path = module.trim().trim_matches('"').to_owned();
        for part in directory.strip_prefix(root)?.iter() {
            path = path + "/" + &part.to_string_lossy();
        }
        return Ok(path);
    }
    anyhow::bail!(
        "{} is in no Go module: run `go mod init NAME` where it belongs first",
        directory.display()
    )
}

/// Writes all types of a service, and a client with a method for each command and query.
pub(super) fn write(document: &Document, import_path: &str) -> String {
    let types = Types::of(document);
    let mut defined = String::new();
    for definition in types
        .definitions
        .iter()
        .filter(|definition| definition.role == Role::Own)
    {
        define(&mut defined, &types, definition);
    }
    let mut methods = String::new();
    for (name, kind) in &types.kinds {
        if let Some(event) = &kind.event {
            defined.push('\n');
            write_tagged(&mut defined, &types, event, &types.events(kind));
        }
        write_methods(&mut methods, document, &types, name);
    }
    let iter = if types.kinds.values().any(|kind| kind.event.is_some()) {
        "\t\"iter\"\n"
    } else {
        ""
    };
    let (service, package) = (&document.service, document.module());
    format!(
        "// Package {package} was written by `throng client go` from the service's OpenAPI document: write it anew when that changes.\n\
         package {package}\n\nimport (\n\t\"context\"\n{iter}\n\t\"{import_path}/throng\"\n)\n{defined}\n\
         // {service} is a client of the service, with a method for each command and query.\ntype {service} struct{{ *throng.Client }}\n\n\
         // New makes a client of the service at a URL.\nfunc New(url string, settings throng.Settings) (*{service}, error) {{\n\
         \tclient, err := throng.New(url, settings)\n\tif err != nil {{\n\t\treturn nil, err\n\t}}\n\treturn &{service}{{client}}, nil\n}}\n{methods}"
    )
}

fn define(out: &mut String, types: &Types, Definition { name, about, shape, .. }: &Definition) {
    out.push('\n');
    if let Some(about) = about {
        let _ = writeln!(out, "// {name}: {about}");
    }
    let of = match shape {
        Shape::Object(fields) => return write_struct(out, types, name, fields),
        Shape::Alias(of) => of,
    };
    match types.choice(of) {
        Choice::Words(words) => {
            let mut names = Names::default();
            let own = |word: &String| match word.contains(|letter: char| letter.is_ascii_lowercase()) {
                true => names.unique(&format!("{name}{}", pascal(word))),
                false => names.unique(&format!("{name}{}", pascal(&word.to_lowercase()))),
            };
            let named: Vec<(String, String)> = words.iter().map(own).zip(words.clone()).collect();
            let width = named.iter().map(|(own, _)| own.len()).max().unwrap_or_default();
            let _ = writeln!(out, "type {name} string\n\nconst (");
            for (own, word) in named {
                let _ = writeln!(out, "\t{own:width$} {name} = {word:?}");
            }
            out.push_str(")\n");
        }
        Choice::Tagged(several) => write_tagged(out, types, name, &several),
        Choice::Merged(fields) => write_struct(out, types, name, &fields),
        Choice::Untold => {
            let of = written(types, of);
            let mark = if of.starts_with("[]") || of.starts_with("map") {
                ""
            } else {
                "= "
            };
            let _ = writeln!(out, "type {name} {mark}{of}");
        }
    }
}

fn write_struct(out: &mut String, types: &Types, name: &str, fields: &[Field]) {
    let mut names = Names::default();
    let rows = fields.iter().map(|field| {
        let of = written(types, &field.of);
        let (of, mark) = match field.is_required {
            true => (of, ""),
            false => (pointer(of), ",omitempty"),
        };
        [
            names.unique(&pascal(&field.name)),
            of,
            format!("`json:\"{}{mark}\"`", field.name),
        ]
    });
    write_rows(out, name, &rows.collect::<Vec<_>>());
}

/// Writes a struct with a field for each alternative, of which one is set.
fn write_tagged(out: &mut String, types: &Types, name: &str, several: &[(String, Option<Type>)]) {
    let mut names = Names::default();
    let rows = several.iter().map(|(tag, of)| {
        let of = of
            .as_ref()
            .map_or("bool".into(), |of| format!("*{}", written(types, of)));
        [names.unique(&pascal(tag)), of, format!("`json:\"{tag}\"`")]
    });
    write_rows(out, name, &rows.collect::<Vec<_>>());
    let _ = write!(
        out,
        "\nfunc (choice {name}) MarshalJSON() ([]byte, error) {{\n\treturn throng.WriteChoice(choice)\n}}\n\n\
         func (choice *{name}) UnmarshalJSON(text []byte) error {{\n\treturn throng.ReadChoice(text, choice)\n}}\n"
    );
}

/// Fields in columns, as gofmt has them.
fn write_rows(out: &mut String, name: &str, rows: &[[String; 3]]) {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    if rows.is_empty() {
        let _ = writeln!(out, "type {name} struct{{}}");
        return;
    }
    let _ = writeln!(out, "type {name} struct {{");
    for [field, of, tag] in rows {
        let _ = writeln!(out, "\t{field:first$} {of:second$} {tag}");
    }
    out.push_str("}\n");
}

fn written(types: &Types, of: &Type) -> String {
    match of {
        Type::Text => "string".into(),
        Type::Boolean => "bool".into(),
        Type::Number => "float64".into(),
        Type::Integer(format) => match &format[..] {
            "uint8" | "uint16" | "uint32" | "uint64" | "int8" | "int16" | "int32" => format.clone(),
            "uint" => "uint64".into(),
            _ => "int64".into(),
        },
        Type::Named(name) => match types.definition(name) {
            Some(definition) if definition.role == Role::Own => name.clone(),
            _ => "any".into(),
        },
        Type::Literal(values) if values.iter().all(serde_json::Value::is_string) => "string".into(),
        Type::OneOf(_) => of.unless_null().map_or("any".into(), |of| pointer(written(types, of))),
        Type::List(item) => format!("[]{}", written(types, item)),
        Type::Tuple(_) => "[]any".into(),
        Type::Map(value) => format!("map[string]{}", written(types, value)),
        Type::Any | Type::Null | Type::Literal(_) => "any".into(),
    }
}

/// Returns a type that can also be nil.
fn pointer(of: String) -> String {
    match of == "any" || ["[]", "map[", "*"].iter().any(|start| of.starts_with(start)) {
        true => of,
        false => format!("*{of}"),
    }
}

fn write_methods(out: &mut String, document: &Document, types: &Types, name: &str) {
    let (service, kind) = (&document.service, &types.kinds[name]);
    let (own, mut names) = (pascal(name), Names::default());
    let reply = written(types, &kind.reply);
    let parameter = |name: &str, of: &Type| match types.is_open(of) {
        true => (String::new(), "nil".to_owned()),
        false => (format!(", {name} {}", written(types, of)), name.to_owned()),
    };
    for command in &kind.commands {
        let (body, given) = parameter("body", &command.content);
        let _ = write!(
            out,
            "\nfunc (service *{service}) {}(ctx context.Context, id string{body}, options ...throng.Option) ({reply}, error) {{\n\
             \treturn throng.As[{reply}](service.Command(ctx, {name:?}, id, {:?}, {given}, options...))\n}}\n",
            names.unique(&format!("{own}{}", pascal(&command.name))),
            command.name,
        );
    }
    for query in &kind.queries {
        let (arguments, given) = parameter("arguments", &query.arguments);
        let answer = written(types, &query.answer);
        let _ = write!(
            out,
            "\nfunc (service *{service}) {}(ctx context.Context, id string{arguments}) ({answer}, error) {{\n\
             \treturn throng.As[{answer}](service.Query(ctx, {name:?}, id, {:?}, {given}))\n}}\n",
            names.unique(&format!("{own}{}", pascal(&query.name))),
            query.name,
        );
    }
    if let Some(event) = &kind.event {
        let _ = write!(
            out,
            "\nfunc (service *{service}) {}(ctx context.Context, id, after string) iter.Seq2[throng.Event[{event}], error] {{\n\
             \treturn throng.Typed[{event}](service.Events(ctx, {name:?}, id, after))\n}}\n",
            names.unique(&format!("{own}{}", pascal("events"))),
        );
    }
    if kind.rejection != Type::Any {
        let rejection = written(types, &kind.rejection);
        let _ = write!(
            out,
            "\nfunc (service *{service}) {}(err error) ({rejection}, bool) {{\n\treturn throng.RejectionOf[{rejection}](err)\n}}\n",
            names.unique(&format!("{own}{}", pascal("rejection"))),
        );
    }
}
