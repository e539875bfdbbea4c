//! A look at every command that is decided, for simulations.

use crate::model::{Error, Rejection};
use std::sync::Arc;

/// A command that has just been decided. Its commit may still be lost.
#[derive(Debug)]
pub struct DecidedCommand<'a> {
    /// The entity's kind.
    pub kind: &'static str,
    /// The command's name.
    pub name: &'static str,
    /// `done`, the code of the entity's rejection, or `failed`.
    pub outcome: &'a str,
    /// The names of its events.
    pub events: &'a [&'static str],
}

/// Sees the decided commands of an engine, on the thread that executes them.
pub type CommandObserver = Arc<dyn Fn(&DecidedCommand<'_>) + Send + Sync>;

/// Names an outcome as an observer sees it.
pub(super) fn outcome<T, R: Rejection>(result: &Result<T, Error<R>>) -> &str {
    match result {
        Ok(_) => "done",
        Err(Error::Rejected(rejection)) => rejection.code(),
        Err(_) => "failed",
    }
}
