//! Types and methods in Java.

use super::{
    document::{Document, Names, pascal},
    types::{Choice, Definition, Field, Role, Shape, Type, Types},
};
use std::fmt::Write as _;

/// Names that the file imports or defines itself.
pub(super) const RESERVED: &str = "Boolean Choice Client Double Event EventStream Failure Json JsonElement List Long Map Object Options Record \
    SerializedName Settings Socket String TypeToken";
/// The words of the language, and the methods of each object.
const KEYWORDS: &str = "_ abstract assert boolean break byte case catch char class clone const continue default do double else enum extends false \
    final finalize finally float for getClass goto hashCode if implements import instanceof int interface long native new notify notifyAll null \
    package private protected public return short static strictfp super switch synchronized this throw throws toString transient true try void \
    volatile wait while";

/// Writes all types of a service, and a client with a method for each command and query.
pub(super) fn write(document: &Document) -> String {
    let types = Types::of(document);
    let writer = Writer {
        types: &types,
        service: &document.service,
    };
    let mut members = String::new();
    for name in types.kinds.keys() {
        writer.write_methods(&mut members, name);
    }
    for definition in types
        .definitions
        .iter()
        .filter(|definition| definition.role == Role::Own)
    {
        writer.define(&mut members, definition);
    }
    for kind in types.kinds.values() {
        if let Some(event) = &kind.event {
            members.push('\n');
            writer.write_choice(&mut members, event, &types.events(kind));
        }
    }
    let (service, package) = (&document.service, document.module());
    format!(
        "package {package};\n\nimport com.google.gson.JsonElement;\nimport com.google.gson.annotations.SerializedName;\n\
         import com.google.gson.reflect.TypeToken;\nimport java.util.List;\nimport java.util.Map;\nimport throng.client.*;\n\n\
         /**\n * A client of the service, with a method for each command and query. Written by `throng client java` from the service's OpenAPI\n \
         * document: write it anew when that changes.\n */\npublic final class {service} extends Client {{\n    \
         public {service}(String url) {{\n        super(url);\n    }}\n\n    \
         public {service}(String url, Settings settings) {{\n        super(url, settings);\n    }}\n{members}}}\n"
    )
}

struct Writer<'a> {
    types: &'a Types,
    service: &'a str,
}

impl Writer<'_> {
    fn define(&self, out: &mut String, Definition { name, about, shape, .. }: &Definition) {
        let mut defined = String::new();
        match shape {
            Shape::Object(fields) => self.write_record(&mut defined, name, fields),
            Shape::Alias(of) => match self.types.choice(of) {
                Choice::Words(words) => write_enum(&mut defined, name, &words),
                Choice::Tagged(several) => self.write_choice(&mut defined, name, &several),
                Choice::Merged(fields) => self.write_record(&mut defined, name, &fields),
                // Java has no type aliases.
                Choice::Untold => return,
            },
        }
        out.push('\n');
        if let Some(about) = about {
            let _ = writeln!(out, "    /** {about} */");
        }
        out.push_str(&defined);
    }

    fn write_record(&self, out: &mut String, name: &str, fields: &[Field]) {
        let mut names = Names::of(KEYWORDS);
        let components = fields.iter().map(|field| {
            let own = names.unique(&camel(&field.name));
            let of = match field.is_required {
                true => self.written(&field.of),
                false => self.boxed(&field.of),
            };
            match own == field.name {
                true => format!("{of} {own}"),
                false => format!("@SerializedName({:?}) {of} {own}", field.name),
            }
        });
        let components: Vec<String> = components.collect();
        let _ = writeln!(out, "    public record {name}({}) {{}}", components.join(", "));
    }

    fn write_choice(&self, out: &mut String, name: &str, several: &[(String, Option<Type>)]) {
        let mut names = Names::of(RESERVED);
        names.unique(name);
        names.unique(self.service);
        // An interface without records cannot be sealed.
        let sealed = if several.is_empty() { "" } else { "sealed " };
        let _ = write!(out, "    public {sealed}interface {name} extends Choice {{");
        for (tag, of) in several {
            let value = of
                .as_ref()
                .map(|of| format!("{} value", self.within(of, &format!("{}.", self.service), 0)));
            let _ = write!(
                out,
                "\n        @Choice.Name({tag:?})\n        record {}({}) implements {name} {{}}\n",
                names.unique(&pascal(tag)),
                value.unwrap_or_default(),
            );
        }
        out.push_str("    }\n");
    }

    fn written(&self, of: &Type) -> String {
        match of {
            Type::Boolean => "boolean".into(),
            Type::Number => "double".into(),
            Type::Integer(_) => "long".into(),
            of => self.boxed(of),
        }
    }

    fn boxed(&self, of: &Type) -> String {
        self.within(of, "", 0)
    }

    /// Returns a nullable type; a type of the service is qualified by `scope`. Types may refer to themselves, so `depth` bounds the
    /// recursion.
    fn within(&self, of: &Type, scope: &str, depth: usize) -> String {
        const DEPTH_MAX: usize = 16;
        let any = || "JsonElement".to_owned();
        match of {
            Type::Text => "String".into(),
            Type::Boolean => "Boolean".into(),
            Type::Number => "Double".into(),
            Type::Integer(_) => "Long".into(),
            Type::Named(name) => match self.types.definition(name) {
                Some(Definition {
                    shape: Shape::Alias(of),
                    role: Role::Own,
                    ..
                }) if self.types.choice(of) == Choice::Untold && depth < DEPTH_MAX => self.within(of, scope, depth + 1),
                Some(definition) if definition.role == Role::Own && depth < DEPTH_MAX => format!("{scope}{name}"),
                _ => any(),
            },
            Type::Literal(values) if values.iter().all(serde_json::Value::is_string) => "String".into(),
            Type::OneOf(_) => of.unless_null().map_or_else(any, |of| self.within(of, scope, depth)),
            Type::List(item) => format!("List<{}>", self.within(item, scope, depth)),
            Type::Tuple(_) => "List<JsonElement>".into(),
            Type::Map(value) => format!("Map<String, {}>", self.within(value, scope, depth)),
            Type::Any | Type::Null | Type::Literal(_) => any(),
        }
    }

    fn write_methods(&self, out: &mut String, name: &str) {
        let (kind, mut names) = (&self.types.kinds[name], Names::of(KEYWORDS));
        let mut method = |of: &str| names.unique(&camel(&format!("{name} {of}")));
        let parameter = |name: &str, of: &Type| match self.types.is_open(of) {
            true => [String::new(), String::new(), "null".to_owned()],
            false => [
                format!(", {} {name}", self.boxed(of)),
                format!("{name}, "),
                name.to_owned(),
            ],
        };
        let commands = kind.commands.iter();
        let commands = commands.map(|command| {
            (
                "command",
                &command.name,
                parameter("body", &command.content),
                &kind.reply,
            )
        });
        let queries = kind.queries.iter();
        let queries = queries.map(|query| {
            (
                "query",
                &query.name,
                parameter("arguments", &query.arguments),
                &query.answer,
            )
        });
        for (ask, asked, [parameter, passed, given], answer) in commands.chain(queries) {
            let (own, answer) = (method(asked), self.boxed(answer));
            let _ = write!(
                out,
                "\n    public {answer} {own}(String id{parameter}) {{\n        return {own}(id, {passed}Options.NONE);\n    }}\n\n    \
                 public {answer} {own}(String id{parameter}, Options options) {{\n        \
                 return Json.as(new TypeToken<{answer}>() {{}}, {ask}({name:?}, id, {asked:?}, {given}, options));\n    }}\n",
            );
        }
        if let Some(event) = &kind.event {
            let _ = write!(
                out,
                "\n    public EventStream<{event}> {}(String id, String after) {{\n        \
                 return events({name:?}, id, after).typed({event}.class);\n    }}\n",
                method("events"),
            );
        }
        if let Type::Named(_) = &kind.rejection {
            let rejection = self.boxed(&kind.rejection);
            let _ = write!(
                out,
                "\n    public {rejection} {}(Failure.Rejection rejection) {{\n        return rejection.as(new TypeToken<{rejection}>() {{}});\n    }}\n",
                method("rejection"),
            );
        }
    }
}

fn write_enum(out: &mut String, name: &str, words: &[String]) {
    let mut names = Names::default();
    let _ = writeln!(out, "    public enum {name} {{");
    for word in words {
        let _ = writeln!(
            out,
            "        @SerializedName({word:?})\n        {},",
            names.unique(&screaming(word))
        );
    }
    out.push_str("    }\n");
}

/// `on_the_way` → `onTheWay`, `URL` → `url`.
fn camel(name: &str) -> String {
    let pascal = pascal(name);
    let (first, rest) = pascal.split_at(1);
    match rest.contains(|letter: char| letter.is_ascii_lowercase()) {
        true => first.to_lowercase() + rest,
        false => pascal.to_lowercase(),
    }
}

/// `already-present` → `ALREADY_PRESENT`, `NotFound` → `NOT_FOUND`.
fn screaming(word: &str) -> String {
    let mut screaming = String::new();
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        screaming.push('_');
    }
    let mut was_small = false;
    for letter in word.chars() {
        let is_mark = !letter.is_ascii_alphanumeric();
        if is_mark || was_small && letter.is_ascii_uppercase() {
            screaming.push('_');
        }
        was_small = letter.is_ascii_lowercase();
        if !is_mark {
            screaming.push(letter.to_ascii_uppercase());
        }
    }
    screaming
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_java() {
        assert_eq!([camel("on_the_way"), camel("URL")], ["onTheWay", "url"]);
        let words = ["already-present", "NotFound", "TOO_MANY", "2nd"].map(screaming);
        assert_eq!(words, ["ALREADY_PRESENT", "NOT_FOUND", "TOO_MANY", "_2ND"]);
    }
}
