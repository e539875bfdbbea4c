//! The students of a section. Each change updates the size in memory.

use compact_str::CompactString;
use serde::{Deserialize, Serialize, Serializer};
use std::{collections::BTreeSet, ops::Bound};

/// The students, sorted by name. A lookup takes logarithmic time.
///
/// Names of up to 24 bytes are stored inside the tree, so that a lookup follows no pointer for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeSet<CompactString>")]
pub(super) struct Roster {
    students: BTreeSet<CompactString>,
    /// The total bytes of all names outside the tree.
    name_bytes: usize,
}

impl Serialize for Roster {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.students.serialize(serializer)
    }
}

/// Returns the bytes of a name outside its node of the tree.
fn beside(student: &str) -> usize {
    if student.len() > size_of::<CompactString>() {
        student.len() + 16
    } else {
        0
    }
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
            self.name_bytes += beside(student);
        }
    }

    pub(super) fn remove(&mut self, student: &str) {
        if self.students.remove(student) {
            self.name_bytes -= beside(student);
        }
    }

    /// Returns the students after a name, or all of them without one.
    pub(super) fn after<'roster>(&'roster self, name: Option<&str>) -> impl Iterator<Item = &'roster str> {
        let begin = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.students
            .range::<str, _>((begin, Bound::Unbounded))
            .map(CompactString::as_str)
    }

    /// Returns the approximate size in memory, without the struct itself: a tree two thirds full, and the long names.
    pub(super) fn heap_bytes(&self) -> usize {
        self.name_bytes + self.students.len() * size_of::<CompactString>() * 3 / 2
    }
}

impl From<BTreeSet<CompactString>> for Roster {
    fn from(students: BTreeSet<CompactString>) -> Self {
        let name_bytes = students.iter().map(|student| beside(student)).sum();
        Self { students, name_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn its_size_in_memory_follows_every_change(changes in proptest::collection::vec((any::<bool>(), "[a-c]{1,3}|[a-b]{24,26}"), 0..60)) {
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
