//! `GET /api/{kind}`: the entities of a kind, a page at a time.

use super::resolve::{admit, caller, kind};
use crate::{
    access,
    answer::{self, ResponseBody},
    caller::Action,
    connection::Connection,
    problem::{Answered, engine_problem},
    request::query::{self, EntitiesQuery},
    server::Server,
};
use http::{Response, request::Parts};
use serde::Serialize;
use std::time::Instant;

#[derive(Serialize)]
struct Page<'a> {
    entities: Vec<Entity<'a>>,
    /// The value of `after` for the next page; null at the end.
    next: Option<&'a str>,
}

#[derive(Serialize)]
struct Entity<'a> {
    id: &'a str,
    seq: u64,
}

/// Returns a page of the entities of a kind, in the order of their ids.
pub(super) async fn list(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    kind_part: &str,
    arrived: &mut Option<Instant>,
) -> Answered<Response<ResponseBody>> {
    let (kind, names) = kind(server, kind_part)?;
    access::may(server, caller(parts), (names.kind, None), Action::List)?;
    let EntitiesQuery { after, limit } = query::read(parts.uri.query())?;
    let limit = query::limit(limit)?;
    admit(server, connection, &parts.headers, 0, arrived).await?;
    let heads = server
        .shared()
        .engine
        .entities(kind, after.as_deref(), limit)
        .await
        .map_err(engine_problem)?;
    let next = if heads.len() < limit {
        None
    } else {
        heads.last().map(|head| &*head.id)
    };
    let entities = heads
        .iter()
        .map(|head| Entity {
            id: &head.id,
            seq: head.seq,
        })
        .collect();
    Ok(answer::json(
        serde_json::to_vec(&Page { entities, next }).unwrap_or_default(),
    ))
}
