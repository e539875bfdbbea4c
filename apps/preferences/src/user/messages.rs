//! A user's commands, events and rejections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Event, Rejection};

use super::ACTIONS_MAX;
use crate::catalogue::ITEMS;

/// The kind of an action on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Looked at it.
    View,
    /// Said that they like it.
    Like,
    /// Paid for it.
    Buy,
}

impl ActionKind {
    /// Returns the weight of the action.
    #[must_use]
    pub fn weight(self) -> f32 {
        match self {
            Self::View => 1.0,
            Self::Like => 4.0,
            Self::Buy => 8.0,
        }
    }
}

/// A user's action on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// The kind of the action.
    pub action: ActionKind,
    /// The item's number in the catalogue.
    pub item: u32,
}

/// A command of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserCommand {
    /// The user acted, in this order.
    Act {
        /// 1 to 100 actions: all are taken, or none.
        actions: Vec<Act>,
    },
}

/// An event of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserEvent {
    /// The user acted.
    Acted {
        /// The kind of the action.
        action: ActionKind,
        /// The item's number in the catalogue.
        item: u32,
        /// The item's category at that time.
        category: u8,
        /// The time in seconds since 1970.
        at_s: i64,
    },
}

impl Event for UserEvent {}

/// The answer to actions: they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserReply {
    /// Actions of the user so far.
    pub actions: u64,
}

/// Why actions are not taken. None of them was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum UserRejection {
    /// An empty list.
    #[error("there are no actions; send 1 to {ACTIONS_MAX}")]
    NoActions,
    /// A list that is too long.
    #[error("{count} actions are too many; send at most {ACTIONS_MAX} at once")]
    TooManyActions {
        /// The number that was sent.
        count: usize,
    },
    /// An item that is not in the catalogue.
    #[error("there is no item {item}; the catalogue has the items 0 to {}", ITEMS - 1)]
    NoSuchItem {
        /// The number that was asked for.
        item: u32,
    },
}

impl Rejection for UserRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::NoActions => "no-actions",
            Self::TooManyActions { .. } => "too-many-actions",
            Self::NoSuchItem { .. } => "no-such-item",
        }
    }

    fn status(&self) -> u16 {
        422
    }

    fn field(&self) -> Option<&'static str> {
        match self {
            Self::NoActions | Self::TooManyActions { .. } => Some("actions"),
            Self::NoSuchItem { .. } => Some("item"),
        }
    }
}
