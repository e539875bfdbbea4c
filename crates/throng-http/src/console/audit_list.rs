//! `GET /admin/audit`: the last actions of administration, or those around a number.

use super::entity::{self, HistoryQuery, Subject};
use crate::{
    audit,
    problem::{Answered, Problem, engine_problem},
    server::Shared,
};
use serde_json::{Value, json};
use throng::{inspect::Inspect, model::Error};

/// Returns a page of the audit's events; the last ones by default.
pub(super) async fn audit(shared: &Shared, mut asked: HistoryQuery) -> Answered<Value> {
    if !audit::is_kept(&shared.engine) {
        return Err(Problem::unknown_route("/admin/audit").boxed());
    }
    let subject = Subject::of(shared, audit::KIND, audit::ID)?;
    if asked.after.is_none() && asked.before.is_none() {
        let now = shared
            .engine
            .inspect(subject.kind, &subject.id, Inspect::default())
            .await;
        asked.before = match now {
            Ok(now) => Some(now.seq + 1),
            // There were no actions yet.
            Err(Error::Unknown { .. }) => return Ok(json!({ "events": [], "next": null, "removed": 0 })),
            Err(error) => return Err(engine_problem(error)),
        };
    }
    entity::history(shared, &subject, asked).await
}
