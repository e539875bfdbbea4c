//! Events, their names and versions.

use super::Message;
use std::borrow::Cow;

/// An entity's event: a serde enum. The variant's serde name is the event's name in the journal.
pub trait Event: Message {
    /// The events whose shape has changed, with their present version. All others are at version 1.
    const VERSIONS: &'static [(&'static str, u16)] = &[];

    /// Converts a recorded event of an older version to the next, or renames it. Called until the version is the present
    /// one.
    ///
    /// # Errors
    /// [`UpcastError`]: there is no such version. The entity is quarantined, with this reason.
    fn upcast(old: Recorded) -> Result<Recorded, UpcastError> {
        Err(UpcastError(format!(
            "there is no step up from {} version {}",
            old.name, old.version
        )))
    }

    /// Returns the present version of the events of this name.
    #[must_use]
    fn version(name: &str) -> u16 {
        Self::VERSIONS
            .iter()
            .find(|(named, _)| *named == name)
            .map_or(1, |(_, version)| *version)
    }
}

/// An event as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The event's name, as it was recorded.
    pub name: Cow<'static, str>,
    /// The version of its shape.
    pub version: u16,
    /// The event's content, without its name.
    pub payload: serde_json::Value,
}

/// The reason why an event could not be converted to the next version.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UpcastError(pub String);
