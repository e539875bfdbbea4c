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
    /// The user looked at the item.
    View,
    /// The user said that they like the item.
    Like,
    /// The user paid for the item.
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
    /// Records the user's actions, in this order.
    Act {
        /// The actions, 1 to 100. Either all are accepted or none.
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

/// The answer once the actions are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserReply {
    /// The number of the user's actions so far.
    pub actions: u64,
}

/// The reason why actions are refused. None of them was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum UserRejection {
    /// The list is empty.
    #[error("there are no actions; send 1 to {ACTIONS_MAX}")]
    NoActions,
    /// The list is too long.
    #[error("{count} actions are too many; send at most {ACTIONS_MAX} at once")]
    TooManyActions {
        /// The number of actions sent.
        count: usize,
    },
    /// An item is not in the catalogue.
    #[error("there is no item {item}; the catalogue has the items 0 to {}", ITEMS - 1)]
    NoSuchItem {
        /// The requested item's number.
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
