//! The cluster that a service is a node of, as its console needs it.

use serde_json::Value;
use throng::journal::{Error, Later, ShardSet};

/// A cluster as administration shows and changes it.
pub trait Cluster: Send + Sync + 'static {
    /// Reports the nodes and what they own, as this one sees them; `null` as long as that is not known.
    fn report(&self) -> Value;

    /// Asks each of the other nodes for its [`NodeReport`](crate::NodeReport): a member for each that answers, by its number.
    fn nodes(&self) -> Later<'_, Value>;

    /// Asks a node to give away all it owns, or no longer to. `false`: no node of this name lives.
    ///
    /// # Errors
    /// [`Error::Backend`]: the database cannot be reached, or refuses; nothing was changed.
    fn drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>>;

    /// Pins shards to a node, or to none any more.
    ///
    /// # Errors
    /// [`Error::Refused`] says what stands against it, and nothing was changed. The database cannot be reached.
    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>>;
}
