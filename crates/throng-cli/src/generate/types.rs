//! The types of a service by name, for languages in which a nested object needs a name of its own.

use super::document::{Document, Names, about, alternatives, fields, other_fields, pascal, types};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// All types of a service.
#[derive(Debug)]
pub(super) struct Types {
    /// The types, each after those it contains.
    pub(super) definitions: Vec<Definition>,
    pub(super) kinds: BTreeMap<String, KindTypes>,
}

/// A type with a name.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) about: Option<String>,
    pub(super) shape: Shape,
    pub(super) role: Role,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Own,
    /// An event of a kind, or the choice of them.
    Event,
    /// An object that a choice has within it.
    Alternative,
}

#[derive(Debug)]
pub(super) enum Shape {
    Object(Vec<Field>),
    Alias(Type),
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) of: Type,
    pub(super) is_required: bool,
}

/// A type where it is used.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Any,
    Null,
    Text,
    Boolean,
    Number,
    /// Its format, as `uint64`.
    Integer(String),
    Named(String),
    Literal(Vec<Value>),
    OneOf(Vec<Self>),
    List(Box<Self>),
    Tuple(Vec<Self>),
    Map(Box<Self>),
}

/// Types of a kind's commands, queries and answers.
#[derive(Debug)]
pub(super) struct KindTypes {
    pub(super) commands: Vec<Command>,
    pub(super) queries: Vec<Query>,
    pub(super) reply: Type,
    pub(super) rejection: Type,
    /// The name of the choice of its events.
    pub(super) event: Option<String>,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) content: Type,
    /// Without content it has a meaning, too.
    pub(super) is_optional: bool,
}

#[derive(Debug)]
pub(super) struct Query {
    pub(super) name: String,
    pub(super) arguments: Type,
    pub(super) answer: Type,
}

/// A choice between several types, by the way JSON distinguishes them.
#[derive(Debug, PartialEq)]
pub(super) enum Choice {
    Words(Vec<String>),
    /// Distinguished by a word, or by the name of an object's only field.
    Tagged(Vec<(String, Option<Type>)>),
    /// Distinguished by the value of a field that all alternatives have. Holds the fields of all of them.
    Merged(Vec<Field>),
    Untold,
}

impl Types {
    pub(super) fn of(document: &Document) -> Self {
        let events = document.kinds.iter().flat_map(|(kind, schemas)| {
            let several = alternatives(&schemas.event)
                .into_iter()
                .flatten()
                .chain([&schemas.event]);
            let named = several.filter_map(|event| document.referred(event).map(str::to_owned));
            named.chain([format!("{}Event", pascal(kind))])
        });
        let mut writer = Writer {
            document,
            events: events.collect(),
            taken: document.taken.clone(),
            definitions: Vec::new(),
        };
        for (name, schema) in &document.schemas {
            writer.define(name, schema, Role::Own);
        }
        let kinds = document.kinds.keys();
        let kinds = kinds.map(|kind| (kind.clone(), writer.kind(kind))).collect();
        Self {
            definitions: writer.definitions,
            kinds,
        }
    }

    pub(super) fn definition(&self, name: &str) -> Option<&Definition> {
        self.definitions.iter().find(|definition| definition.name == name)
    }

    /// Tells whether the schema describes nothing: any object, or any value.
    pub(super) fn is_open(&self, of: &Type) -> bool {
        match of {
            Type::Any => true,
            Type::Map(other) => **other == Type::Any,
            Type::Named(name) => match self.definition(name).map(|definition| &definition.shape) {
                Some(Shape::Alias(of)) => self.is_open(of),
                _ => false,
            },
            _ => false,
        }
    }

    /// The fields of an object that a type names.
    fn object(&self, of: &Type) -> Option<&Vec<Field>> {
        let Type::Named(name) = of else { return None };
        match &self.definition(name)?.shape {
            Shape::Object(fields) => Some(fields),
            Shape::Alias(_) => None,
        }
    }

    pub(super) fn choice(&self, of: &Type) -> Choice {
        let one = std::slice::from_ref(of);
        let several = match of {
            Type::OneOf(several) => several,
            _ => one,
        };
        let words = several.iter().map(words).collect::<Option<Vec<_>>>();
        if let Some(words) = words {
            return Choice::Words(words.concat());
        }
        let tagged = several.iter().map(|of| self.tags(of)).collect::<Option<Vec<_>>>();
        if let Some(tagged) = tagged {
            return Choice::Tagged(tagged.concat());
        }
        self.merged(several).map_or(Choice::Untold, Choice::Merged)
    }

    fn tags(&self, of: &Type) -> Option<Vec<(String, Option<Type>)>> {
        if let Some(words) = words(of) {
            return Some(words.into_iter().map(|word| (word, None)).collect());
        }
        match &self.object(of)?[..] {
            [only] if only.is_required && words(&only.of).is_none() => {
                Some(vec![(only.name.clone(), Some(only.of.clone()))])
            }
            _ => None,
        }
    }

    fn merged(&self, several: &[Type]) -> Option<Vec<Field>> {
        let objects: Vec<&Vec<Field>> = several.iter().map(|of| self.object(of)).collect::<Option<_>>()?;
        let is_tag = |field: &Field| field.is_required && words(&field.of).is_some();
        let tag = &objects.first()?.iter().find(|field| is_tag(field))?.name;
        let mut merged: Vec<Field> = Vec::new();
        for &fields in &objects {
            fields.iter().find(|field| field.name == *tag && is_tag(field))?;
            for field in fields {
                match merged.iter_mut().find(|known| known.name == field.name) {
                    Some(known) if known.of == field.of => {}
                    Some(known) => known.of = if known.name == *tag { Type::Text } else { Type::Any },
                    None => merged.push(field.clone()),
                }
            }
        }
        for field in &mut merged {
            let is_everywhere =
                |fields: &&Vec<Field>| fields.iter().any(|own| own.name == field.name && own.is_required);
            field.is_required = objects.iter().all(is_everywhere);
        }
        Some(merged)
    }

    /// Names of a kind's events, and the types of their payloads.
    pub(super) fn events(&self, kind: &KindTypes) -> Vec<(String, Option<Type>)> {
        let event = kind.event.as_ref().and_then(|name| self.definition(name));
        let several: &[Type] = match event.map(|event| &event.shape) {
            Some(Shape::Alias(Type::OneOf(several))) => several,
            Some(Shape::Alias(one)) => std::slice::from_ref(one),
            _ => &[],
        };
        let payload = |of: &Type| {
            let fields = self.object(of)?;
            let field = |name: &str| fields.iter().find(|field| field.name == name).map(|field| &field.of);
            let name = words(field("name")?)?.concat();
            Some((name, field("payload").cloned()))
        };
        several.iter().filter_map(payload).collect()
    }
}

impl Type {
    /// Returns the other type, if this is a choice between it and `null`.
    pub(super) fn unless_null(&self) -> Option<&Self> {
        match self {
            Self::OneOf(two) => match &two[..] {
                [of, Self::Null] | [Self::Null, of] => Some(of),
                _ => None,
            },
            _ => None,
        }
    }
}

fn words(of: &Type) -> Option<Vec<String>> {
    let Type::Literal(values) = of else { return None };
    values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

struct Writer<'a> {
    document: &'a Document,
    /// Types of events, which have a cursor where they are followed.
    events: BTreeSet<String>,
    taken: Names,
    definitions: Vec<Definition>,
}

impl Writer<'_> {
    fn define(&mut self, name: &str, schema: &Value, role: Role) {
        let is_event = self.events.contains(name);
        let is_object = types(schema) == ["object"] && alternatives(schema).is_none();
        let shape = match is_object && fields(schema).next().is_some() {
            true => {
                let field = |(field, schema, is_required): (&String, &Value, bool)| Field {
                    name: field.clone(),
                    of: self.of(schema, &format!("{name}{}", pascal(field)), Role::Own),
                    is_required,
                };
                let mut fields: Vec<Field> = fields(schema).map(field).collect();
                if is_event {
                    fields.push(Field {
                        name: "cursor".into(),
                        of: Type::Text,
                        is_required: false,
                    });
                }
                Shape::Object(fields)
            }
            false => Shape::Alias(self.of(schema, name, Role::Own)),
        };
        self.definitions.push(Definition {
            name: name.to_owned(),
            about: about(schema),
            shape,
            role: if is_event { Role::Event } else { role },
        });
    }

    /// Returns the type of a schema. An object in it becomes a type of its own, named after `name`.
    fn of(&mut self, schema: &Value, name: &str, role: Role) -> Type {
        if let Some(name) = self.document.referred(schema) {
            return Type::Named(name.to_owned());
        }
        if let Some(value) = schema.get("const") {
            return Type::Literal(vec![value.clone()]);
        }
        if let Some(values) = schema["enum"].as_array() {
            return Type::Literal(values.clone());
        }
        if let Some(several) = alternatives(schema) {
            let each = several.iter().enumerate();
            let each = each.map(|(at, schema)| self.of(schema, &variant(name, at, schema), Role::Alternative));
            return one_of(each.collect());
        }
        // No target language has a type that is two types at once.
        if schema["allOf"].is_array() {
            return Type::Any;
        }
        let each = types(schema)
            .into_iter()
            .map(|one| self.of_type(one, schema, name, role));
        one_of(each.collect())
    }

    fn of_type(&mut self, one: &str, schema: &Value, name: &str, role: Role) -> Type {
        match one {
            "string" => Type::Text,
            "boolean" => Type::Boolean,
            "null" => Type::Null,
            "number" => Type::Number,
            "integer" => Type::Integer(schema["format"].as_str().unwrap_or_default().to_owned()),
            "array" => match schema["prefixItems"].as_array() {
                Some(items) => {
                    let items = items.iter().enumerate();
                    let items = items.map(|(at, item)| self.of(item, &format!("{name}{at}"), Role::Own));
                    Type::Tuple(items.collect())
                }
                None => Type::List(Box::new(self.of(&schema["items"], &format!("{name}Item"), Role::Own))),
            },
            "object" if fields(schema).next().is_none() => {
                let other = other_fields(schema).map(|other| self.of(other, &format!("{name}Value"), Role::Own));
                Type::Map(Box::new(other.unwrap_or(Type::Any)))
            }
            "object" => {
                let own = self.taken.unique(name);
                let mut object = schema.clone();
                object["type"] = "object".into();
                self.define(&own, &object, role);
                Type::Named(own)
            }
            _ => Type::Any,
        }
    }

    fn kind(&mut self, name: &str) -> KindTypes {
        let document = self.document;
        let kind = &document.kinds[name];
        let own = pascal(name);
        let reply = self.of(&kind.reply, &format!("{own}Reply"), Role::Own);
        let commands = kind.commands.iter().map(|(name, body)| Command {
            name: name.clone(),
            content: self.of(body, &format!("{own}{}", pascal(name)), Role::Own),
            is_optional: body.is_object()
                && body.get("$ref").is_none()
                && !fields(body).any(|(_, _, is_required)| is_required),
        });
        let commands = commands.collect();
        let queries = kind.queries.iter().map(|(name, (arguments, answer))| Query {
            name: name.clone(),
            arguments: match arguments {
                Value::Null => Type::Map(Box::new(Type::Any)),
                schema => self.of(schema, &format!("{own}{}Query", pascal(name)), Role::Own),
            },
            answer: self.of(answer, &format!("{own}{}", pascal(name)), Role::Own),
        });
        let queries = queries.collect();
        let rejection = self.of(&kind.rejection, &format!("{own}Rejection"), Role::Own);
        let event = (!kind.event.is_null()).then(|| {
            let of = self.of(&kind.event, &format!("{own}Event"), Role::Own);
            let name = self.taken.unique(&format!("{own}Event"));
            self.definitions.push(Definition {
                name: name.clone(),
                about: None,
                shape: Shape::Alias(of),
                role: Role::Event,
            });
            name
        });
        KindTypes {
            commands,
            queries,
            reply,
            rejection,
            event,
        }
    }
}

fn one_of(mut several: Vec<Type>) -> Type {
    match several.len() {
        0 => Type::Any,
        1 => several.remove(0),
        _ => Type::OneOf(several),
    }
}

/// Names an alternative after its only field, or else its number.
fn variant(name: &str, at: usize, schema: &Value) -> String {
    let mut fields = fields(schema);
    match (fields.next(), fields.next()) {
        (Some((field, _, true)), None) => format!("{name}{}Variant", pascal(field)),
        _ => format!("{name}{}", at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn choice_of(schema: &Value) -> Choice {
        let document = json!({
            "info": {"title": "service"},
            "paths": {"/api/a/{id}": {"get": {"operationId": "a"}}},
            "components": {"schemas": {"Own": schema}},
        });
        let types = Types::of(&Document::read(&document.to_string(), "").unwrap());
        let Shape::Alias(of) = &types.definition("Own").unwrap().shape else {
            panic!("{types:?}")
        };
        types.choice(of)
    }

    #[test]
    fn choices_are_told_apart_as_json_does() {
        let object =
            |fields: Value, required: &[&str]| json!({"type": "object", "properties": fields, "required": required});
        let low = object(json!({"low": {"type": "integer"}}), &["low"]);
        let tagged = vec![
            ("low".to_owned(), Some(Type::Integer(String::new()))),
            ("full".to_owned(), None),
        ];
        assert_eq!(
            choice_of(&json!({"oneOf": [low, {"const": "full"}]})),
            Choice::Tagged(tagged)
        );
        let words = json!({"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]});
        assert_eq!(
            choice_of(&words),
            Choice::Words(["a", "b", "c"].map(String::from).into())
        );
        let untold = json!({"anyOf": [low, {"type": "string"}]});
        assert_eq!(choice_of(&untold), Choice::Untold);
        let full = object(
            json!({"reason": {"const": "full"}, "seats": {"type": "integer"}}),
            &["reason", "seats"],
        );
        let gone = object(json!({"reason": {"const": "gone"}}), &["reason"]);
        let field = |name: &str, of, is_required| Field {
            name: name.into(),
            of,
            is_required,
        };
        let merged = vec![
            field("reason", Type::Text, true),
            field("seats", Type::Integer(String::new()), false),
        ];
        assert_eq!(choice_of(&json!({"oneOf": [full, gone]})), Choice::Merged(merged));
    }
}
