//! The books of the memory that shards take.

use std::sync::atomic::AtomicI64;

/// The memory that the shards hold, all together.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) entities: AtomicI64,
    pub(crate) bytes: AtomicI64,
    /// On the way to the store: what the checkpoint under way took, and what has gathered since.
    pub(crate) pending_bytes: AtomicI64,
    /// The part of the pending bytes that the checkpoint under way took.
    pub(super) storing_bytes: AtomicI64,
}
