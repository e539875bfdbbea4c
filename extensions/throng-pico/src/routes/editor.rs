//! Checking, trying out and installing rulesets that are given as source. Only administrators may, because the settings name no source of such a
//! ruleset.

use super::{answer, channel, refused};
use crate::{
    Picos,
    pico::{Asked, Incoming},
};
use axum::{
    Json,
    extract::{Path, State, rejection::JsonRejection},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use throng_http::{Administrator, Problem};
use throng_krl::{Diagnostic, Value};

/// The most bytes of a ruleset to check or try.
const SOURCE_BYTES_MAX: usize = 256 << 10;

/// The body of a request that checks or installs a ruleset.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// The source in KRL; at most [`SOURCE_BYTES_MAX`] bytes.
    source: String,
}

/// A ruleset, and the event or query to try.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Trying {
    /// The ruleset as in [`Source`]; it need not be installed.
    source: String,
    event: Option<TriedEvent>,
    query: Option<TriedQuery>,
}

/// An event, as in `/sky/event`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TriedEvent {
    domain: String,
    name: String,
    /// The attributes by name; none by default.
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    attrs: Value,
}

/// A query, as in `/sky/cloud`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TriedQuery {
    /// A ruleset of the pico; by default the tried one.
    rid: Option<String>,
    name: String,
    /// The arguments by name; none by default.
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    args: Value,
}

/// The faults of a ruleset, and the parts of it that can be tried.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Checked {
    /// True if it compiles and can be installed.
    sound: bool,
    /// The id, if it can be read.
    rid: Option<String>,
    errors: Vec<SourceLocation>,
    warnings: Vec<SourceLocation>,
    /// The queries with their parameters, and the events with the attributes that the rules ask for.
    #[schemars(with = "serde_json::Value")]
    testing: Value,
}

/// A message about a place in the source.
#[derive(Serialize, JsonSchema)]
pub(super) struct SourceLocation {
    /// The line, from 1.
    line: u32,
    /// The column in characters, from 1.
    column: u32,
    message: String,
}

impl SourceLocation {
    fn of(diagnostic: &Diagnostic) -> Self {
        Self {
            line: diagnostic.location.line,
            column: diagnostic.location.column,
            message: diagnostic.message.clone(),
        }
    }
}

type Body<T> = Result<Json<T>, JsonRejection>;

fn given<T>(body: Body<T>) -> Result<T, Response> {
    body.map(|Json(given)| given).map_err(|rejection| {
        let why = rejection.body_text();
        answer::problem(&format!("TypeError: {why}"), &Problem::malformed(why.clone()))
    })
}

fn bounded(source: String) -> Result<String, Response> {
    if source.len() <= SOURCE_BYTES_MAX {
        return Ok(source);
    }
    let why = format!(
        "The ruleset has {} bytes, at most {SOURCE_BYTES_MAX} are taken.",
        source.len()
    );
    let problem = Problem::malformed(why.clone()).at_field("source");
    Err(answer::problem(&format!("Error: {why}"), &problem))
}

fn checked(source: &str) -> Checked {
    let tree = match throng_krl::parse(source) {
        Ok(tree) => tree,
        Err(error) => {
            let found = match error.found.as_str() {
                "" => String::new(),
                found => format!(", found {found}"),
            };
            return Checked {
                errors: vec![SourceLocation {
                    line: error.location.line,
                    column: error.location.column,
                    message: format!("{}{found}", error.expected),
                }],
                ..Checked::default()
            };
        }
    };
    let rid = Some(tree.rid().to_string());
    match throng_krl::compile(&tree) {
        Ok(program) => Checked {
            sound: true,
            rid,
            errors: Vec::new(),
            warnings: program.warnings().iter().map(SourceLocation::of).collect(),
            testing: program.testing().clone(),
        },
        Err(error) => Checked {
            rid,
            errors: error.diagnostics.iter().map(SourceLocation::of).collect(),
            ..Checked::default()
        },
    }
}

pub(super) async fn check(_: Administrator, body: Body<Source>) -> Result<Response, Response> {
    let source = bounded(given(body)?.source)?;
    Ok(Json(checked(&source)).into_response())
}

/// A ruleset in its standard layout.
#[derive(Serialize, JsonSchema)]
pub(super) struct Formatted {
    source: String,
}

pub(super) async fn format(_: Administrator, body: Body<Source>) -> Result<Response, Response> {
    let source = bounded(given(body)?.source)?;
    let source = throng_krl::format(&source).map_err(|error| {
        let why = format!("The ruleset cannot be formatted: {error}");
        answer::problem(&why, &Problem::malformed(why.clone()).at_field("source"))
    })?;
    Ok(Json(Formatted { source }).into_response())
}

pub(super) async fn try_out(
    _: Administrator,
    State(picos): State<Picos>,
    Path(eci): Path<String>,
    body: Body<Trying>,
) -> Result<Response, Response> {
    let Trying { source, event, query } = given(body)?;
    let (eci, source) = (channel(&eci)?, bounded(source)?);
    let map = |value: Value| match value {
        Value::Null => Value::map::<&str>([]),
        value => value,
    };
    let event = event.map(|event| Incoming {
        via: eci.secret,
        domain: event.domain.into(),
        name: event.name.into(),
        attributes: map(event.attrs),
        ..Incoming::default()
    });
    let asked = query.map(|query| Asked {
        rid: query.rid.or_else(|| checked(&source).rid).unwrap_or_default().into(),
        name: query.name.into(),
        arguments: map(query.args),
    });
    let tried = picos.try_out(eci, source.into(), event, asked).await;
    let tried = tried.map_err(refused)?;
    Ok(Json(tried).into_response())
}

pub(super) async fn install(
    _: Administrator,
    State(picos): State<Picos>,
    Path(eci): Path<String>,
    body: Body<Source>,
) -> Result<Response, Response> {
    let source = bounded(given(body)?.source)?;
    let loaded = picos.install(channel(&eci)?, source).await;
    let loaded = loaded.map_err(refused)?;
    let shown = json!({ "url": loaded.url, "rid": loaded.rid(), "hash": loaded.hash });
    Ok(Json(shown).into_response())
}
