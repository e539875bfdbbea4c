//! Commands, events, replies: what is written as JSON.

use serde::{Serialize, de::DeserializeOwned};

/// What can be said: a command, an event, a reply. JSON on the outside, its schema documents the routes.
#[cfg(feature = "schemas")]
pub trait Message: Serialize + DeserializeOwned + schemars::JsonSchema + Send + 'static {}
#[cfg(feature = "schemas")]
impl<T: Serialize + DeserializeOwned + schemars::JsonSchema + Send + 'static> Message for T {}

/// What can be said: a command, an event, a reply. JSON on the outside. With the feature `schemas` it has a schema, too
/// (`schemars::JsonSchema`): a library of entities derives one, so that it also works beside what needs them.
#[cfg(not(feature = "schemas"))]
pub trait Message: Serialize + DeserializeOwned + Send + 'static {}
#[cfg(not(feature = "schemas"))]
impl<T: Serialize + DeserializeOwned + Send + 'static> Message for T {}
