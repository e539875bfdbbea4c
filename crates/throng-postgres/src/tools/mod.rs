//! Tools for a schema, which `throng journal … postgres://…` runs. All except [`Import`] only read, even beside a running engine.

mod covers;
mod import;
mod inspect;
mod losses;
mod verify;
mod walk;

pub use import::{Import, refuse_in_use};
pub use inspect::{Inspection, TableLine, inspect};
pub use losses::{LossLine, Losses, LostCommitLine, losses};
pub use throng_journal::tools::{Contents, Finding, HistoryLine, InspectOptions, Verification, WriterLine};
pub use verify::verify;
pub use walk::{HistoryPart, walk};
