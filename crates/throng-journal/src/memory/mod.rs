//! A journal, a store and read models in the process's memory: for tests, and for `--journal memory:`.

mod directory;
mod journal;
mod store;
mod views;

pub use directory::MemoryDirectory;
pub use journal::MemoryJournal;
pub use store::MemoryStore;
pub use views::MemoryViews;
