//! A section: its seats and its students.

mod messages;
mod queries;
mod roster;

pub use messages::{Change, SectionCommand, SectionEvent, SectionRejection, SectionReply};
pub use queries::{GetRoster, InRoster, Look, ROSTER_PAGE_DEFAULT, ROSTER_PAGE_MAX, RosterPage, SectionView};

use roster::Roster;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use throng::model::{CommandAnswer, Entity, IndexedField, Turn};

use crate::trace::is_name;

/// The most students of a section for which operators can filter sections by student.
const LISTED_MAX: usize = 1_000;

/// A section of a course, by an id such as `C S 142-1`. It exists once it has been opened.
///
/// Presence is checked before the seats. So a second add of a present student is granted without a change, even in a full section. A drop is never
/// refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    capacity: u32,
    roster: Roster,
}

impl Section {
    fn taken(&self) -> u32 {
        u32::try_from(self.roster.len()).unwrap_or(u32::MAX)
    }

    fn remaining(&self) -> u32 {
        self.capacity.saturating_sub(self.taken())
    }

    /// Returns the students, by which operators filter sections. An empty object if there are too many to list.
    fn listed(&self) -> Value {
        match self.roster.len() {
            0..=LISTED_MAX => self.roster.after(None).collect(),
            _ => Value::Object(Map::new()),
        }
    }

    fn reply(&self, change: Change) -> SectionReply {
        SectionReply {
            change,
            capacity: self.capacity,
            taken: self.taken(),
            remaining: self.remaining(),
        }
    }
}

impl Entity for Section {
    const KIND: &'static str = "section";
    const PUBLIC: &'static [&'static str] = &["open", "add", "drop"];
    const INDEXED: &'static [IndexedField<Self>] = &[
        IndexedField::of("capacity", |section| section.capacity.into()),
        IndexedField::of("taken", |section| section.taken().into()),
        IndexedField::of("remaining", |section| section.remaining().into()),
        IndexedField::of("student", Self::listed),
    ];
    type Id = String;
    type Command = SectionCommand;
    type Event = SectionEvent;
    type Reply = SectionReply;
    type Rejection = SectionRejection;

    fn creates(command: &SectionCommand) -> bool {
        matches!(command, SectionCommand::Open { .. })
    }

    fn decide(
        &self,
        command: SectionCommand,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, SectionRejection> {
        match command {
            SectionCommand::Open { .. } if !turn.is_new() => Err(SectionRejection::AlreadyOpen {
                capacity: self.capacity,
            }),
            SectionCommand::Open { capacity } => {
                turn.emit(SectionEvent::Opened { capacity });
                Ok(CommandAnswer::after(|section: &Self| section.reply(Change::Opened)))
            }
            SectionCommand::Add { student } if !is_name(&student) => {
                Err(SectionRejection::InvalidStudent { bytes: student.len() })
            }
            SectionCommand::Add { student } if self.roster.contains(&student) => {
                Ok(CommandAnswer::Now(self.reply(Change::AlreadyPresent)))
            }
            SectionCommand::Add { .. } if self.remaining() == 0 => Err(SectionRejection::Full {
                capacity: self.capacity,
            }),
            SectionCommand::Add { student } => {
                turn.emit(SectionEvent::Added { student });
                Ok(CommandAnswer::after(|section: &Self| section.reply(Change::Added)))
            }
            SectionCommand::Drop { student } if self.roster.contains(&student) => {
                turn.emit(SectionEvent::Dropped { student });
                Ok(CommandAnswer::after(|section: &Self| section.reply(Change::Dropped)))
            }
            SectionCommand::Drop { .. } => Ok(CommandAnswer::Now(self.reply(Change::NotPresent))),
        }
    }

    fn evolve(&mut self, event: &SectionEvent) {
        match event {
            SectionEvent::Opened { capacity } => self.capacity = *capacity,
            SectionEvent::Added { student } => self.roster.insert(student),
            SectionEvent::Dropped { student } => self.roster.remove(student),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.roster.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Outcome, Reference};
    use crate::trace::{DateTime, OfferedSection, Operation, Request};
    use proptest::prelude::*;
    use throng::{
        Subject,
        model::{Asker, Error, Moment, Query, Timestamp},
    };

    const ID: &str = "C S 142-1";

    fn opened(capacity: u32) -> Subject<Section> {
        Subject::given(ID, [SectionEvent::Opened { capacity }])
    }

    fn add(student: &str) -> SectionCommand {
        SectionCommand::Add {
            student: student.into(),
        }
    }

    fn drop_of(student: &str) -> SectionCommand {
        SectionCommand::Drop {
            student: student.into(),
        }
    }

    fn moment(id: &String) -> Moment<'_, Section> {
        Moment {
            id,
            seq: 1,
            now: Timestamp::default(),
            from: Asker::Client(None),
            family: None,
        }
    }

    #[test]
    fn opening_makes_it_exist_and_only_once() {
        let mut section = Subject::<Section>::given(ID, []);
        assert!(matches!(
            section.when(add("ann")),
            Err(Error::Unknown { kind: "section", .. })
        ));
        let done = section.when(SectionCommand::Open { capacity: 2 }).unwrap();
        assert_eq!(done.effects.events, [SectionEvent::Opened { capacity: 2 }]);
        let reply = SectionReply {
            change: Change::Opened,
            capacity: 2,
            taken: 0,
            remaining: 2,
        };
        assert_eq!(done.reply, Some(reply));
        let again = section.when(SectionCommand::Open { capacity: 9 });
        assert!(matches!(
            again,
            Err(Error::Rejected(SectionRejection::AlreadyOpen { capacity: 2 }))
        ));
    }

    #[test]
    fn the_reply_says_the_change_and_how_full_the_section_is() {
        let mut section = opened(2);
        let mut replies = Vec::new();
        for command in [add("ann"), add("ann"), add("bob"), drop_of("cem"), drop_of("ann")] {
            let done = section.when(command).unwrap();
            let reply = done.reply.unwrap();
            replies.push((reply.change, reply.taken, reply.remaining, done.effects.events.len()));
        }
        let expected = [
            (Change::Added, 1, 1, 1),
            (Change::AlreadyPresent, 1, 1, 0),
            (Change::Added, 2, 0, 1),
            (Change::NotPresent, 2, 0, 0),
            (Change::Dropped, 1, 1, 1),
        ];
        assert_eq!(replies, expected);
    }

    #[test]
    fn a_full_section_refuses_new_students_and_grants_those_present() {
        let mut section = opened(1);
        section.when(add("ann")).unwrap();
        assert!(matches!(
            section.when(add("bob")),
            Err(Error::Rejected(SectionRejection::Full { capacity: 1 }))
        ));
        assert_eq!(
            section.when(add("ann")).unwrap().reply.unwrap().change,
            Change::AlreadyPresent
        );
    }

    #[test]
    fn names_are_taken_up_to_their_limit() {
        let mut section = opened(9);
        assert!(section.when(add(&"x".repeat(256))).is_ok());
        for (student, found) in [
            ("x".repeat(257), 257),
            (String::new(), 0),
            ("a,b".into(), 3),
            ("a\nb".into(), 3),
        ] {
            match section.when(add(&student)) {
                Err(Error::Rejected(SectionRejection::InvalidStudent { bytes })) => assert_eq!(bytes, found),
                other => panic!("{student:?}: {:?}", other.map(|done| done.reply)),
            }
        }
    }

    #[test]
    fn a_roster_is_read_page_by_page() {
        let mut section = opened(9);
        for student in ["cem", "ann", "bob"] {
            section.when(add(student)).unwrap();
        }
        let id = ID.to_string();
        let page = |after: Option<&str>| {
            let query = GetRoster {
                after: after.map(Into::into),
                limit: Some(2),
            };
            query.answer(&section.state, &moment(&id)).unwrap()
        };
        let first = page(None);
        assert_eq!(
            (first.students, first.after.as_deref()),
            (vec!["ann".to_string(), "bob".into()], Some("bob"))
        );
        let last = page(Some("bob"));
        assert_eq!((last.students, last.after), (vec!["cem".to_string()], None));
        let present = |student: &str| {
            InRoster {
                student: student.into(),
            }
            .answer(&section.state, &moment(&id))
            .unwrap()
        };
        assert!(present("ann") && !present("zoe"));
        let view = Look {}.answer(&section.state, &moment(&id)).unwrap();
        assert_eq!(
            (&*view.section, view.capacity, view.taken, view.remaining),
            (ID, 9, 3, 6)
        );
    }

    proptest! {
        #[test]
        fn it_answers_every_request_as_the_reference_does(
            capacity in 0..5_u32,
            requests in proptest::collection::vec((0..3_u8, 0..8_u8), 0..80),
        ) {
            let mut reference = Reference::open(&[OfferedSection { id: ID.into(), capacity }]);
            let mut section = opened(capacity);
            for (operation, student) in requests {
                let operation = [Operation::Add, Operation::Drop, Operation::AdministrativeDrop][usize::from(operation)];
                let student = format!("s{student}");
                let command = if operation.is_drop() { drop_of(&student) } else { add(&student) };
                let found = match section.when(command) {
                    Ok(done) => match done.reply.unwrap().change {
                        Change::Added => Outcome::Added,
                        Change::AlreadyPresent => Outcome::AlreadyPresent,
                        Change::Dropped => Outcome::Dropped,
                        Change::NotPresent => Outcome::NotPresent,
                        Change::Opened => panic!("nobody opened it"),
                    },
                    Err(Error::Rejected(SectionRejection::Full { .. })) => Outcome::Full,
                    Err(other) => panic!("{other}"),
                };
                let request = Request { student: student.into(), section: ID.into(), at: DateTime::MIN, operation };
                prop_assert_eq!(found, reference.apply(&request));
            }
        }

        #[test]
        fn a_state_rebuilt_from_its_json_is_the_same(students in proptest::collection::btree_set("[a-z]{1,6}", 0..20)) {
            let events = students.into_iter().map(|student| SectionEvent::Added { student });
            let section = Subject::<Section>::given(ID, [SectionEvent::Opened { capacity: 9 }].into_iter().chain(events)).state;
            let read: Section = serde_json::from_slice(&serde_json::to_vec(&section).unwrap()).unwrap();
            prop_assert_eq!(read.heap_bytes(), section.heap_bytes());
            prop_assert_eq!(read, section);
        }
    }
}
