//! The entity that keeps the actions of administration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, str::FromStr};
use throng::model::{CommandAnswer, Entity, Event, Rejection, Turn};

/// The kind of the entity, which no route of the service reaches.
pub(crate) const KIND: &str = "throng-audit";
/// The id of the only entity.
pub(crate) const ID: &str = "all";

/// The entity that keeps the actions of administration: who asked for what and why, and how it ended.
///
/// An engine that is given this kind has an audit: the gateway records each action before it does it. `App` gives it to every service that has
/// entities. Its history is shown by `GET /admin/audit`; no route changes it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// The number of actions.
    actions: u64,
}

/// The id of the only entity of the kind.
#[derive(Clone, Debug, Default)]
pub struct AuditId;

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ID)
    }
}

impl FromStr for AuditId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == ID {
            Ok(Self)
        } else {
            Err("there is one audit, with the id \"all\"")
        }
    }
}

/// An action that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditedAction {
    /// The action's number, from 1; 0 until it is recorded.
    #[serde(default)]
    pub number: u64,
    /// The person or program.
    pub by: String,
    /// The role in which they asked.
    pub role: String,
    /// The address of the connection.
    pub at: String,
    /// The action, as its route names it.
    pub action: String,
    /// The fields of the request, but for the reason.
    pub fields: BTreeMap<String, String>,
    /// The reason, in the person's words; empty where none was given.
    pub reason: String,
}

/// A command of the audit. Only the gateway sends it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditCommand {
    /// Records that an action is asked for.
    Ask(AuditedAction),
    /// Records the end of an action.
    End(AuditedEnd),
}

/// The end of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditedEnd {
    /// The action's number.
    pub number: u64,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The last part of the problem's type, where the action was refused.
    #[serde(default)]
    pub problem: Option<String>,
}

/// An event of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// An action was asked for.
    Asked(AuditedAction),
    /// An action has ended.
    Ended(AuditedEnd),
}

impl Event for AuditEvent {}

/// The audit refuses nothing.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("the audit refuses nothing")]
pub struct AuditRejection;

impl Rejection for AuditRejection {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl Entity for Audit {
    const KIND: &'static str = KIND;
    type Id = AuditId;
    type Command = AuditCommand;
    type Event = AuditEvent;
    /// The action's number.
    type Reply = u64;
    type Rejection = AuditRejection;

    fn decide(&self, command: AuditCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, AuditRejection> {
        let number = match &command {
            AuditCommand::Ask(_) => self.actions + 1,
            AuditCommand::End(end) => end.number,
        };
        turn.emit(match command {
            AuditCommand::Ask(action) => AuditEvent::Asked(AuditedAction { number, ..action }),
            AuditCommand::End(end) => AuditEvent::Ended(end),
        });
        Ok(CommandAnswer::after(move |_: &Self| number))
    }

    fn evolve(&mut self, event: &AuditEvent) {
        if let AuditEvent::Asked(action) = event {
            self.actions = action.number;
        }
    }
}
