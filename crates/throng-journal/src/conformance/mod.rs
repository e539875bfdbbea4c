//! Conformance suites for journals, stores and places for read models: one suite for each trait, run by every backend on itself.
//!
//! A suite takes a harness that opens the backend, reopens it on what it holds, and runs its futures;
//! each check panics with a sentence when a rule is broken. The checks are plain functions, so that a backend's tests
//! call `journal::check_all(&harness)`, or one of them alone.
//!
//! ```
//! use throng_journal::{MemoryJournal, conformance::journal::{self, Harness}};
//!
//! struct Memory;
//! impl Harness for Memory {
//!     type Journal = MemoryJournal;
//!     fn create(&self) -> MemoryJournal { MemoryJournal::new() }
//!     fn reopen(&self, journal: MemoryJournal) -> MemoryJournal { journal.clone() }
//! }
//! journal::check_all(&Memory);
//! ```

pub mod cluster;
pub mod journal;
mod kit;
pub mod store;
pub mod views;

pub use kit::block_on;
