//! The contract of a service as one document: JSON Schemas of its commands, events, replies, rejections and queries.

use super::{commands, paths};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use throng::{ActorKind, Kind, Registry};

/// The name for a type that is no enum.
const WHOLE: &str = "*";

/// Returns the JSON Schemas of everything that a service's kinds take, record and answer, including hidden kinds and internal commands.
///
/// References point to `#/$defs/` of the same document. Names are sorted, so that two documents can also be compared as text.
#[must_use]
pub fn contract(registry: &Registry, actors: &[ActorKind]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let mut generator = settings.into_generator();
    let of_kinds: Vec<Described> = registry
        .kinds()
        .iter()
        .map(|kind| Described::of(kind, &mut generator))
        .collect();
    let of_actors: Vec<Described> = actors
        .iter()
        .map(|kind| Described::of_actor(kind, &mut generator))
        .collect();
    let definitions = generator.take_definitions(true);
    let written = |all: Vec<Described>| -> Map<String, Value> {
        all.into_iter().map(|kind| kind.written(&definitions)).collect()
    };
    let (kinds, actors) = (written(of_kinds), written(of_actors));
    json!({ "kinds": kinds, "actors": actors, "$defs": definitions })
}

/// The schemas of a kind, and what else its contract says.
struct Described {
    name: &'static str,
    public: &'static [&'static str],
    command: Schema,
    reply: Schema,
    /// The replies of commands that have a type of their own.
    replies: Vec<(&'static str, Schema)>,
    rejection: Schema,
    /// The contract as far as it needs no definitions.
    rest: Value,
    event: Option<(Schema, &'static [(&'static str, u16)])>,
}

impl Described {
    fn of(kind: &Kind, generator: &mut SchemaGenerator) -> Self {
        let queries = kind.queries.iter().map(|query| {
            let (fields, answer) = ((query.arguments_schema)(generator), (query.answer_schema)(generator));
            (query.name.to_owned(), json!({ "fields": fields, "answer": answer }))
        });
        let queries: Map<String, Value> = queries.collect();
        let mut rest = json!({ "ignores_unknown_fields": kind.ignores_unknown_fields, "queries": queries });
        let notes = kind.note_schemas.iter();
        let notes: Map<String, Value> = notes
            .map(|(asked, schema)| ((*asked).to_owned(), schema(generator).into()))
            .collect();
        if !notes.is_empty() {
            rest["notes"] = Value::Object(notes);
        }
        if let Some(schemas) = kind.call_schemas {
            let [request, answer, failure] = schemas(generator);
            rest["call"] = json!({ "request": request, "answer": answer, "failure": failure });
        }
        Self {
            name: kind.name,
            public: kind.public,
            command: (kind.command_schema)(generator),
            reply: (kind.reply_schema)(generator),
            replies: paths::replies(kind, generator),
            rejection: (kind.rejection_schema)(generator),
            rest,
            event: Some(((kind.event_schema)(generator), kind.event_versions)),
        }
    }

    fn of_actor(kind: &ActorKind, generator: &mut SchemaGenerator) -> Self {
        Self {
            name: kind.name,
            public: kind.public,
            command: (kind.command_schema)(generator),
            reply: (kind.reply_schema)(generator),
            replies: Vec::new(),
            rejection: (kind.rejection_schema)(generator),
            rest: json!({}),
            event: None,
        }
    }

    fn written(self, definitions: &Map<String, Value>) -> (String, Value) {
        let mut kind = self.rest;
        let commands = variants(&self.command, definitions).into_iter().map(|(name, schema)| {
            let is_public = self.public.contains(&name.as_str());
            let mut command = json!({ "public": is_public, "schema": schema });
            if let Some((_, reply)) = self.replies.iter().find(|(of, _)| *of == name) {
                command["reply"] = reply.as_value().clone();
            }
            (name, command)
        });
        kind["commands"] = Value::Object(commands.collect());
        kind["reply"] = self.reply.into();
        kind["rejections"] = Value::Object(variants(&self.rejection, definitions));
        if let Some((event, versions)) = self.event {
            kind["events"] = Value::Object(events(&event, versions, definitions));
        }
        (self.name.to_owned(), kind)
    }
}

/// Returns the events with their versions. Events that are only read, and upcast to another name, have no schema.
fn events(schema: &Schema, versions: &[(&str, u16)], definitions: &Map<String, Value>) -> Map<String, Value> {
    let version = |name: &str| {
        versions
            .iter()
            .find(|(of, _)| *of == name)
            .map_or(1, |(_, version)| *version)
    };
    let present = variants(schema, definitions);
    let taken_up = versions.iter().filter(|(name, _)| !present.contains_key(*name));
    let taken_up = taken_up.map(|(name, version)| ((*name).to_owned(), json!({ "version": version })));
    let mut events: Map<String, Value> = taken_up.collect();
    events.extend(present.into_iter().map(|(name, schema)| {
        let version = version(&name);
        (name, json!({ "version": version, "schema": schema }))
    }));
    events
}

/// Returns the variants of an enum by their names; the whole type if it is none.
fn variants(schema: &Schema, definitions: &Map<String, Value>) -> Map<String, Value> {
    let found = commands::of(schema, definitions);
    if found.is_empty() {
        return [(WHOLE.to_owned(), schema.as_value().clone())].into_iter().collect();
    }
    found.into_iter().map(|variant| (variant.name, variant.body)).collect()
}
