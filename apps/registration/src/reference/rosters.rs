//! The rosters of sections, as lines and for comparison.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Outcome;
use crate::trace::Request;

/// The students of each section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rosters {
    pub(super) sections: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// A section whose roster is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("section `{section}`: {} students missing {missing:?}, {} too many {unexpected:?}", missing.len(), unexpected.len())]
pub struct Difference {
    /// The id of the section.
    pub section: Arc<str>,
    /// The expected students who are not in it.
    pub missing: Vec<Arc<str>>,
    /// The students who are in it unexpectedly.
    pub unexpected: Vec<Arc<str>>,
}

impl Rosters {
    /// Sets the roster of a section, and replaces an earlier one.
    pub fn set(&mut self, section: Arc<str>, students: impl IntoIterator<Item = Arc<str>>) {
        self.sections.insert(section, students.into_iter().collect());
    }

    /// Returns the rosters that follow from a set of answers, independent of their order.
    ///
    /// This serves a replay without order. The outcomes are the service's. A student is in a section after one more [`Outcome::Added`] than
    /// [`Outcome::Dropped`]. Sections without either are left out, and [`Rosters::differences`] treats them as empty.
    ///
    /// # Errors
    ///
    /// The answers contradict each other. The error names the section and the student who was added twice without a drop between, or dropped more
    /// often than added.
    pub fn from_answers<'trace>(
        answers: impl IntoIterator<Item = (&'trace Request, Outcome)>,
    ) -> Result<Self, ContradictoryAnswers> {
        let mut seats: BTreeMap<(&Arc<str>, &Arc<str>), i64> = BTreeMap::new();
        for (Request { section, student, .. }, outcome) in answers {
            match outcome {
                Outcome::Added => *seats.entry((section, student)).or_default() += 1,
                Outcome::Dropped => *seats.entry((section, student)).or_default() -= 1,
                Outcome::AlreadyPresent | Outcome::Full | Outcome::NotPresent | Outcome::NoSection => {}
            }
        }
        let mut rosters = Self::default();
        for ((section, student), count) in seats {
            match count {
                0 => {}
                1 => {
                    rosters
                        .sections
                        .entry(section.clone())
                        .or_default()
                        .insert(student.clone());
                }
                _ => {
                    return Err(ContradictoryAnswers {
                        section: section.clone(),
                        student: student.clone(),
                        count,
                    });
                }
            }
        }
        Ok(rosters)
    }

    /// Returns the students of a section, sorted by name; none if the section is unknown.
    pub fn students(&self, section: &str) -> impl Iterator<Item = &Arc<str>> {
        self.sections.get(section).into_iter().flatten()
    }

    /// Returns the number of seats taken in all sections.
    pub fn enrolled(&self) -> usize {
        self.sections.values().map(BTreeSet::len).sum()
    }

    /// Returns all taken seats as lines `section,student` without line ends, sorted by bytes (as by `LC_ALL=C sort`).
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .sections
            .iter()
            .flat_map(|(section, students)| students.iter().map(move |student| format!("{section},{student}")))
            .collect();
        // Sections in order do not give lines in order: if one id is a prefix of another, a space may follow it, and a comma sorts after a space.
        lines.sort_unstable();
        lines
    }

    /// Returns the sections in which `found` differs from these rosters. A missing section counts as empty.
    pub fn differences(&self, found: &Self) -> Vec<Difference> {
        let empty = BTreeSet::new();
        let ids: BTreeSet<&Arc<str>> = self.sections.keys().chain(found.sections.keys()).collect();
        ids.into_iter()
            .map(|id| {
                let expected = self.sections.get(id).unwrap_or(&empty);
                let actual = found.sections.get(id).unwrap_or(&empty);
                Difference {
                    section: id.clone(),
                    missing: expected.difference(actual).cloned().collect(),
                    unexpected: actual.difference(expected).cloned().collect(),
                }
            })
            .filter(|difference| !difference.missing.is_empty() || !difference.unexpected.is_empty())
            .collect()
    }
}

/// The error for answers that no order of the requests explains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answers give student `{student}` {count} seats in section `{section}`, where 0 or 1 is possible")]
pub struct ContradictoryAnswers {
    /// The id of the section.
    pub section: Arc<str>,
    /// The student's name, as in the trace.
    pub student: Arc<str>,
    /// The number of answers by which the student joined, minus those by which the student left.
    pub count: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DateTime, Operation};

    fn request(operation: Operation) -> Request {
        Request {
            student: "ann".into(),
            section: "MATH 110-1".into(),
            at: DateTime::MIN,
            operation,
        }
    }

    #[test]
    fn roster_lines_are_sorted_by_their_bytes_not_by_section() {
        let mut rosters = Rosters::default();
        rosters.set("C S".into(), ["zoe".into(), "ann".into()]);
        rosters.set("C S 142-1".into(), ["bob".into()]);
        assert_eq!(rosters.lines(), ["C S 142-1,bob", "C S,ann", "C S,zoe"]);
        assert_eq!(rosters.enrolled(), 3);
        assert_eq!(
            rosters.students("C S").map(|student| &**student).collect::<Vec<_>>(),
            ["ann", "zoe"]
        );
        assert_eq!(rosters.students("C S 1").count(), 0);
    }

    #[test]
    fn differences_name_the_section_and_the_students_on_both_sides() {
        let mut expected = Rosters::default();
        expected.set("MATH 110-1".into(), ["ann".into(), "bob".into()]);
        expected.set("MATH 110-2".into(), []);
        let mut found = Rosters::default();
        found.set("MATH 110-1".into(), ["bob".into(), "cem".into()]);
        let difference = Difference {
            section: "MATH 110-1".into(),
            missing: vec!["ann".into()],
            unexpected: vec!["cem".into()],
        };
        assert_eq!(expected.differences(&found), [difference]);
        assert_eq!(expected.differences(&expected.clone()), []);
    }

    #[test]
    fn rosters_follow_from_the_answers_in_any_order() {
        let add = request(Operation::Add);
        let drop = request(Operation::Drop);
        let answers = [
            (&drop, Outcome::Dropped),
            (&add, Outcome::Added),
            (&add, Outcome::AlreadyPresent),
            (&add, Outcome::Added),
        ];
        assert_eq!(Rosters::from_answers(answers).unwrap().lines(), ["MATH 110-1,ann"]);
    }

    #[test]
    fn contradictory_answers_about_seats_are_found() {
        let add = request(Operation::Add);
        let twice = Rosters::from_answers([(&add, Outcome::Added), (&add, Outcome::Added)]).unwrap_err();
        assert_eq!(twice.count, 2);
        let never = Rosters::from_answers([(&add, Outcome::Dropped)]).unwrap_err();
        assert_eq!(never.count, -1);
    }
}
