//! Commands, events and replies: values that are written as JSON.

use serde::{Serialize, de::DeserializeOwned};

/// A command, an event or a reply. Clients see it as JSON; its schema documents the routes.
#[cfg(feature = "schemas")]
pub trait Message: Serialize + DeserializeOwned + schemars::JsonSchema + Send + 'static {}
#[cfg(feature = "schemas")]
impl<T: Serialize + DeserializeOwned + schemars::JsonSchema + Send + 'static> Message for T {}

/// A command, an event or a reply. Clients see it as JSON. With the feature `schemas` it also has a schema (`schemars::JsonSchema`): a
/// library of entities derives one, and then works with and without the feature.
#[cfg(not(feature = "schemas"))]
pub trait Message: Serialize + DeserializeOwned + Send + 'static {}
#[cfg(not(feature = "schemas"))]
impl<T: Serialize + DeserializeOwned + Send + 'static> Message for T {}
