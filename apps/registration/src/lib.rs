//! University registration: sections, a section collection, the trace of a registration day.

pub mod reference;
pub mod trace;
