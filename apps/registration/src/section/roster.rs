//! Who sits in a section, with its size in memory always at hand.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, ops::Bound};

/// Students in the order of their names. Looking one up takes the logarithm of their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeSet<Box<str>>", into = "BTreeSet<Box<str>>")]
pub(super) struct Roster {
    students: BTreeSet<Box<str>>,
    /// Bytes of all names together.
    name_bytes: usize,
}

impl Roster {
    pub(super) fn len(&self) -> usize {
        self.students.len()
    }

    pub(super) fn contains(&self, student: &str) -> bool {
        self.students.contains(student)
    }

    pub(super) fn insert(&mut self, student: &str) {
        if self.students.insert(student.into()) {
            self.name_bytes += student.len();
        }
    }

    pub(super) fn remove(&mut self, student: &str) {
        if self.students.remove(student) {
            self.name_bytes -= student.len();
        }
    }

    /// The students after a name (from the first, without one).
    pub(super) fn after<'roster>(&'roster self, name: Option<&str>) -> impl Iterator<Item = &'roster str> {
        let begin = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.students
            .range::<str, _>((begin, Bound::Unbounded))
            .map(|student| &**student)
    }

    /// What it takes in memory beyond itself, about: each name with its allocator's 16, and a tree two thirds full.
    pub(super) fn heap_bytes(&self) -> usize {
        self.name_bytes + self.students.len() * (16 + size_of::<Box<str>>() * 3 / 2)
    }
}

impl From<BTreeSet<Box<str>>> for Roster {
    fn from(students: BTreeSet<Box<str>>) -> Self {
        let name_bytes = students.iter().map(|student| student.len()).sum();
        Self { students, name_bytes }
    }
}

impl From<Roster> for BTreeSet<Box<str>> {
    fn from(roster: Roster) -> Self {
        roster.students
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn its_size_in_memory_follows_every_change(changes in proptest::collection::vec((any::<bool>(), "[a-c]{1,3}"), 0..60)) {
            let mut roster = Roster::default();
            for (joins, student) in changes {
                if joins { roster.insert(&student) } else { roster.remove(&student) }
            }
            let read: Roster = serde_json::from_str(&serde_json::to_string(&roster).unwrap()).unwrap();
            prop_assert_eq!(&read, &roster);
            prop_assert_eq!(read.heap_bytes(), roster.heap_bytes());
        }
    }

    #[test]
    fn a_page_begins_after_a_name_whether_it_is_there_or_not() {
        let mut roster = Roster::default();
        ["ann", "bob", "cem"].iter().for_each(|student| roster.insert(student));
        assert_eq!(roster.after(None).collect::<Vec<_>>(), ["ann", "bob", "cem"]);
        assert_eq!(roster.after(Some("ann")).collect::<Vec<_>>(), ["bob", "cem"]);
        assert_eq!(roster.after(Some("b")).collect::<Vec<_>>(), ["bob", "cem"]);
        assert_eq!(roster.after(Some("cem")).count(), 0);
    }
}
