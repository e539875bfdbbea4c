//! Calls outside whose worker the program lacks. They wait, so each worker is reported once, with the number of its open calls.

use std::collections::{BTreeMap, HashSet};
use throng_core::model::worker_of;
use throng_journal::{Address, Record, RecordKind};

/// The calls of missing workers, by the kind of the calls.
#[derive(Default)]
pub(super) struct WorkerlessCalls(BTreeMap<String, Calls>);

#[derive(Default)]
struct Calls {
    records: u64,
    open: HashSet<Box<str>>,
    first: String,
}

impl WorkerlessCalls {
    fn of(&mut self, kind: &str, first: impl FnOnce() -> String) -> &mut Calls {
        let calls = self.0.entry(kind.to_owned()).or_default();
        if calls.first.is_empty() {
            calls.first = first();
        }
        calls.records += 1;
        calls
    }

    /// Counts a record of an unknown kind; returns `false` if it is not of a call.
    pub(super) fn record(&mut self, record: &Record<'_>) -> bool {
        let is_begun = record.record == RecordKind::Event && record.name == "begun";
        let is_known = self.0.contains_key(record.kind);
        let is_of_call = matches!(
            record.record,
            RecordKind::Event | RecordKind::State | RecordKind::Ended | RecordKind::TimerSet
        );
        // An ordinary kind may have a name like a call's, but not these events.
        let is_line = matches!(record.name, "joined" | "left" | "admitted");
        if !is_of_call || worker_of(record.kind).is_none() || !(is_known || is_begun || is_line) {
            return false;
        }
        let at = || format!("{}/{} at {}", record.kind, record.id, record.place.position);
        let calls = self.of(record.kind, at);
        match record.record {
            RecordKind::Event if is_begun => _ = calls.open.insert(record.id.into()),
            RecordKind::Ended => _ = calls.open.remove(record.id),
            _ => {}
        }
        true
    }

    /// Counts a message that is still waiting at the end; returns `false` if it is not to a call.
    pub(super) fn message(&mut self, to: &Address, command: &str, at: &str) -> bool {
        let is_begin = command == "begin";
        if worker_of(&to.kind).is_none() || !(is_begin || self.0.contains_key(&*to.kind)) {
            return false;
        }
        let calls = self.of(&to.kind, || at.to_owned());
        if is_begin {
            calls.open.insert(to.id.clone());
        }
        true
    }

    /// Returns an entry for each missing worker: the problem and its effect, then the count and the first occurrence.
    pub(super) fn finish(self) -> impl Iterator<Item = ((String, String), (u64, String))> {
        self.0.into_iter().map(|(kind, calls)| {
            let worker = worker_of(&kind).unwrap_or(&kind);
            let open = match calls.open.len() {
                0 => "none of them is open".to_owned(),
                1 => "1 open call waits until it is".to_owned(),
                open => format!("{open} open calls wait until it is"),
            };
            let what = format!("calls of the worker {worker:?}");
            let reason = format!("the program was not given it (`outside`): {open}");
            ((what, reason), (calls.records, calls.first))
        })
    }
}
