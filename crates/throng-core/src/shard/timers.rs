//! Named durable timers.

use crate::model::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use throng_journal::Address;

/// A timer that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Whose.
    pub address: Address,
    /// Its name.
    pub name: String,
    /// When it was due.
    pub at: Timestamp,
    /// Then again after this many microseconds.
    pub every_micros: Option<u64>,
    /// The command's name.
    pub command: String,
    /// The command's content.
    pub body: Vec<u8>,
}

/// A timer's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Set {
    pub(super) at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) every_micros: Option<u64>,
    pub(super) command: String,
    pub(super) body: String,
}

type Named = (Address, String);

/// A shard's timers.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: HashMap<Named, Set>,
    order: BTreeSet<(i64, Named)>,
    /// Changed since the last checkpoint.
    changed: BTreeSet<Named>,
}

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.set.len()
    }

    pub(super) fn set(&mut self, address: &Address, name: &str, set: Set) {
        let named = (address.clone(), name.to_owned());
        self.order.insert((set.at, named.clone()));
        if let Some(old) = self.set.insert(named.clone(), set) {
            let (at, now_at) = (old.at, self.set.get(&named).map(|set| set.at));
            if Some(at) != now_at {
                self.order.remove(&(at, named.clone()));
            }
        }
        self.changed.insert(named);
    }

    pub(super) fn clear(&mut self, address: &Address, name: &str) {
        let named = (address.clone(), name.to_owned());
        if let Some(old) = self.set.remove(&named) {
            self.order.remove(&(old.at, named.clone()));
            self.changed.insert(named);
        }
    }

    pub(super) fn is_set(&self, address: &Address, name: &str, at: Timestamp) -> bool {
        self.set
            .get(&(address.clone(), name.to_owned()))
            .is_some_and(|set| set.at == at.micros)
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(micros, _)| Timestamp { micros: *micros })
    }

    pub(super) fn due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now.micros).take(limit);
        due.filter_map(|(at, named)| {
            let set = self.set.get(named)?;
            Some(Due {
                address: named.0.clone(),
                name: named.1.clone(),
                at: Timestamp { micros: *at },
                every_micros: set.every_micros,
                command: set.command.clone(),
                body: set.body.clone().into_bytes(),
            })
        })
        .collect()
    }

    /// Rows of what changed, for a checkpoint.
    pub(super) fn rows(&mut self, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for (address, name) in std::mem::take(&mut self.changed) {
            let mut row = vec![b't'];
            row.extend_from_slice(address.kind.as_bytes());
            row.push(0);
            row.extend_from_slice(&(address.id.len() as u16).to_be_bytes());
            row.extend_from_slice(address.id.as_bytes());
            row.extend_from_slice(name.as_bytes());
            let value = self
                .set
                .get(&(address, name))
                .and_then(|set| serde_json::to_vec(set).ok());
            rows.push((row, value));
        }
    }

    /// The checkpoint with these rows failed: they are changed still.
    pub(super) fn rows_failed(&mut self, rows: &[(Vec<u8>, Option<Vec<u8>>)]) {
        self.changed.extend(rows.iter().filter_map(|(row, _)| read_row(row)));
    }

    /// A row of the store, at recovery.
    pub(super) fn restore(&mut self, row: &[u8], value: &[u8]) {
        if let (Some((address, name)), Ok(set)) = (read_row(row), serde_json::from_slice::<Set>(value)) {
            self.set(&address, &name, set);
            self.changed.remove(&(address, name));
        }
    }
}

/// Whose timer a row is, and its name.
pub(super) fn read_row(row: &[u8]) -> Option<Named> {
    let (b't', rest) = row.split_first()? else { return None };
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (kind, rest) = (std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]);
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (id, name) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (id, name) = (std::str::from_utf8(id).ok()?, std::str::from_utf8(name).ok()?);
    Some((Address::new(kind, id), name.to_owned()))
}

/// What a set of due timers looks like in the order they fire.
pub(super) fn next_after(due: &Due, now: Timestamp) -> Option<Timestamp> {
    let every = i64::try_from(due.every_micros?).ok()?.max(1);
    let missed = (now.micros - due.at.micros).max(0) / every;
    Some(Timestamp {
        micros: due.at.micros + (missed + 1) * every,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(at: i64) -> Set {
        Set {
            at,
            every_micros: None,
            command: "Tick".into(),
            body: "{}".into(),
        }
    }

    #[test]
    fn setting_again_moves_and_clearing_removes() {
        let (mut timers, address) = (Timers::default(), Address::new("k", "i\0d"));
        timers.set(&address, "a", set(10));
        timers.set(&address, "b", set(5));
        timers.set(&address, "b", set(20));
        assert_eq!(timers.next(), Some(Timestamp { micros: 10 }));
        timers.clear(&address, "a");
        assert!(timers.due(Timestamp { micros: 19 }, 9).is_empty());
        assert_eq!(timers.due(Timestamp { micros: 20 }, 9).len(), 1);
        let mut rows = Vec::new();
        timers.rows(&mut rows);
        let mut again = Timers::default();
        for (row, value) in &rows {
            if let Some(value) = value {
                again.restore(row, value);
            }
        }
        assert_eq!(
            again.due(Timestamp { micros: 20 }, 9),
            timers.due(Timestamp { micros: 20 }, 9)
        );
    }

    #[test]
    fn a_repeating_timer_skips_what_it_missed() {
        let at = |micros| Timestamp { micros };
        let due = Due {
            address: Address::new("k", "i"),
            name: "n".into(),
            at: at(100),
            every_micros: Some(10),
            command: String::new(),
            body: Vec::new(),
        };
        assert_eq!(next_after(&due, at(100)), Some(at(110)));
        assert_eq!(next_after(&due, at(135)), Some(at(140)));
        assert_eq!(
            next_after(
                &Due {
                    every_micros: None,
                    ..due
                },
                at(135)
            ),
            None
        );
    }
}
