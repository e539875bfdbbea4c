//! Decisions of a person about a call outside.

use crate::{
    console::{By, decision, decision_if_said},
    problem::{Answered, engine_problem},
    request::query::{self, QuarantineQuery, ReleaseQuery},
    server::Server,
};
use http::request::Parts;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Attempted {
    /// A worker is offered the call.
    offered: bool,
}

/// Has the next attempt made now.
pub(super) async fn attempt(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<Attempted> {
    let ReleaseQuery { kind, id, reason } = query::read(parts.uri.query())?;
    let engine = &server.shared().engine;
    let offered = engine.hasten_call(&kind, &id, decision_if_said(by, &reason)).await;
    offered.map_err(engine_problem)?;
    Ok(Attempted { offered: true })
}

#[derive(Serialize)]
pub(super) struct GivenUp {
    /// `refused`: nothing was sent; `unknown`: the provider may have done it.
    outcome: &'static str,
}

/// Gives a call up. Its entity gets the outcome.
pub(super) async fn give_up(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<GivenUp> {
    let QuarantineQuery { kind, id, reason } = query::read(parts.uri.query())?;
    let engine = &server.shared().engine;
    let is_sent = engine.give_up_call(&kind, &id, decision(by, &reason)?).await;
    Ok(GivenUp {
        outcome: if is_sent.map_err(engine_problem)? {
            "unknown"
        } else {
            "refused"
        },
    })
}
