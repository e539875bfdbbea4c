//! The OpenAPI 3.1 document, generated from the types of the registry: a path for each command and query.

mod commands;
mod contract;
mod described;
mod names;
mod paths;
mod tidy;

pub use contract::contract;
pub use described::{Described, Route};

use crate::{
    error::StartError,
    kinds::{Kinds, Names, Refusal, kebab},
};
use bytes::Bytes;
use commands::CommandDoc;
use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use throng::{ActorKind, Registry};

/// The document's facts about the service as a whole.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) title: String,
    pub(crate) version: String,
    pub(crate) description: String,
    /// An app's own routes.
    pub(crate) described: Vec<Described>,
    /// The ways in which a caller is authenticated.
    pub(crate) credentials: Credentials,
    /// An app's own `paths` and `components`, merged in.
    pub(crate) fragments: Vec<Value>,
    /// Administration has a listener, and so a document, of its own.
    pub(crate) has_admin_listener: bool,
}

impl Default for About {
    fn default() -> Self {
        Self {
            title: "Throng service".into(),
            version: "1".into(),
            description: String::new(),
            described: Vec::new(),
            credentials: Credentials::default(),
            fragments: Vec::new(),
            has_admin_listener: false,
        }
    }
}

/// The ways in which a caller is authenticated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credentials {
    pub(crate) by_token: bool,
    pub(crate) by_certificate: bool,
    /// Requests without credentials are let in, too.
    pub(crate) is_optional: bool,
}

impl Credentials {
    /// The schemes of the document, and which of them a request needs.
    fn write(self, document: &mut Value) {
        let schemes = [
            (self.by_token, "token", json!({ "type": "http", "scheme": "bearer" })),
            (self.by_certificate, "certificate", json!({ "type": "mutualTLS" })),
        ];
        let mut needs = Vec::new();
        for (name, scheme) in schemes
            .into_iter()
            .filter_map(|(is, name, scheme)| is.then_some((name, scheme)))
        {
            document["components"]["securitySchemes"][name] = scheme;
            let mut one = Map::new();
            one.insert(name.into(), json!([]));
            needs.push(Value::Object(one));
        }
        if self.is_optional && !needs.is_empty() {
            needs.push(json!({}));
        }
        document["security"] = Value::Array(needs);
    }
}

/// The names and documents of a registry's types.
pub(crate) struct Known {
    pub(crate) kinds: Kinds,
    pub(crate) document: Bytes,
    /// The document of the listener for administration, if it has one.
    pub(crate) admin_document: Option<Bytes>,
}

/// Describes a registry and actors, without hidden kinds and commands that are not public.
pub(crate) fn describe(
    registry: &Registry,
    actors: &[ActorKind],
    about: &About,
    hidden: &[String],
) -> Result<Known, StartError> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let schemas: Vec<paths::KindSchemas> = registry
        .kinds()
        .iter()
        .map(|kind| paths::KindSchemas::of(kind, &mut generator))
        .collect();
    let of_actor_schemas: Vec<paths::KindSchemas> = actors
        .iter()
        .map(|kind| paths::KindSchemas::of_actor(kind, &mut generator))
        .collect();
    let mut own = Map::new();
    for described in &about.described {
        described.write(&mut own, &mut generator);
    }
    let mut definitions = generator.take_definitions(true);
    let kinds = registry.kinds().iter().map(|kind| kind.name);
    let mut known = kinds.chain(actors.iter().map(|kind| kind.name));
    if let Some(kind) = hidden.iter().find(|hidden| !known.any(|kind| kind == *hidden)) {
        let kind = kind.clone();
        return Err(StartError::NoSuchKind { kind });
    }
    let mut all = Map::new();
    let mut kinds = Kinds::default();
    let of_kinds = registry.kinds().iter().zip(&schemas);
    let of_kinds = of_kinds.map(|(kind, schemas)| (kind.name, kind.public, schemas, Some(kind)));
    let of_actors = actors.iter().zip(&of_actor_schemas);
    let of_actors = of_actors.map(|(kind, schemas)| (kind.name, kind.public, schemas, None));
    for (name, public, schemas, kind) in of_kinds.chain(of_actors) {
        let all_commands = commands::of(&schemas.command, &definitions);
        let replying = kind.into_iter().flat_map(|kind| kind.replies);
        check_names(name, "REPLIES", replying.map(|reply| reply.command), &all_commands)?;
        let commands = Commands::of(name, public, all_commands)?;
        let is_hidden = kind.is_some_and(|kind| kind.is_internal) || hidden.iter().any(|hidden| hidden == name);
        match kind {
            _ if is_hidden => {}
            Some(kind) => {
                let events = commands::of(&schemas.event, &definitions);
                all.extend(paths::of(kind, schemas, &commands.public, &events));
                definitions.extend(paths::events(kind.name, &events));
            }
            None => all.extend(paths::of_actor(name, schemas, &commands.public)),
        }
        let queries = kind.into_iter().flat_map(|kind| &kind.queries);
        kinds.0.push(Names {
            kind: name,
            commands: public.iter().map(|name| (*name).to_owned()).collect(),
            internal: commands.internal,
            is_hidden,
            queries: queries.map(|query| query.name).collect(),
            rejections: rejections(&schemas.rejection, &definitions),
            is_actor: kind.is_none(),
        });
    }
    all.extend(own);
    all.extend(paths::own(!about.has_admin_listener));
    let tags: Vec<Value> = paths::tags(&kinds)
        .into_iter()
        .chain(about.described.iter().map(Described::tag))
        .collect();
    definitions.insert("Problem".into(), paths::problem_schema());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": { "title": about.title, "version": about.version, "description": about.description },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": all,
        "components": { "schemas": definitions, "responses": paths::problem_responses() },
    });
    about.credentials.write(&mut document);
    if !about.has_admin_listener {
        document["components"]["securitySchemes"]["administration"] = json!({ "type": "http", "scheme": "bearer" });
    }
    for fragment in &about.fragments {
        merge(&mut document, fragment);
    }
    let names = registry.kinds().iter().map(|kind| kind.name);
    let names = names.chain(actors.iter().map(|kind| kind.name));
    let named: Vec<_> = names
        .zip(schemas.iter().chain(&of_actor_schemas))
        .map(|(name, schemas)| (name, schemas.all().collect()))
        .collect();
    names::distinguish(&mut document, &named);
    tidy::tidy(&mut document);
    prune(&mut document);
    let written = |document: &Value| serde_json::to_vec(document).unwrap_or_default().into();
    Ok(Known {
        kinds,
        document: written(&document),
        admin_document: about.has_admin_listener.then(|| written(&administration(about))),
    })
}

/// The document of the listener for administration.
fn administration(about: &About) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": format!("{}: administration", about.title), "version": about.version },
        "servers": [{ "url": "/" }],
        "security": [],
        "tags": [{ "name": "service" }],
        "paths": paths::own(true),
        "components": { "securitySchemes": { "administration": { "type": "http", "scheme": "bearer" } } },
    })
}

/// A kind, with the schemas of its messages.
pub(crate) struct KindShown {
    pub(crate) name: &'static str,
    pub(crate) is_actor: bool,
    pub(crate) commands: Vec<Value>,
    pub(crate) queries: Vec<Value>,
}

/// Returns all kinds, including hidden ones, with all their commands. Their schemas refer to `#/definitions/`.
pub(crate) fn kinds(registry: &Registry, actors: &[ActorKind]) -> (Vec<KindShown>, Map<String, Value>) {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/definitions".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut asked: Vec<_> = Vec::new();
    for kind in registry.kinds() {
        let queries = kind.queries.iter().map(|query| {
            let schema = (query.arguments_schema)(&mut generator);
            json!({ "name": query.name, "schema": schema })
        });
        let queries = queries.collect();
        asked.push((
            kind.name,
            kind.public,
            false,
            (kind.command_schema)(&mut generator),
            queries,
        ));
    }
    for kind in actors {
        let schema = (kind.command_schema)(&mut generator);
        asked.push((kind.name, kind.public, true, schema, Vec::new()));
    }
    let definitions = generator.take_definitions(true);
    let shown = asked.into_iter().map(|(name, public, is_actor, schema, queries)| {
        let commands = commands::of(&schema, &definitions).into_iter().map(|command| {
            json!({
                "name": command.name, "is_public": public.contains(&command.name.as_str()),
                "description": command.description, "schema": command.body,
            })
        });
        KindShown {
            name,
            is_actor,
            commands: commands.collect(),
            queries,
        }
    });
    (shown.collect(), definitions)
}

/// A kind's commands, as its schema has them.
struct Commands {
    /// The commands that clients may send.
    public: Vec<CommandDoc>,
    /// The names of the others.
    internal: Vec<String>,
}

impl Commands {
    fn of(kind: &'static str, public: &'static [&'static str], all: Vec<CommandDoc>) -> Result<Self, StartError> {
        check_names(kind, "PUBLIC", public.iter().copied(), &all)?;
        if public.is_empty() && !all.is_empty() {
            tracing::info!("no command of the kind {kind} is public: clients can only read (PUBLIC of its type)");
        }
        let (public, internal): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|command| public.contains(&command.name.as_str()));
        Ok(Self {
            public,
            internal: internal.into_iter().map(|command| command.name).collect(),
        })
    }
}

/// Holds the names in a list of a kind against its commands.
fn check_names(
    kind: &'static str,
    list: &'static str,
    mut names: impl Iterator<Item = &'static str>,
    commands: &[CommandDoc],
) -> Result<(), StartError> {
    let is_command = |name: &str| commands.iter().any(|command| command.name == name);
    // A type may hide its commands from its schema.
    match names.find(|name| !commands.is_empty() && !is_command(name)) {
        None => Ok(()),
        Some(command) => {
            let known: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
            let known = known.join(", ");
            Err(StartError::NoSuchCommand {
                kind,
                command,
                list,
                known,
            })
        }
    }
}

/// Leaves out the schemas that nothing refers to: those of commands that are not public.
fn prune(document: &mut Value) {
    loop {
        let text = document.to_string();
        let Some(schemas) = document
            .pointer_mut("/components/schemas")
            .and_then(Value::as_object_mut)
        else {
            return;
        };
        let before = schemas.len();
        schemas.retain(|name, _| text.contains(&format!("\"#/components/schemas/{name}\"")));
        if schemas.len() == before {
            return;
        }
    }
}

/// Returns the codes of a kind's rejections: its variants, or the type itself, as words joined by hyphens.
fn rejections(schema: &Schema, definitions: &Map<String, Value>) -> Vec<Refusal> {
    let mut found: Vec<_> = commands::of(schema, definitions)
        .into_iter()
        .map(|variant| Refusal {
            code: kebab(&variant.name).into_owned(),
            description: variant.description,
        })
        .collect();
    let of_type = schema.get("$ref").and_then(Value::as_str);
    if let Some(name) = of_type.and_then(|reference| reference.rsplit('/').next()) {
        let description = definitions.get(name).and_then(|schema| schema.get("description"));
        found.push(Refusal {
            code: kebab(name).into_owned(),
            description: description.and_then(Value::as_str).map(str::to_owned),
        });
    }
    found
}

/// Merges objects, joins lists, and replaces everything else.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.iter().cloned()),
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::model::{
        Attempt, CallError, CallId, CallOutcome, CommandAnswer, CommandReply, Entity, OnCallOutcome, Outside, Turn,
    };
    use throng_testing::fixtures::{Command, Counter};

    #[test]
    fn fragments_are_merged_deeply() {
        let mut document = json!({ "info": { "title": "a", "version": "1" }, "tags": [1] });
        merge(
            &mut document,
            &json!({ "info": { "title": "b" }, "tags": [2], "x": true }),
        );
        assert_eq!(
            document,
            json!({ "info": { "title": "b", "version": "1" }, "tags": [1, 2], "x": true })
        );
    }

    struct Mail;

    impl Outside for Mail {
        const NAME: &'static str = "mail";
        type Request = String;
        type Answer = u64;
        type Failure = String;

        async fn call(&self, _: String, _: &Attempt) -> Result<u64, CallError<String>> {
            Ok(1)
        }
    }

    impl OnCallOutcome<Mail> for Counter {
        fn on_call_outcome(_: CallId, _: CallOutcome<u64, String>) -> Command {
            Command::Hit {}
        }

        fn on_late_answer(_: CallId, _: Result<u64, String>) -> Command {
            Command::Hit {}
        }
    }

    #[test]
    fn calls_have_no_routes_and_stand_in_no_document() {
        let mut registry = Registry::default();
        registry.add::<Counter>();
        registry.add_outside::<Counter, Mail>();
        let known = describe(&registry, &[], &About::default(), &[]).unwrap();
        assert_eq!(known.kinds.names(), ["counter"]);
        assert!(known.kinds.find("call-mail").is_none());
        let document = str::from_utf8(&known.document).unwrap();
        assert!(document.contains("/api/counter") && !document.contains("call-mail"));
    }

    #[derive(Default, serde::Serialize, serde::Deserialize)]
    struct Zone;

    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Ask {
        Hold {},
        Wait {},
        Close {},
    }

    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Held {
        seats: Vec<u32>,
    }

    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Place(u32);

    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[serde(untagged)]
    enum Reply {
        Held(Held),
        Place(Place),
    }

    impl Entity for Zone {
        const KIND: &'static str = "zone";
        const PUBLIC: &'static [&'static str] = &["hold", "wait", "close"];
        const REPLIES: &'static [CommandReply] = &[CommandReply::of::<Held>("hold"), CommandReply::of::<Place>("wait")];
        type Id = String;
        type Command = Ask;
        type Event = throng_testing::fixtures::CounterEvent;
        type Reply = Reply;
        type Rejection = throng_testing::fixtures::Dislike;

        fn decide(&self, _: Ask, _: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Self::Rejection> {
            Ok(CommandAnswer::Now(Reply::Place(Place(1))))
        }

        fn evolve(&mut self, _: &Self::Event) {}
    }

    #[test]
    fn command_is_shown_with_its_own_reply() {
        let mut registry = Registry::default();
        registry.add::<Zone>();
        let known = describe(&registry, &[], &About::default(), &[]).unwrap();
        let document: Value = serde_json::from_slice(&known.document).unwrap();
        let reply = |command: &str| {
            let post = &document["paths"][format!("/api/zone/{{id}}/{command}")]["post"];
            post["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].clone()
        };
        assert_eq!(
            ["hold", "wait", "close"].map(reply),
            ["Held", "Place", "Reply"].map(|name| format!("#/components/schemas/{name}"))
        );
    }

    #[test]
    fn reply_of_a_command_that_is_none_stops_the_start() {
        let commands = [CommandDoc {
            name: "hold".into(),
            description: None,
            body: Value::Null,
        }];
        let wrong = check_names("zone", "REPLIES", ["hold", "holdd"].into_iter(), &commands).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "\"holdd\" is in REPLIES of the kind \"zone\", and is none of its commands; they are: hold"
        );
    }
}
