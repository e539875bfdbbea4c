//! A section of a course, with a few places.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{self, CommandAnswer, Entity, Event, IndexedField, Moment, Query, Rejection, TextId, Turn};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Section {
    capacity: usize,
    students: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Opens the section.
    Open {
        capacity: usize,
    },
    /// Adds a student.
    AddStudent {
        /// The student's number.
        student: String,
    },
    DropStudent {
        student: String,
    },
    /// Gives it a title.
    Rename {
        title: String,
    },
    /// Asks another section to add a student.
    Recommend {
        to: TextId,
        student: String,
    },
    /// Takes its time, in milliseconds.
    Ponder {
        ms: u64,
    },
    /// Panics while it is decided.
    Crash,
    /// Takes over the students of another section, which sends this.
    TakeOver(Moved),
    /// Gives the section the name of who asks.
    Sign {},
}

/// A type that only a non-public command has.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Moved {
    students: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SectionEvent {
    Opened { capacity: usize },
    Added { student: String },
    Dropped { student: String },
    Renamed { title: String },
}
impl Event for SectionEvent {}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Enrolment {
    pub(crate) capacity: usize,
    pub(crate) students: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refusal {
    #[error("all {capacity} places are taken")]
    Full { capacity: usize },
    #[error("student {student} is not enrolled")]
    NotEnrolled { student: String },
}

impl Rejection for Refusal {
    fn code(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::NotEnrolled { .. } => "not-enrolled",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Full { .. } => 409,
            Self::NotEnrolled { .. } => 422,
        }
    }

    fn field(&self) -> Option<&'static str> {
        matches!(self, Self::NotEnrolled { .. }).then_some("student")
    }
}

impl Section {
    fn enrolment(&self) -> Enrolment {
        Enrolment {
            capacity: self.capacity,
            students: self.students.clone(),
        }
    }
}

impl Entity for Section {
    const KIND: &'static str = "section";
    const PUBLIC: &'static [&'static str] = &[
        "open",
        "add_student",
        "drop_student",
        "rename",
        "recommend",
        "ponder",
        "crash",
        "sign",
    ];
    const INDEXED: &'static [IndexedField<Self>] = &[
        IndexedField::of("capacity", |section| section.capacity.into()),
        IndexedField::of("last", |section| section.students.last().cloned().into()),
    ];
    type Id = String;
    type Command = Command;
    type Event = SectionEvent;
    type Reply = Enrolment;
    type Rejection = Refusal;

    fn creates(command: &Command) -> bool {
        matches!(command, Command::Open { .. })
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refusal> {
        match command {
            Command::Open { capacity } => turn.emit(SectionEvent::Opened { capacity }),
            Command::AddStudent { student } if self.students.contains(&student) => {}
            Command::AddStudent { .. } if self.students.len() >= self.capacity => {
                return Err(Refusal::Full {
                    capacity: self.capacity,
                });
            }
            Command::AddStudent { student } => turn.emit(SectionEvent::Added { student }),
            Command::DropStudent { student } if !self.students.contains(&student) => {
                return Err(Refusal::NotEnrolled { student });
            }
            Command::DropStudent { student } => turn.emit(SectionEvent::Dropped { student }),
            Command::Rename { title } => turn.emit(SectionEvent::Renamed { title }),
            Command::Recommend { to, student } => turn.send::<Self>(to, Command::AddStudent { student }),
            Command::Ponder { ms } => {
                let until = std::time::Instant::now() + std::time::Duration::from_millis(ms);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            Command::Crash => panic!("it was asked to"),
            Command::TakeOver(moved) => {
                for student in moved.students {
                    turn.emit(SectionEvent::Added { student });
                }
            }
            Command::Sign {} => turn.emit(SectionEvent::Added {
                student: turn.from().caller().unwrap_or("nobody").to_owned(),
            }),
        }
        Ok(CommandAnswer::after(Self::enrolment))
    }

    fn evolve(&mut self, event: &SectionEvent) {
        match event {
            SectionEvent::Opened { capacity } => self.capacity = *capacity,
            SectionEvent::Added { student } => self.students.push(student.clone()),
            SectionEvent::Renamed { .. } => {}
            SectionEvent::Dropped { student } => self.students.retain(|other| other != student),
        }
    }
}

/// Lists the students who are enrolled.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct View {}

impl Query<Section> for View {
    const NAME: &'static str = model::View::NAME;
    type Answer = Enrolment;

    fn answer(self, entity: &Section, _: &Moment<'_, Section>) -> Result<Enrolment, Refusal> {
        Ok(entity.enrolment())
    }
}

/// Is this student enrolled?
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Enrolled {
    student: String,
}

impl Query<Section> for Enrolled {
    const NAME: &'static str = "enrolled";
    type Answer = bool;

    fn answer(self, entity: &Section, _: &Moment<'_, Section>) -> Result<bool, Refusal> {
        Ok(entity.students.contains(&self.student))
    }
}
