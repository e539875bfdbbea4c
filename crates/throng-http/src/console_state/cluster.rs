//! The service's cluster, as its console needs it.

use serde_json::Value;
use throng::journal::{Error, Later, ShardSet};

/// A cluster as administration shows and changes it.
pub trait Cluster: Send + Sync + 'static {
    /// Returns the nodes and their shards, as this one sees them; `null` if that is not known yet.
    fn report(&self) -> Value;

    /// Asks each of the other nodes for its [`NodeReport`](crate::NodeReport). Returns a member for each that answers, by its number.
    fn nodes(&self) -> Later<'_, Value>;

    /// Asks a node to give away all its shards, or no longer to. `false`: no node of this name is alive.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>>;

    /// Pins shards to a node, or unpins them.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason, and nothing was changed; or the database cannot be reached.
    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>>;
}
