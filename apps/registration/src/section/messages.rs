//! A section's commands, events, replies and rejections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::model::{Event, Recorded, Rejection, UpcastError};

use crate::trace::NAME_BYTES_MAX;

/// A command of a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SectionCommand {
    /// Opens the section without students. Refused if it is open.
    Open {
        /// The number of seats. A section with 0 seats admits no student.
        capacity: u32,
    },
    /// Gives the student a seat. If the student has one already, nothing changes.
    Add {
        /// The student: an opaque name of 1 to 256 bytes without comma or control character.
        student: String,
    },
    /// Takes the student's seat back. If the student has none, nothing changes.
    Drop {
        /// The student who gives the seat back.
        student: String,
    },
}

/// An event of a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SectionEvent {
    /// The section was opened.
    Opened {
        /// The number of seats.
        capacity: u32,
    },
    /// A student took a seat.
    Added {
        /// The student's name.
        student: String,
    },
    /// A student left.
    Dropped {
        /// The student's name.
        student: String,
    },
}

impl Event for SectionEvent {
    /// Since version 2 students are opaque names. Before, they were numbers in `student_id`.
    const VERSIONS: &'static [(&'static str, u16)] = &[("Added", 2), ("Dropped", 2)];

    fn upcast(mut old: Recorded) -> Result<Recorded, UpcastError> {
        if old.version != 1 || !matches!(&*old.name, "Added" | "Dropped") {
            return Err(UpcastError(format!(
                "there is no step up from {} version {}",
                old.name, old.version
            )));
        }
        let student = match old.payload.get_mut("student_id").map(Value::take) {
            Some(Value::Number(number)) => number.to_string(),
            found => {
                return Err(UpcastError(format!(
                    "expected a number in `student_id`, found {found:?}"
                )));
            }
        };
        Ok(Recorded {
            version: 2,
            payload: json!({ "student": student }),
            ..old
        })
    }
}

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The section was opened.
    Opened,
    /// The student took a seat.
    Added,
    /// The student had a seat already: nothing changed.
    AlreadyPresent,
    /// The student left.
    Dropped,
    /// The student had no seat: nothing changed.
    NotPresent,
}

/// The answer to a command: its effect, and the section's seats after it. The roster is a separate query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SectionReply {
    /// The effect of the command.
    pub change: Change,
    /// The number of seats.
    pub capacity: u32,
    /// The number of taken seats.
    pub taken: u32,
    /// The number of free seats.
    pub remaining: u32,
}

/// The reason why a section, or the collection on its behalf, refuses a command. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum SectionRejection {
    /// No seat is left.
    #[error("the section is full: all of its {capacity} seats are taken")]
    Full {
        /// The number of seats.
        capacity: u32,
    },
    /// The section was opened before.
    #[error("the section is open already, with {capacity} seats")]
    AlreadyOpen {
        /// The number of seats.
        capacity: u32,
    },
    /// The collection has no such section.
    #[error("there is no section `{section}`")]
    NoSection {
        /// The requested id.
        section: String,
    },
    /// The student's name is not valid.
    #[error("a student's name has 1 to {NAME_BYTES_MAX} bytes without comma or control character; found {bytes} bytes")]
    InvalidStudent {
        /// The length of the name in bytes.
        bytes: usize,
    },
    /// The section's name is not valid.
    #[error("a section's name has 1 to {NAME_BYTES_MAX} bytes without comma or control character; found {bytes} bytes")]
    InvalidSection {
        /// The length of the name in bytes.
        bytes: usize,
    },
}

impl Rejection for SectionRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::Full { .. } => "section-full",
            Self::AlreadyOpen { .. } => "section-already-open",
            Self::NoSection { .. } => "no-section",
            Self::InvalidStudent { .. } => "invalid-student",
            Self::InvalidSection { .. } => "invalid-section",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Full { .. } | Self::AlreadyOpen { .. } => 409,
            Self::NoSection { .. } => 404,
            Self::InvalidStudent { .. } | Self::InvalidSection { .. } => 422,
        }
    }

    fn field(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } | Self::AlreadyOpen { .. } => None,
            Self::InvalidStudent { .. } => Some("student"),
            Self::NoSection { .. } | Self::InvalidSection { .. } => Some("section"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(name: &'static str, version: u16, payload: Value) -> Recorded {
        Recorded {
            name: name.into(),
            version,
            payload,
        }
    }

    #[test]
    fn a_student_recorded_as_a_number_becomes_a_name() {
        for name in ["Added", "Dropped"] {
            let risen = SectionEvent::upcast(recorded(name, 1, json!({ "student_id": 10482213 }))).unwrap();
            assert_eq!(risen, recorded(name, 2, json!({ "student": "10482213" })));
            assert_eq!(SectionEvent::version(name), 2);
        }
    }

    #[test]
    fn messages_no_version_ever_wrote_are_refused() {
        for old in [
            recorded("Added", 1, json!({ "student": "7" })),
            recorded("Added", 1, json!({ "student_id": "7" })),
            recorded("Added", 3, json!({})),
            recorded("Renamed", 1, json!({})),
        ] {
            let said = SectionEvent::upcast(old.clone()).unwrap_err().to_string();
            assert!(said.contains("student_id") || said.contains(&*old.name), "{said}");
        }
    }
}
