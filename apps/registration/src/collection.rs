//! The collection. It knows the sections, creates them, and passes requests on to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, ops::Bound};
use throng::model::{CommandAnswer, Entity, Event, Moment, Query, Turn, View};

use crate::{
    section::{Section, SectionCommand, SectionRejection, SectionReply},
    trace::is_name,
};

/// The id of the only collection that the routes use.
pub const HOME: &str = "all";
/// The default number of sections on a page of the list.
pub const SECTIONS_PAGE_DEFAULT: u32 = 100;
/// The most sections on a page of the list.
pub const SECTIONS_PAGE_MAX: u32 = 10_000;

/// The parent of the sections.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Collection {
    sections: BTreeSet<Box<str>>,
}

/// A command of the collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectionCommand {
    /// Opens a section as a child. The section refuses it if it is open.
    Needed {
        /// The section's id: 1 to 256 bytes without comma or control character.
        section: String,
        /// The number of its seats.
        capacity: u32,
    },
    /// Passes a request on to a section, which answers it. Refused if the collection has no such section.
    Route {
        /// The id of the section.
        section: String,
        /// The command for the section.
        request: SectionCommand,
    },
}

/// An event of the collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CollectionEvent {
    /// A section was created.
    Created {
        /// The id of the section.
        section: String,
    },
}

impl Event for CollectionEvent {}

impl Entity for Collection {
    const KIND: &'static str = "collection";
    type Id = String;
    type Command = CollectionCommand;
    type Event = CollectionEvent;
    type Reply = SectionReply;
    type Rejection = SectionRejection;

    fn creates(command: &CollectionCommand) -> bool {
        matches!(command, CollectionCommand::Needed { .. })
    }

    fn decide(
        &self,
        command: CollectionCommand,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, SectionRejection> {
        match command {
            CollectionCommand::Needed { section, .. } if !is_name(&section) => {
                Err(SectionRejection::InvalidSection { bytes: section.len() })
            }
            CollectionCommand::Needed { section, capacity } => {
                let open = SectionCommand::Open { capacity };
                if self.sections.contains(section.as_str()) {
                    return Ok(CommandAnswer::forward::<Section>(section, open));
                }
                turn.emit(CollectionEvent::Created {
                    section: section.clone(),
                });
                Ok(CommandAnswer::create::<Section>(section, open))
            }
            CollectionCommand::Route { section, request } if self.sections.contains(section.as_str()) => {
                Ok(CommandAnswer::forward::<Section>(section, request))
            }
            CollectionCommand::Route { section, .. } => Err(SectionRejection::NoSection { section }),
        }
    }

    fn evolve(&mut self, CollectionEvent::Created { section }: &CollectionEvent) {
        self.sections.insert(section.as_str().into());
    }

    fn heap_bytes(&self) -> usize {
        // Approximately: an id of 12 bytes, its allocation, and its place in a tree two thirds full.
        self.sections.len() * 64
    }
}

/// The query `view`: the number of sections.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LookAtCollection {}

/// The answer to [`LookAtCollection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectionView {
    /// The number of sections.
    pub sections: u64,
}

impl Query<Collection> for LookAtCollection {
    const NAME: &'static str = View::NAME;
    type Answer = CollectionView;

    fn answer(self, collection: &Collection, _: &Moment<'_, Collection>) -> Result<CollectionView, SectionRejection> {
        Ok(CollectionView {
            sections: collection.sections.len() as u64,
        })
    }
}

/// The query `sections`: the sections' ids, in order and by page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListSections {
    /// Begins after this id; at the first by default.
    #[serde(default)]
    pub after: Option<String>,
    /// The number of sections on the page, 1 to 10,000; 100 by default.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// A page of the list of sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SectionsPage {
    /// The ids of the sections, in order.
    pub sections: Vec<String>,
    /// The start of the next page; `None` on the last.
    pub after: Option<String>,
}

impl Query<Collection> for ListSections {
    const NAME: &'static str = "sections";
    type Answer = SectionsPage;

    fn answer(self, collection: &Collection, _: &Moment<'_, Collection>) -> Result<SectionsPage, SectionRejection> {
        let limit = self.limit.unwrap_or(SECTIONS_PAGE_DEFAULT).clamp(1, SECTIONS_PAGE_MAX) as usize;
        let begin = self.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = collection.sections.range::<str, _>((begin, Bound::Unbounded));
        let sections: Vec<String> = rest.by_ref().take(limit).map(|section| section.to_string()).collect();
        let after = rest.next().and_then(|_| sections.last().cloned());
        Ok(SectionsPage { sections, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::{Subject, model::Error};

    fn needed(section: &str) -> CollectionCommand {
        CollectionCommand::Needed {
            section: section.into(),
            capacity: 3,
        }
    }

    fn home() -> Subject<Collection> {
        Subject::given(
            HOME,
            [CollectionEvent::Created {
                section: "C S 142-1".into(),
            }],
        )
    }

    #[test]
    fn a_needed_section_becomes_a_child_that_answers() {
        let mut home = Subject::<Collection>::given(HOME, []);
        let done = home.when(needed("C S 142-1")).unwrap();
        assert_eq!(
            done.effects.events,
            [CollectionEvent::Created {
                section: "C S 142-1".into()
            }]
        );
        let open = done.forwarded.unwrap();
        assert_eq!((&*open.kind, &*open.id, open.child), ("section", "C S 142-1", true));
        assert_eq!(open.command::<Section>(), Some(&SectionCommand::Open { capacity: 3 }));
    }

    #[test]
    fn a_section_needed_again_is_recorded_once_and_reports_itself() {
        let done = home().when(needed("C S 142-1")).unwrap();
        assert!(done.effects.is_empty());
        assert!(!done.forwarded.unwrap().child);
    }

    #[test]
    fn requests_are_passed_on_to_the_section() {
        let request = SectionCommand::Add { student: "ann".into() };
        let route = CollectionCommand::Route {
            section: "C S 142-1".into(),
            request: request.clone(),
        };
        let done = home().when(route).unwrap();
        let sent = done.forwarded.unwrap();
        assert_eq!((&*sent.kind, &*sent.id), ("section", "C S 142-1"));
        assert_eq!(sent.command::<Section>(), Some(&request));
        assert!(done.effects.is_empty(), "routing records nothing");
    }

    #[test]
    fn a_request_for_a_section_it_does_not_have_is_refused() {
        let request = SectionCommand::Drop { student: "ann".into() };
        let refused = home().when(CollectionCommand::Route {
            section: "C S 999-1".into(),
            request,
        });
        match refused {
            Err(Error::Rejected(rejection @ SectionRejection::NoSection { .. })) => {
                assert_eq!(rejection.to_string(), "there is no section `C S 999-1`");
            }
            other => panic!("{:?}", other.map(|done| done.reply)),
        }
    }

    #[test]
    fn a_section_cannot_be_called_anything() {
        for (id, found) in [(String::new(), 0), ("x".repeat(257), 257), ("a,b".into(), 3)] {
            match home().when(needed(&id)) {
                Err(Error::Rejected(SectionRejection::InvalidSection { bytes })) => assert_eq!(bytes, found),
                other => panic!("{id:?}: {:?}", other.map(|done| done.reply)),
            }
        }
        assert!(home().when(needed(&"x".repeat(256))).is_ok());
    }
}
