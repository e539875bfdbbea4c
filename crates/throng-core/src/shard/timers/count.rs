//! The number of a shard's timers in the store, and of the calls outside that wait for their outcome.
//!
//! A call without an outcome has one timer of the name [`LOOK`](crate::model::LOOK). A checkpoint knows which timers the store has then, and so how many of these.
//! From one checkpoint to the next, [`OpenCalls`] follows the calls that begin and that have their outcome. No entity is read for that.

use std::collections::BTreeMap;

/// Timers in the store, and the calls without an outcome that these stand for, by their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimersCount {
    /// The timers, those of calls among them.
    pub timers: u64,
    /// Calls without an outcome, by their kind.
    pub calls: BTreeMap<Box<str>, u64>,
}

impl TimersCount {
    /// Counts a timer, and the call of a kind that it stands for.
    pub(super) fn add(&mut self, call_of: Option<&str>) {
        self.timers += 1;
        if let Some(kind) = call_of {
            *self.calls.entry(kind.into()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, call_of: Option<&str>) {
        self.timers = self.timers.saturating_sub(1);
        if let Some(calls) = call_of.and_then(|kind| self.calls.get_mut(kind)) {
            *calls = calls.saturating_sub(1);
        }
    }

    /// Appends the calls to the value of a shard's mark.
    pub(super) fn write_calls(&self, value: &mut Vec<u8>) {
        for (kind, calls) in self.calls.iter().filter(|(_, calls)| **calls > 0) {
            value.push(kind.len() as u8);
            value.extend_from_slice(kind.as_bytes());
            value.extend_from_slice(&calls.to_be_bytes());
        }
        // Tells that the calls were counted, where there are none, too.
        value.push(0);
    }

    /// Reads what [`write_calls`](Self::write_calls) wrote; `None` of a program that did not count them.
    pub(super) fn read_calls(mut value: &[u8]) -> Option<BTreeMap<Box<str>, u64>> {
        let mut calls = BTreeMap::new();
        loop {
            let (length, rest) = value.split_first()?;
            if *length == 0 {
                return Some(calls);
            }
            let (kind, rest) = rest.split_at_checked(usize::from(*length))?;
            let (count, rest) = rest.split_first_chunk::<8>()?;
            calls.insert(str::from_utf8(kind).ok()?.into(), u64::from_be_bytes(*count));
            value = rest;
        }
    }
}

/// Calls that began, less those that have their outcome, by their kind: since the last checkpoint.
#[derive(Debug, Default)]
pub(in crate::shard) struct OpenCalls {
    changed: BTreeMap<Box<str>, i64>,
    /// The part that the checkpoint at work takes to the store; `changed` is without it.
    given: BTreeMap<Box<str>, i64>,
    /// The counts that the driver has taken over last.
    pub(super) booked: BTreeMap<&'static str, i64>,
    /// The counts may differ from these.
    pub(super) has_changed: bool,
}

impl OpenCalls {
    pub(in crate::shard) fn add(&mut self, kind: &str, calls: i64) {
        self.has_changed = true;
        match self.changed.get_mut(kind) {
            Some(changed) => *changed += calls,
            None => _ = self.changed.insert(kind.into(), calls),
        }
    }

    pub(super) fn give(&mut self) {
        self.failed();
        self.given = std::mem::take(&mut self.changed);
    }

    pub(super) fn failed(&mut self) {
        for (kind, calls) in std::mem::take(&mut self.given) {
            self.add(&kind, calls);
        }
    }

    pub(super) fn stored(&mut self) {
        self.has_changed = true;
        self.given.clear();
    }

    /// The calls of a kind, beside those that were stored.
    pub(super) fn now(&self, kind: &str, stored: &TimersCount) -> u64 {
        let of = |calls: &BTreeMap<Box<str>, i64>| calls.get(kind).copied().unwrap_or_default();
        let stored = stored.calls.get(kind).copied().unwrap_or_default();
        stored.saturating_add_signed(of(&self.changed) + of(&self.given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_stand_in_a_mark() {
        let mut count = TimersCount::default();
        let mut written = Vec::new();
        count.write_calls(&mut written);
        assert_eq!(TimersCount::read_calls(&written), Some(BTreeMap::new()));
        count.calls = [("call-mail".into(), 3), ("call-payments".into(), 1 << 40)].into();
        written.clear();
        count.write_calls(&mut written);
        assert_eq!(TimersCount::read_calls(&written), Some(count.calls));
        for cut in 0..written.len() {
            assert_eq!(TimersCount::read_calls(&written[..cut]), None, "{cut}");
        }
    }
}
