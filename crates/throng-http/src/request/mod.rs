//! What a request says: its path, its headers, its body.

pub(crate) mod body;
pub(crate) mod headers;
mod once;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod rules;
pub(crate) mod trace;

pub use once::Once;
pub(crate) use once::{own_key, written_key};
