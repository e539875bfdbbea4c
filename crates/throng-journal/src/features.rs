//! The [features](crate::Join::features) of nodes, by the first release that has them. A node has all up to its own.

/// The feature of nodes that erase in a cluster, and that give shards to where they are [pinned](crate::Directory::pin).
pub const ERASES: u32 = 1;
/// The feature of nodes that remove history in a cluster, and read streams from which others remove it.
pub const PRUNES: u32 = 2;
/// The feature of nodes that keep a message which a node of an older release of the service does not understand.
pub const WAITS: u32 = 3;
/// The feature of nodes that go by an operator's quarantine of an entity.
pub const QUARANTINES: u32 = 4;
/// The feature of nodes that say which others they [reach](crate::Directory::reach).
pub const REACHES: u32 = 5;
/// The feature of nodes that say what they do when another one asks for its console.
pub const TELLS: u32 = 6;
/// The feature of nodes that take the span of a command which another one asks for.
pub const TRACES: u32 = 7;
/// The feature of nodes that tell the indexed fields of entities.
pub const INDEXES: u32 = 8;
