//! Tools for a schema: what `throng journal … postgres://…` runs. All but [`Import`] only read, also beside a running engine.

mod import;
mod inspect;
mod verify;
mod walk;

pub use import::Import;
pub use inspect::{HistoryLine, InspectOptions, Inspection, TableLine, WriterLine, inspect};
pub use verify::{Finding, Verification, verify};
pub use walk::{Seen, walk};
