//! The expected outcome of a registration. It repeats the rules with plain maps, and the tests compare the service with it.
//!
//! This module does not use the engine. A [`Reference`] takes the requests of a [`Trace`] one by one. It returns the expected answer to each
//! ([`Outcome`]), and in the end the students of each section ([`Rosters`]).
//!
//! The first matching rule from the top applies:
//!
//! | request | the section | outcome | the roster |
//! |---|---|---|---|
//! | any | is not offered | [`Outcome::NoSection`] | |
//! | add | holds the student | [`Outcome::AlreadyPresent`] | stays |
//! | add | has a seat left | [`Outcome::Added`] | the student joins |
//! | add | is full | [`Outcome::Full`] | stays |
//! | drop | holds the student | [`Outcome::Dropped`] | the student leaves |
//! | drop | does not | [`Outcome::NotPresent`] | stays |
//!
//! Presence is checked before the seats. So a second add of a present student is granted without a change, even in a full section. An administrative
//! drop counts as a drop. A drop is refused only for an unknown section.

mod rosters;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use rosters::{ContradictoryAnswers, Difference, Rosters};

use crate::trace::{OfferedSection, Request, Trace};

/// The expected answer to a request, and its effect on the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The add is granted: the student joined.
    Added,
    /// The add is granted without a change: the student was present.
    AlreadyPresent,
    /// The add is refused: no seat is left.
    Full,
    /// The drop is done: the student left.
    Dropped,
    /// The drop is answered as done, without a change: the student was not present.
    NotPresent,
    /// The request is refused: the section is not offered.
    NoSection,
}

impl Outcome {
    /// True for the granted answers to an add.
    pub fn is_granted(self) -> bool {
        matches!(self, Self::Added | Self::AlreadyPresent)
    }

    /// True for a refusal of an add or a drop.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Full | Self::NoSection)
    }
}

/// The number of requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Adds by which a student joined.
    pub added: u64,
    /// Adds of students who were present.
    pub already_present: u64,
    /// Adds refused because no seat was left.
    pub full: u64,
    /// Drops by which a student left.
    pub dropped: u64,
    /// Drops of students who were not present.
    pub not_present: u64,
    /// Requests refused because the section is not offered.
    pub no_section: u64,
}

impl OutcomeCounts {
    /// Adds one to the count of an outcome.
    pub fn count(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Added => &mut self.added,
            Outcome::AlreadyPresent => &mut self.already_present,
            Outcome::Full => &mut self.full,
            Outcome::Dropped => &mut self.dropped,
            Outcome::NotPresent => &mut self.not_present,
            Outcome::NoSection => &mut self.no_section,
        } += 1;
    }

    /// Returns the number of granted adds.
    pub fn granted(&self) -> u64 {
        self.added + self.already_present
    }

    /// Returns the number of refused requests, for any reason.
    pub fn refused(&self) -> u64 {
        self.full + self.no_section
    }
}

impl FromIterator<Outcome> for OutcomeCounts {
    fn from_iter<Outcomes: IntoIterator<Item = Outcome>>(outcomes: Outcomes) -> Self {
        let mut counts = Self::default();
        outcomes.into_iter().for_each(|outcome| counts.count(outcome));
        counts
    }
}

/// The offered sections and their students, as plain maps.
#[derive(Clone, Debug)]
pub struct Reference {
    sections: BTreeMap<Arc<str>, Seats>,
}

#[derive(Clone, Debug)]
struct Seats {
    capacity: u32,
    roster: BTreeSet<Arc<str>>,
}

/// The expected result of a whole trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The outcome of each request, by its index in [`Trace::requests`].
    pub outcomes: Vec<Outcome>,
    /// The rosters after the last request.
    pub rosters: Rosters,
}

impl Expected {
    /// Applies all requests of a trace in order.
    pub fn of(trace: &Trace) -> Self {
        let mut reference = Reference::open(&trace.sections);
        let outcomes = trace.requests.iter().map(|request| reference.apply(request)).collect();
        Self {
            outcomes,
            rosters: reference.rosters(),
        }
    }
}

impl Reference {
    /// Opens the sections, all empty. Of two sections with one id, the first counts.
    pub fn open(sections: &[OfferedSection]) -> Self {
        let mut opened = BTreeMap::new();
        for OfferedSection { id, capacity } in sections {
            opened.entry(id.clone()).or_insert_with(|| Seats {
                capacity: *capacity,
                roster: BTreeSet::new(),
            });
        }
        Self { sections: opened }
    }

    /// Applies a request, and returns the expected answer.
    pub fn apply(&mut self, request: &Request) -> Outcome {
        let Some(section) = self.sections.get_mut(&request.section) else {
            return Outcome::NoSection;
        };
        let taken = section.roster.len();
        let present = section.roster.contains(&request.student);
        match (request.operation.is_drop(), present) {
            (true, true) => {
                section.roster.remove(&request.student);
                Outcome::Dropped
            }
            (true, false) => Outcome::NotPresent,
            (false, true) => Outcome::AlreadyPresent,
            (false, false) if taken >= section.capacity as usize => Outcome::Full,
            (false, false) => {
                section.roster.insert(request.student.clone());
                Outcome::Added
            }
        }
    }

    /// Returns the current rosters of all offered sections, including empty ones.
    pub fn rosters(&self) -> Rosters {
        Rosters {
            sections: self
                .sections
                .iter()
                .map(|(id, seats)| (id.clone(), seats.roster.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DateTime, Operation};

    fn section(id: &str, capacity: u32) -> OfferedSection {
        OfferedSection {
            id: id.into(),
            capacity,
        }
    }

    fn request(student: &str, operation: Operation, section: &str) -> Request {
        Request {
            student: student.into(),
            section: section.into(),
            at: DateTime::MIN,
            operation,
        }
    }

    fn outcomes(capacity: u32, requests: &[(&str, Operation)]) -> Vec<Outcome> {
        let mut reference = Reference::open(&[section("C S 142-1", capacity)]);
        requests
            .iter()
            .map(|(student, operation)| reference.apply(&request(student, *operation, "C S 142-1")))
            .collect()
    }

    use Operation::{Add, AdministrativeDrop, Drop};

    #[test]
    fn adds_are_granted_until_the_section_is_full() {
        let found = outcomes(2, &[("ann", Add), ("bob", Add), ("cem", Add)]);
        assert_eq!(found, [Outcome::Added, Outcome::Added, Outcome::Full]);
    }

    #[test]
    fn a_section_without_seats_refuses_everybody() {
        assert_eq!(outcomes(0, &[("ann", Add)]), [Outcome::Full]);
    }

    #[test]
    fn a_second_add_is_granted_without_taking_a_second_seat() {
        let found = outcomes(2, &[("ann", Add), ("ann", Add), ("bob", Add)]);
        assert_eq!(found, [Outcome::Added, Outcome::AlreadyPresent, Outcome::Added]);
    }

    #[test]
    fn a_second_add_is_granted_in_a_full_section_too() {
        assert_eq!(
            outcomes(1, &[("ann", Add), ("ann", Add)]),
            [Outcome::Added, Outcome::AlreadyPresent]
        );
    }

    #[test]
    fn a_drop_frees_the_seat_for_the_next_student() {
        let found = outcomes(1, &[("ann", Add), ("ann", Drop), ("bob", Add), ("ann", Add)]);
        assert_eq!(found, [Outcome::Added, Outcome::Dropped, Outcome::Added, Outcome::Full]);
    }

    #[test]
    fn a_drop_of_an_absent_student_frees_no_seat() {
        let found = outcomes(1, &[("ann", Add), ("bob", Drop), ("cem", Add)]);
        assert_eq!(found, [Outcome::Added, Outcome::NotPresent, Outcome::Full]);
    }

    #[test]
    fn a_second_drop_changes_nothing() {
        let found = outcomes(1, &[("ann", Add), ("ann", Drop), ("ann", Drop)]);
        assert_eq!(found, [Outcome::Added, Outcome::Dropped, Outcome::NotPresent]);
    }

    #[test]
    fn an_administrative_drop_is_a_drop() {
        let found = outcomes(
            1,
            &[("ann", AdministrativeDrop), ("ann", Add), ("ann", AdministrativeDrop)],
        );
        assert_eq!(found, [Outcome::NotPresent, Outcome::Added, Outcome::Dropped]);
    }

    #[test]
    fn a_section_not_offered_refuses_requests_and_has_no_roster() {
        let mut reference = Reference::open(&[section("C S 142-1", 1)]);
        for operation in [Add, Drop, AdministrativeDrop] {
            assert_eq!(
                reference.apply(&request("ann", operation, "C S 142-2")),
                Outcome::NoSection
            );
        }
        assert_eq!(reference.rosters().lines(), [""; 0]);
    }

    #[test]
    fn sections_do_not_share_seats_or_students() {
        let mut reference = Reference::open(&[section("MATH 110-1", 1), section("MATH 110-2", 1)]);
        assert_eq!(reference.apply(&request("ann", Add, "MATH 110-1")), Outcome::Added);
        assert_eq!(reference.apply(&request("ann", Add, "MATH 110-2")), Outcome::Added);
        assert_eq!(reference.apply(&request("ann", Drop, "MATH 110-1")), Outcome::Dropped);
        assert_eq!(reference.rosters().lines(), ["MATH 110-2,ann"]);
    }

    #[test]
    fn of_two_sections_with_one_id_the_first_holds() {
        let mut reference = Reference::open(&[section("MATH 110-1", 0), section("MATH 110-1", 9)]);
        assert_eq!(reference.apply(&request("ann", Add, "MATH 110-1")), Outcome::Full);
    }

    #[test]
    fn a_drop_is_neither_granted_nor_refused() {
        use Outcome::{Added, AlreadyPresent, Dropped, Full, NoSection, NotPresent};
        let all = [Added, AlreadyPresent, Full, Dropped, NotPresent, NoSection];
        let granted: Vec<Outcome> = all.into_iter().filter(|outcome| outcome.is_granted()).collect();
        let refused: Vec<Outcome> = all.into_iter().filter(|outcome| outcome.is_refused()).collect();
        assert_eq!(granted, [Added, AlreadyPresent]);
        assert_eq!(refused, [Full, NoSection]);
    }

    #[test]
    fn counts_tell_grants_from_refusals() {
        let counts: OutcomeCounts = outcomes(
            1,
            &[("ann", Add), ("ann", Add), ("bob", Add), ("bob", Drop), ("ann", Drop)],
        )
        .into_iter()
        .chain([Outcome::NoSection])
        .collect();
        let expected = OutcomeCounts {
            added: 1,
            already_present: 1,
            full: 1,
            dropped: 1,
            not_present: 1,
            no_section: 1,
        };
        assert_eq!(counts, expected);
        assert_eq!((counts.granted(), counts.refused()), (2, 2));
    }
}
