//! The embedded journal and store.

pub mod files;
mod header;
mod history;
mod log;
mod options;
mod pace;
mod recovery;
mod scan;
mod store;

pub use log::Log;
pub use options::Options;
pub use store::{EmbeddedStore, open_embedded};
