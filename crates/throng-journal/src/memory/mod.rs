//! A journal and a store that live and die with the process: for tests, and for `--journal memory:`.

mod journal;
mod store;

pub use journal::MemoryJournal;
pub use store::MemoryStore;
