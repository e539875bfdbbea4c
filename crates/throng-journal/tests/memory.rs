//! The in-memory backends pass the suites.

use throng_journal::{MemoryJournal, conformance::journal};

struct Memory;

impl journal::Harness for Memory {
    type Journal = MemoryJournal;

    fn create(&self) -> MemoryJournal {
        MemoryJournal::new()
    }

    fn reopen(&self, journal: MemoryJournal) -> MemoryJournal {
        journal
    }

    fn several_nodes(&self) -> bool {
        true
    }
}

#[test]
fn the_memory_journal_is_a_journal() {
    journal::check_all(&Memory);
}
