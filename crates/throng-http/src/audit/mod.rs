//! The audit: each action of administration is recorded before it is executed, and its end after it.

mod entity;

pub use entity::{Audit, AuditCommand, AuditEvent, AuditId, AuditRejection, AuditedAction, AuditedEnd};
pub(crate) use entity::{ID, KIND};

use crate::{
    caller::Administrates,
    connection::Connection,
    problem::{Answered, Problem},
    server::Server,
};
use std::{collections::BTreeMap, time::Duration};
use throng::Engine;

/// An entry is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a field's value that are kept.
const FIELD_BYTES_MAX: usize = 1_024;

/// An action whose beginning was recorded.
pub(crate) struct Entry {
    /// The entry's number; `None`: there is no audit, or it could not be written.
    number: Option<u64>,
}

/// Records the request for an action. An engine without the kind has no audit.
///
/// If the entry cannot be written, an ERROR is logged and the action is executed nevertheless: a full engine accepts no entry, but an
/// operator must be able to delete what fills it.
pub(crate) async fn begin(
    server: &Server,
    connection: &Connection,
    by: &Administrates,
    action: &str,
    mut fields: BTreeMap<String, String>,
) -> Answered<Entry> {
    let engine = &server.shared().engine;
    if fields.get("kind").is_some_and(|kind| kind == KIND) {
        return Err(Problem::forbidden("The audit is changed by nobody.").boxed());
    }
    if !is_kept(engine) {
        return Ok(Entry { number: None });
    }
    fields
        .values_mut()
        .for_each(|value| value.truncate(value.floor_char_boundary(FIELD_BYTES_MAX)));
    let reason = fields.remove("reason").unwrap_or_default();
    let asked = AuditedAction {
        number: 0,
        by: by.name.clone(),
        role: by.role.to_string(),
        at: connection.address().to_string(),
        action: action.to_owned(),
        fields,
        reason: reason.trim().to_owned(),
    };
    match record(engine, AuditCommand::Ask(asked)).await {
        Ok(number) => Ok(Entry { number: Some(number) }),
        Err(why) => {
            tracing::error!(
                "the audit could not record that {} asked for {action}: {why} It is done all the same",
                by.name
            );
            Ok(Entry { number: None })
        }
    }
}

/// This engine has an audit.
pub(crate) fn is_kept(engine: &Engine) -> bool {
    engine.kind(KIND).is_some()
}

async fn record(engine: &Engine, command: AuditCommand) -> Result<u64, String> {
    let asked = engine.entity::<Audit>(AuditId).within(PATIENCE).ask(command).await;
    asked.map_err(|why| format!("{why}."))
}

impl Entry {
    /// Records the end of the action.
    pub(crate) async fn end<T>(self, server: &Server, done: &Answered<T>) {
        let Some(number) = self.number else { return };
        let (status, problem) = match done {
            Ok(_) => (200, None),
            Err(problem) => (problem.status(), Some(problem.slug().to_owned())),
        };
        let end = AuditedEnd {
            number,
            status,
            problem,
        };
        if let Err(why) = record(&server.shared().engine, AuditCommand::End(end)).await {
            tracing::error!("the audit could not record the end of its action {number}: {why}");
        }
    }
}
