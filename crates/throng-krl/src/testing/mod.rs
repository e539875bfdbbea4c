//! Rulesets tried out without an engine: a pico in memory, and scripts of events with what is expected of them.

mod pico;
mod script;

pub use pico::Pico;
pub use script::{Mismatch, Script, ScriptError, Step};
