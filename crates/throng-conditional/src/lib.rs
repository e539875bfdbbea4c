//! Journal, directory and store of a Throng engine on any store with a conditional put: object storage, Cassandra.
//!
//! The crate makes no request by itself: an adapter implements [`ConditionalStore`].

mod conditional;

pub use conditional::{ConditionalStore, Fault, Listed, Object, Page, PutNew, Replaced, Version};
