//! `/c/{eci}/export` and `/c/{eci}/import`: the transfer of a pico and all picos below it.

use super::{answer, answer::refused, channel};
use crate::{
    Picos,
    pico::Use,
    transfer::{Failed, Source},
};
use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::TryStreamExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng_http::{Problem, extract::Query};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct ImportQuery {
    /// True if the picos keep their ids and channels. Then none of them may exist.
    #[serde(default)]
    identical: bool,
    /// A `file:` URL on the server to read instead of the body.
    file: Option<String>,
}

pub(super) async fn export(State(picos): State<Picos>, Path(eci): Path<String>) -> Result<Response, Response> {
    let eci = channel(&eci)?;
    let may = picos.may(eci, Use::Export).await;
    may.map_err(refused)?;
    let lines = picos.export(eci.pico).map_err(|failure| failure.to_string());
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

pub(super) async fn import(
    State(picos): State<Picos>,
    Path(eci): Path<String>,
    Query(query): Query<ImportQuery>,
    body: Bytes,
) -> Result<Response, Response> {
    let eci = channel(&eci)?;
    let may = picos.may(eci, Use::Adopt).await;
    may.map_err(refused)?;
    let source = match &query.file {
        None => Source::Body(body),
        Some(url) => Source::File(picos.file(url).map_err(|why| failed(Failed::Unusable(why.into())))?),
    };
    let imported = picos.import(eci, source, query.identical).await;
    imported.map(|imported| Json(imported).into_response()).map_err(failed)
}

fn failed(failed: Failed) -> Response {
    let (why, problem) = match failed {
        Failed::Refused(failure) => return refused(failure),
        Failed::Unusable(why) => {
            let problem = Problem::new("export-unusable", 422, "The export cannot be imported", why.clone());
            (why, problem)
        }
        Failed::Broken(why) => {
            let problem = Problem::new("import-broken-off", 500, "The import broke off", why.clone());
            (why, problem)
        }
        Failed::Busy => {
            let why = "another import is under way";
            let problem = Problem::new("import-busy", 503, "Another import is under way", why);
            (why.to_owned(), problem.retry_after(Duration::from_secs(5)))
        }
    };
    answer::problem(&format!("Error: {why}"), &problem)
}
