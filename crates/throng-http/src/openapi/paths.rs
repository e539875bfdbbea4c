//! The paths of the document.

use super::commands::CommandDoc;
use crate::{
    kinds::{Kinds, kebab},
    limits::{KEY_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX},
    problem::CATALOG,
};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use throng::{ActorKind, Kind, model::View};

/// The schemas of a kind, as references into the components.
pub(super) struct KindSchemas {
    pub(super) command: Schema,
    pub(super) event: Schema,
    reply: Schema,
    /// The replies of commands that have a type of their own.
    replies: Vec<(&'static str, Schema)>,
    pub(super) rejection: Schema,
    /// Fields and answer of each query.
    queries: Vec<(Schema, Schema)>,
}

impl KindSchemas {
    pub(super) fn of(kind: &Kind, generator: &mut SchemaGenerator) -> Self {
        Self {
            command: (kind.command_schema)(generator),
            event: (kind.event_schema)(generator),
            reply: (kind.reply_schema)(generator),
            replies: replies(kind, generator),
            rejection: (kind.rejection_schema)(generator),
            queries: kind
                .queries
                .iter()
                .map(|query| ((query.arguments_schema)(generator), (query.answer_schema)(generator)))
                .collect(),
        }
    }

    pub(super) fn of_actor(kind: &ActorKind, generator: &mut SchemaGenerator) -> Self {
        Self {
            command: (kind.command_schema)(generator),
            event: Schema::default(),
            reply: (kind.reply_schema)(generator),
            replies: Vec::new(),
            rejection: (kind.rejection_schema)(generator),
            queries: Vec::new(),
        }
    }
}

/// The form of a `Request-Timeout`.
const TIMEOUT: &str = r"^([0-9]+(\.[0-9]+)?|[0-9]+ms)$";

impl KindSchemas {
    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Schema> {
        let queries = self.queries.iter().flat_map(|(fields, answer)| [fields, answer]);
        [&self.command, &self.event, &self.reply, &self.rejection]
            .into_iter()
            .chain(self.replies.iter().map(|(_, schema)| schema))
            .chain(queries)
    }

    fn reply(&self, command: &str) -> &Schema {
        let own = self.replies.iter().find(|(of, _)| *of == command);
        own.map_or(&self.reply, |(_, schema)| schema)
    }
}

/// The schemas of a kind's [replies](throng::model::Entity::REPLIES), by the command.
pub(super) fn replies(kind: &Kind, generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
    let replies = kind.replies.iter();
    replies
        .map(|reply| (reply.command, (reply.schema)(generator)))
        .collect()
}

/// Problems by the routes they can come from.
pub(super) const READ_PROBLEMS: &[&str] = &[
    "malformed",
    "unauthorized",
    "forbidden",
    "unknown",
    "overloaded",
    "crashed",
    "late",
];
pub(super) const WRITE_PROBLEMS: &[&str] = &[
    "malformed",
    "unauthorized",
    "forbidden",
    "unknown",
    "too-large",
    "unsupported-media-type",
    "key-reused",
    "overloaded",
    "crashed",
    "late",
];

/// All paths of a kind.
pub(super) fn of(
    kind: &Kind,
    schemas: &KindSchemas,
    commands: &[CommandDoc],
    events: &[CommandDoc],
) -> Map<String, Value> {
    let mut paths = Map::new();
    let name = kind.name;
    paths.insert(format!("/api/{name}"), json!({ "get": list(name) }));
    for command in commands {
        let path = format!("/api/{name}/{{id}}/{}", command.name);
        paths.insert(path, json!({ "post": post(name, schemas, command) }));
    }
    for (query, (fields, answer)) in kind.queries.iter().zip(&schemas.queries) {
        let path = if query.name == View::NAME {
            format!("/api/{name}/{{id}}")
        } else {
            format!("/api/{name}/{{id}}/{}", query.name)
        };
        merge_method(&mut paths, path, "get", get(name, query.name, schemas, fields, answer));
    }
    merge_method(
        &mut paths,
        format!("/api/{name}/{{id}}/events"),
        "get",
        history(name, events),
    );
    paths
}

/// All paths of a kind of actor.
pub(super) fn of_actor(kind: &str, schemas: &KindSchemas, commands: &[CommandDoc]) -> Map<String, Value> {
    let paths = commands.iter().map(|command| {
        let mut post = post(kind, schemas, command);
        post["parameters"] = json!([id(kind), timeout(), trace()]);
        post["responses"]["200"] = content("The reply.", &schemas.reply);
        (format!("/api/{kind}/{{id}}/{}", command.name), json!({ "post": post }))
    });
    paths.collect()
}

/// A command and a query may share a path.
fn merge_method(paths: &mut Map<String, Value>, path: String, method: &str, operation: Value) {
    if let Value::Object(methods) = paths.entry(path).or_insert_with(|| json!({})) {
        methods.insert(method.into(), operation);
    }
}

fn id(kind: &str) -> Value {
    let description = format!("Which {kind}: 1 to 256 bytes, percent-encoded.");
    json!({ "name": "id", "in": "path", "required": true, "description": description, "schema": { "type": "string", "minLength": 1, "maxLength": 256 } })
}

fn trace() -> Value {
    let description = "The trace this command is a part of (W3C trace context): it runs in a span of it.";
    json!({ "name": "traceparent", "in": "header", "description": description, "schema": { "type": "string", "examples": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] } })
}

pub(super) fn key() -> Value {
    json!({
        "name": "Idempotency-Key", "in": "header", "schema": { "type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[!-~]+$" },
        "description": "Under one key a command takes effect once, and gets the same answer again, for one hour. What its entity refused under a key stays refused under it for minutes: ask again with a fresh key.",
    })
}

fn timeout() -> Value {
    let description = "How long to wait at most: seconds such as 2 or 0.5, or milliseconds such as 500ms.";
    json!({ "name": "Request-Timeout", "in": "header", "description": description, "schema": { "type": "string", "pattern": TIMEOUT, "examples": ["2", "500ms"] } })
}

fn post(kind: &str, schemas: &KindSchemas, command: &CommandDoc) -> Value {
    let name = &command.name;
    let mut responses = problems(WRITE_PROBLEMS);
    responses.insert(
        "200".into(),
        content("The reply; what it rests on is durable.", schemas.reply(name)),
    );
    responses.insert("409".into(), rejection(kind, &schemas.rejection));
    let mut operation = json!({
        "tags": [kind],
        "operationId": format!("{kind}-{}", kebab(name)),
        "summary": command.description.as_deref().and_then(|text| text.lines().next()).unwrap_or(name),
        "parameters": [id(kind), key(), timeout(), trace()],
        "requestBody": { "required": true, "content": { "application/json": { "schema": command.body } } },
        "responses": responses,
    });
    if let Some(description) = &command.description {
        operation["description"] = json!(description);
    }
    operation
}

fn get(kind: &str, query: &str, schemas: &KindSchemas, fields: &Schema, answer: &Schema) -> Value {
    let mut responses = problems(READ_PROBLEMS);
    responses.insert("200".into(), content("The answer, from the state as of now.", answer));
    responses.insert("409".into(), rejection(kind, &schemas.rejection));
    // The fields of an object, as form parameters of the query string.
    let fields = json!({ "name": "fields", "in": "query", "style": "form", "explode": true, "schema": fields });
    json!({
        "tags": [kind], "operationId": format!("{kind}-get-{query}"), "summary": format!("Asks a {kind} for its {query}"),
        "parameters": [id(kind), timeout(), fields], "responses": responses,
    })
}

/// The component of a kind's event of a name; a component's name is of these letters.
fn event_name(kind: &str, event: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    format!("{kind}.event.{}", event.replace(|letter| !is_plain(letter), "_"))
}

/// A schema for each event of a kind. Its `name` is a constant, so that a reader tells events with the same content apart.
pub(super) fn events(kind: &str, events: &[CommandDoc]) -> Map<String, Value> {
    let schema = |event: &CommandDoc| {
        let name = json!({ "type": "string", "const": event.name });
        (event_name(kind, &event.name), event_schema(&name, &event.body))
    };
    events.iter().map(schema).collect()
}

fn event_schema(name: &Value, payload: &Value) -> Value {
    json!({
        "type": "object", "required": ["seq", "name", "version", "at", "position", "payload"],
        "properties": {
            "seq": { "type": "integer", "description": "1, 2, 3, … without a gap" },
            "name": name, "version": { "type": "integer" }, "at": { "type": "string", "format": "date-time" },
            "position": { "type": "string", "description": "The commit that made it true, writer.commit" },
            "payload": payload,
        },
    })
}

fn history(kind: &str, events: &[CommandDoc]) -> Value {
    let component = |event: &CommandDoc| {
        let name = event_name(kind, &event.name);
        json!({ "$ref": format!("#/components/schemas/{name}") })
    };
    let event = match events {
        [] => event_schema(&json!({ "type": "string" }), &json!({})),
        events => json!({ "oneOf": events.iter().map(component).collect::<Vec<_>>() }),
    };
    let page = json!({
        "type": "object", "required": ["events", "next"],
        "properties": { "events": { "type": "array", "items": event }, "next": { "type": ["integer", "null"], "description": "What to give as `after` for the next page" } },
    });
    let mut responses = problems(READ_PROBLEMS);
    let ok = json!({
        "description": "The events in order; as a stream, those to come, too.",
        "content": { "application/json": { "schema": page }, "text/event-stream": { "schema": { "type": "string" } } },
    });
    responses.insert("200".into(), ok);
    responses.append(&mut problems(&["gone"]));
    let last = json!({ "name": "Last-Event-ID", "in": "header", "schema": { "type": "string" }, "description": "Of a stream: go on after the event with this id; a sequence number is one, too." });
    let after = json!({ "name": "after", "in": "query", "schema": { "type": "integer", "minimum": 0, "default": 0 }, "description": "After this sequence number" });
    json!({
        "tags": [kind], "operationId": format!("{kind}-events"), "summary": format!("What has happened to a {kind}"),
        "description": "Only what is durable. With `Accept: text/event-stream` the events come live.",
        "parameters": [id(kind), after, limit(), last], "responses": responses,
    })
}

fn list(kind: &str) -> Value {
    let entity = json!({
        "type": "object", "required": ["id", "seq"],
        "properties": { "id": { "type": "string" }, "seq": { "type": "integer", "description": "How many events it has had" } },
    });
    let page = json!({
        "type": "object", "required": ["entities", "next"],
        "properties": { "entities": { "type": "array", "items": entity }, "next": { "type": ["string", "null"], "description": "What to give as `after` for the next page" } },
    });
    let mut responses = problems(READ_PROBLEMS);
    responses.insert(
        "200".into(),
        json!({ "description": "In the order of their ids", "content": { "application/json": { "schema": page } } }),
    );
    let after =
        json!({ "name": "after", "in": "query", "schema": { "type": "string" }, "description": "After this id" });
    json!({
        "tags": [kind], "operationId": format!("{kind}-list"), "summary": format!("Which {kind} entities there are"),
        "parameters": [after, limit()], "responses": responses,
    })
}

fn limit() -> Value {
    json!({ "name": "limit", "in": "query", "schema": { "type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT }, "description": "At most so many" })
}

pub(super) fn content(description: &str, schema: &Schema) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

pub(super) fn rejection(kind: &str, schema: &Schema) -> Value {
    let with = json!({ "allOf": [{ "$ref": "#/components/schemas/Problem" }, { "type": "object", "properties": { "rejection": schema } }] });
    json!({ "description": format!("The {kind} said no; nothing was done. A rejection may have another status of 4xx."), "content": { "application/problem+json": { "schema": with } } })
}

pub(super) fn problems(which: &[&str]) -> Map<String, Value> {
    let responses = problem_responses();
    let with = |name: &&str| {
        let status = responses.get(*name)?.get("x-status")?.as_str()?.to_owned();
        Some((status, json!({ "$ref": format!("#/components/responses/{name}") })))
    };
    which.iter().filter_map(with).collect()
}

/// The gateway's own problems as responses, by a name of their status.
pub(super) fn problem_responses() -> Map<String, Value> {
    let groups: [(&str, u16); 12] = [
        ("malformed", 400),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("unknown", 404),
        ("gone", 410),
        ("too-large", 413),
        ("unsupported-media-type", 415),
        ("key-reused", 422),
        ("crashed", 500),
        ("overloaded", 503),
        ("late", 504),
        ("storage-full", 507),
    ];
    let response = |(name, status): (&str, u16)| {
        let types: Vec<String> = CATALOG
            .iter()
            .filter(|entry| entry.status == status)
            .map(|entry| format!("`/problems/{}`: {}", entry.slug, entry.title))
            .collect();
        (
            name.to_owned(),
            json!({ "description": types.join("\n"), "x-status": status.to_string(), "content": { "application/problem+json": problem_content() } }),
        )
    };
    groups.into_iter().map(response).collect()
}

pub(super) fn problem_content() -> Value {
    json!({ "schema": { "$ref": "#/components/schemas/Problem" } })
}

/// RFC 9457, with the gateway's members.
pub(super) fn problem_schema() -> Value {
    json!({
        "type": "object", "required": ["type", "title", "status", "detail"],
        "description": "Problem details (RFC 9457).",
        "properties": {
            "type": { "type": "string", "format": "uri-reference", "description": "Stable: match on it" },
            "title": { "type": "string" }, "status": { "type": "integer" },
            "detail": { "type": "string", "description": "A sentence: what was found, and what to do" },
            "field": { "type": "string", "description": "The field at fault" },
            "line": { "type": "integer", "description": "Of the JSON body" }, "column": { "type": "integer" },
            "instance": { "type": "string", "format": "uri-reference" },
            "retry_after_s": { "type": "integer" },
            "rejection": { "description": "What the entity said, in its own words" },
        },
        "x-types": CATALOG.iter().map(|entry| json!({ "type": format!("/problems/{}", entry.slug), "status": entry.status, "title": entry.title, "meaning": entry.meaning })).collect::<Vec<_>>(),
    })
}

/// A page: its method, path, operation and media type, and what it is for.
macro_rules! pages {
    ($($method:literal $path:literal $id:literal $media:literal: $summary:literal;)*) => {
        &[$([$method, $path, $id, $media, $summary]),*]
    };
}

const PAGES: &[[&str; 5]] = pages! {
    "get" "/health/live" "live" "application/json": "Does the process answer?";
    "get" "/health/ready" "ready" "application/json": "Are commands taken?";
    "get" "/metrics" "metrics" "text/plain": "Counters, levels and histograms, for Prometheus (OpenMetrics where that is accepted)";
    "get" "/admin/audit" "audit" "application/json": "Actions of administration: the last events, or those before one; before, limit";
    "get" "/admin/audit/export" "export-audit" "application/x-ndjson": "All actions of administration, one JSON line an event";
    "get" "/admin/dead" "dead" "application/json": "Messages nobody could take; kind, id, cause, after, limit";
    "get" "/admin/dead/export" "export-dead" "application/x-ndjson":
        "The same with their content, one a line, all of them; kind, id, cause";
    "post" "/admin/dead/retry" "retry-dead" "application/json":
        "Has dead messages tried again: one (kind, id, number), all to an entity (kind, id), or all of a kind or cause (kind, cause)";
    "post" "/admin/dead/drop" "drop-dead" "application/json":
        "Drops a dead message (kind, id, number), or all of a kind or cause (kind, id, cause), for a reason: none is ever taken";
    "post" "/admin/timer/cancel" "cancel-timer" "application/json": "Cancels a timer (kind, id, name) that could not be fired, for a reason";
    "post" "/admin/projection/rebuild" "rebuild-projection" "application/json":
        "Has a projection or sink (name) begin anew, from the first event that is kept";
    "post" "/admin/projection/resume" "resume-projection" "application/json":
        "Has a projection or sink (name) try again the event it has stopped at";
    "post" "/admin/call/attempt" "attempt-call" "application/json":
        "Has the next attempt of a call outside (kind, id; a reason if you like) made now";
    "post" "/admin/call/give-up" "give-up-call" "application/json":
        "Gives up a call outside (kind, id), for a reason: its entity hears that nothing was sent, or that the outcome is not known";
    "get" "/admin/stuck" "stuck" "application/json": "Entities that are quarantined or cannot be brought back, and why";
    "post" "/admin/quarantine" "quarantine" "application/json":
        "Quarantines an entity (kind, id), for a reason: it has no turn, and what comes for it waits, until it is released";
    "post" "/admin/messages/drop" "drop-messages" "application/json":
        "Drops the messages that wait for an entity (kind, id) which an operator has quarantined, for a reason";
    "post" "/admin/release" "release" "application/json":
        "Ends the quarantine of an entity (kind, id; a reason if you like): it takes what has waited, and is loaded again if it could not be";
    "post" "/admin/prune" "prune" "application/json": "Removes the history that is kept no longer; with dry_run=true, says what would go";
    "post" "/admin/erase" "erase" "application/json": "Ends an entity (kind, id) and overwrites all that is recorded of it";
    "post" "/admin/compact" "compact" "application/json": "Gives back the room of the store's file that no row needs any more";
    "post" "/admin/cluster/drain" "drain-node" "application/json": "Has a node of the cluster (name) give away all its shards";
    "post" "/admin/cluster/undrain" "undrain-node" "application/json": "Lets a node of the cluster (name) own shards again";
    "post" "/admin/cluster/pin" "pin-shards" "application/json": "Pins shards (shards, such as 0-9,17) to a node (to), or to none";
    "get" "/openapi.json" "openapi" "application/json": "This document";
};

/// The gateway's own pages, with those for operators or without.
pub(super) fn own(with_administration: bool) -> Map<String, Value> {
    let mut paths = Map::new();
    for [method, path, id, media, summary] in PAGES {
        let is_administration = path.starts_with("/admin/") || *path == "/metrics";
        if is_administration && !with_administration {
            continue;
        }
        let mut responses = json!({ "200": { "description": summary, "content": { *media: {} } } });
        if *id == "ready" {
            responses["503"] =
                json!({ "description": "Not now; `reason` says why", "content": { "application/json": {} } });
        }
        // Operators of the same machine may need no token.
        let security = match is_administration {
            true => json!([{ "administration": [] }, {}]),
            false => json!([]),
        };
        let operation = json!({ "tags": ["service"], "operationId": id, "summary": summary, "security": security, "responses": responses });
        paths.insert((*path).to_owned(), json!({ *method: operation }));
    }
    paths
}

/// Returns a tag for each kind, and one for the gateway's own routes.
pub(super) fn tags(kinds: &Kinds) -> Vec<Value> {
    let names = kinds.names().into_iter().chain(["service"]);
    names.map(|name| json!({ "name": name })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_headers_and_pages_are_documented() {
        assert_eq!(key()["schema"]["minLength"], 1);
        assert_eq!(key()["schema"]["pattern"], "^[!-~]+$");
        assert_eq!(timeout()["schema"]["pattern"], TIMEOUT);
        let parameters = history("account", &[])["parameters"].take();
        let after = parameters
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == "after"));
        assert_eq!(after.map(|after| &after["schema"]["minimum"]), Some(&json!(0)));
    }
}
