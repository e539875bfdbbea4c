//! Parts of a request: its path, its query, its headers.

pub(crate) mod headers;
mod once;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod rules;
pub(crate) mod trace;

pub use once::Once;
