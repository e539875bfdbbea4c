//! Named durable timers.

use super::operator_quarantine::{OperatorQuarantines, QUARANTINE};
use crate::{limits::TIMERS_CREDIT, model::Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use throng_journal::{Address, CommitNo, Position, WriterId};

/// A timer that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The entity that has set it.
    pub address: Address,
    /// The timer's name within the entity.
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

/// A timer as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerView {
    /// When it is due, again and again if so, and what it asks.
    pub due: Due,
    /// How often it could not be fired.
    pub tries: u32,
    /// When it is tried next.
    pub next_at: Timestamp,
}

impl Due {
    /// The beats after the one that is due which should have been by now, too.
    #[must_use]
    pub fn missed_beats(&self, now: Timestamp) -> u64 {
        let late = now.micros.saturating_sub(self.at.micros).max(0).cast_unsigned();
        self.every_micros.map_or(0, |every| late / every.max(1))
    }
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

/// A timer that is set.
#[derive(Debug)]
struct Standing {
    set: Set,
    /// The commit of this life's stream with its record; 0: it was recorded before this life.
    at: u64,
    /// A pass over history may have left a record that sets it: while it is set, it is needed.
    is_left: bool,
}

/// Not in a commit yet: in the open one, with whatever else its command records.
const UNSTAGED: u64 = u64::MAX;

/// A shard's timers.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeMap<Named, Standing>,
    /// Set by the command at hand.
    unstaged: Vec<Named>,
    /// By when they are tried: when they are due, or later, once they could not be fired.
    order: BTreeSet<(i64, Named)>,
    /// Until when those wait that could not be fired, and how often that was.
    deferred: HashMap<Named, (i64, u32)>,
    bytes: usize,
    /// Changed since the last checkpoint.
    changed: BTreeSet<Named>,
    /// Changed before, and on the way to the store.
    given: BTreeSet<Named>,
    /// The quarantines that timers keep.
    pub(super) quarantines: OperatorQuarantines,
}

/// Timers of a shard between two counts of those of one entity: so counting takes little time for each that is set.
const COUNTED_EVERY: usize = 256;

/// The number of a shard's timers before a command.
#[derive(Clone, Copy, Debug)]
pub struct TimersSet(usize);

impl super::Shard {
    /// Remembers how many timers there are, for [`multiplies_timers`](Self::multiplies_timers).
    #[must_use]
    pub fn timers_set(&self) -> TimersSet {
        TimersSet(self.common.timers.len())
    }

    /// Tells whether the command just executed left more timers than there were before, and its entity has more than its credit. An entity
    /// goes on for at most 256 timers beyond it.
    #[must_use]
    pub fn multiplies_timers(&self, before: TimersSet, of: impl FnOnce() -> Address) -> bool {
        let timers = &self.common.timers;
        let now = timers.len();
        now > TIMERS_CREDIT && now / COUNTED_EVERY > before.0 / COUNTED_EVERY && {
            let of = of();
            let own = timers.set.range((of.clone(), String::new())..);
            let own = own.take_while(|((address, _), _)| *address == of);
            own.take(TIMERS_CREDIT + 1).count() > TIMERS_CREDIT
        }
    }

    /// The number of messages sent and not [taken](Self::take_outbox).
    #[must_use]
    pub fn outbox_len(&self) -> usize {
        self.common.outbox.len()
    }
}

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.set.len() - self.quarantines.len()
    }

    /// Bytes they take in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// By the command at hand.
    pub(super) fn set(&mut self, address: &Address, name: &str, set: Set) {
        self.insert(address, name, set, (UNSTAGED, false));
        self.unstaged.push((address.clone(), name.to_owned()));
    }

    /// As was recorded before this life.
    pub(super) fn replay(&mut self, address: &Address, name: &str, set: Set) {
        self.insert(address, name, set, (0, true));
    }

    fn insert(&mut self, address: &Address, name: &str, set: Set, (at, is_left): (u64, bool)) {
        let named = (address.clone(), name.to_owned());
        let before = self.remove(&named);
        let is_left = is_left || before.is_some_and(|before| before.is_left);
        self.quarantines.timer_set(address, name, &set, at);
        self.bytes += weigh(&named, &set);
        self.order.insert((set.at, named.clone()));
        self.set.insert(named.clone(), Standing { set, at, is_left });
        self.changed.insert(named);
    }

    /// What the command at hand has set stands in this commit.
    pub(super) fn staged(&mut self, commit: u64) {
        for named in self.unstaged.drain(..) {
            if let Some(standing) = self.set.get_mut(&named) {
                standing.at = commit;
                self.quarantines.staged(&named.0, &named.1, commit);
            }
        }
    }

    /// Whether a pass may have left a record that sets a timer of this name.
    pub(super) fn is_left(&self, address: &Address, name: &str) -> bool {
        let named = (address.clone(), name.to_owned());
        self.set.get(&named).is_some_and(|standing| standing.is_left)
    }

    pub(super) fn clear(&mut self, address: &Address, name: &str) {
        let named = (address.clone(), name.to_owned());
        if self.remove(&named).is_some() {
            self.changed.insert(named);
        }
    }

    /// One number for each that is set: with the place of its record, where that is known. What stands up to a kind's horizon is left by a pass
    /// that goes by this.
    pub(super) fn prints(&mut self, writer: WriterId, horizon: impl Fn(&str) -> Position, into: &mut HashSet<u64>) {
        for ((address, name), standing) in &mut self.set {
            let at = (standing.at > 0).then_some(Position {
                writer,
                commit: CommitNo(standing.at),
            });
            standing.is_left |= at.is_none_or(|at| at <= horizon(&address.kind));
            let body = serde_json::to_vec(&standing.set).unwrap_or_default();
            into.insert(super::timer_print((&address.kind, &address.id, name), &body, at));
        }
    }

    /// Clears all timers of an entity.
    pub(super) fn clear_all(&mut self, address: &Address) {
        let first = (address.clone(), String::new());
        let own = self.set.range(first..).take_while(|((of, _), _)| of == address);
        let names: Vec<String> = own.map(|((_, name), _)| name.clone()).collect();
        names.iter().for_each(|name| self.clear(address, name));
    }

    fn remove(&mut self, named: &Named) -> Option<Standing> {
        let old = self.set.remove(named)?;
        self.bytes -= weigh(named, &old.set);
        self.quarantines.timer_gone(&named.0, &named.1);
        let at = self.deferred.remove(named).map_or(old.set.at, |(until, _)| until);
        self.order.remove(&(at, named.clone()));
        Some(old)
    }

    /// It could not be fired: it is tried again, after a second, and after twice as long each time that fails.
    pub(super) fn defer(&mut self, due: &Due, now: Timestamp) {
        let named = (due.address.clone(), due.name.clone());
        if !self.is_set(&due.address, &due.name, due.at) {
            return;
        }
        let (at, times) = self.deferred.get(&named).copied().unwrap_or((due.at.micros, 0));
        let until = now.micros + (RETRY_MICROS << times.min(RETRY_DOUBLINGS_MAX));
        self.order.remove(&(at, named.clone()));
        self.order.insert((until, named.clone()));
        self.deferred.insert(named, (until, times + 1));
    }

    /// Makes an entity's timers that could not be fired due again.
    pub(super) fn end_deferral(&mut self, of: &Address) {
        let late = self.deferred.keys().filter(|(address, _)| address == of);
        let late: Vec<Named> = late.cloned().collect();
        for named in late {
            if let (Some((until, _)), Some(standing)) = (self.deferred.remove(&named), self.set.get(&named)) {
                self.order.remove(&(until, named.clone()));
                self.order.insert((standing.set.at, named));
            }
        }
    }

    /// An entity's own, at most so many.
    pub(super) fn views_of(&self, of: &Address, limit: usize) -> Vec<TimerView> {
        let first = (of.clone(), String::new());
        let own = self.set.range(first..).take_while(|((address, _), _)| address == of);
        let own = own.filter(|((_, name), _)| name != QUARANTINE);
        own.take(limit).filter_map(|(named, _)| self.view(named)).collect()
    }

    /// Those that could not be fired, at most so many.
    pub(super) fn late(&self, limit: usize) -> Vec<TimerView> {
        self.deferred
            .keys()
            .take(limit)
            .filter_map(|named| self.view(named))
            .collect()
    }

    /// Whether there is one of this name that could not be fired.
    pub(super) fn is_late(&self, of: &Address, name: &str) -> bool {
        self.deferred.contains_key(&(of.clone(), name.to_owned()))
    }

    fn view(&self, named: &Named) -> Option<TimerView> {
        let Standing { set, .. } = self.set.get(named)?;
        let (next_at, tries) = self.deferred.get(named).copied().unwrap_or((set.at, 0));
        Some(TimerView {
            due: due_of(named, set),
            tries,
            next_at: Timestamp { micros: next_at },
        })
    }

    pub(super) fn is_set(&self, address: &Address, name: &str, at: Timestamp) -> bool {
        self.set
            .get(&(address.clone(), name.to_owned()))
            .is_some_and(|standing| standing.set.at == at.micros)
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(micros, _)| Timestamp { micros: *micros })
    }

    pub(super) fn due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now.micros).take(limit);
        due.filter_map(|(_, named)| Some(due_of(named, &self.set.get(named)?.set)))
            .collect()
    }

    /// Rows of what changed, for a checkpoint.
    pub(super) fn rows(&mut self, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        self.given.append(&mut self.changed);
        for named in &self.given {
            let (address, name) = named;
            let mut row = vec![b't'];
            row.extend_from_slice(address.kind.as_bytes());
            row.push(0);
            row.extend_from_slice(&(address.id.len() as u16).to_be_bytes());
            row.extend_from_slice(address.id.as_bytes());
            row.extend_from_slice(name.as_bytes());
            let standing = self.set.get(named);
            let value = standing.and_then(|standing| serde_json::to_vec(&standing.set).ok());
            rows.push((row, value));
        }
    }

    /// The checkpoint with the last rows is done.
    pub(super) fn stored(&mut self) {
        self.given.clear();
    }

    /// The checkpoint with the last rows has failed: they are changed still.
    pub(super) fn failed(&mut self) {
        self.changed.append(&mut self.given);
    }

    /// A row of the store, at recovery.
    pub(super) fn restore(&mut self, row: &[u8], value: &[u8]) {
        if let (Some((address, name)), Ok(set)) = (read_row(row), serde_json::from_slice::<Set>(value)) {
            self.replay(&address, &name, set);
            self.changed.remove(&(address, name));
        }
    }
}

fn due_of((address, name): &Named, set: &Set) -> Due {
    Due {
        address: address.clone(),
        name: name.clone(),
        at: Timestamp { micros: set.at },
        every_micros: set.every_micros,
        command: set.command.clone(),
        body: set.body.clone().into_bytes(),
    }
}

/// How long a timer waits that could not be fired, at first, and how often that doubles.
const RETRY_MICROS: i64 = 1_000_000;
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// What a timer takes in memory, about: its name stands there twice.
fn weigh((address, name): &Named, set: &Set) -> usize {
    2 * (address.kind.len() + address.id.len() + name.len() + 64) + set.command.len() + set.body.len() + 112
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
    let missed = i64::try_from(due.missed_beats(now)).ok()?;
    Some(Timestamp {
        micros: due
            .at
            .micros
            .saturating_add(missed.saturating_add(1).saturating_mul(every)),
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

    fn at(commit: u64) -> Position {
        Position {
            writer: WriterId(2),
            commit: CommitNo(commit),
        }
    }

    #[test]
    fn it_is_known_whether_a_pass_has_left_what_sets_a_timer() {
        let (mut timers, address) = (Timers::default(), Address::new("k", "i"));
        let is_left = |timers: &Timers| ["a", "b", "c"].map(|name| timers.is_left(&address, name));
        timers.set(&address, "a", set(10));
        timers.staged(3);
        timers.set(&address, "b", set(20));
        timers.staged(5);
        let pass = |timers: &mut Timers, commit| timers.prints(WriterId(2), |_| at(commit), &mut HashSet::new());
        pass(&mut timers, 2);
        assert_eq!(is_left(&timers), [false; 3]);
        pass(&mut timers, 4);
        assert_eq!(is_left(&timers), [true, false, false]);
        // Whoever sets it again does not take that back.
        timers.set(&address, "a", set(30));
        timers.staged(7);
        assert_eq!(is_left(&timers), [true, false, false]);
        timers.clear(&address, "a");
        timers.set(&address, "a", set(30));
        assert_eq!(is_left(&timers), [false; 3]);
        // What was before a life is not known.
        timers.replay(&address, "c", set(40));
        assert_eq!(is_left(&timers), [false, false, true]);
        // Read back after a row of the store says so already, it is still one.
        timers.replay(&address, "c", set(50));
        timers.clear(&address, "c");
        let due = timers.due(Timestamp { micros: 100 }, 9);
        assert!(due.iter().all(|due| due.name != "c"), "{due:?}");
        assert_eq!(timers.order.len(), timers.set.len());
    }

    #[test]
    fn a_timer_s_print_is_that_of_its_own_record_and_of_no_other_that_says_the_same() {
        let (mut timers, address) = (Timers::default(), Address::new("k", "i"));
        let body = serde_json::to_vec(&set(10)).unwrap();
        let print = |at| super::super::timer_print(("k", "i", "a"), &body, at);
        let prints = |timers: &mut Timers| {
            let mut prints = HashSet::new();
            timers.prints(WriterId(2), |_| at(0), &mut prints);
            prints
        };
        timers.set(&address, "a", set(10));
        timers.staged(3);
        assert_eq!(prints(&mut timers), [print(Some(at(3)))].into());
        let mut next = Timers::default();
        next.replay(&address, "a", set(10));
        assert_eq!(prints(&mut next), [print(None)].into());
    }

    #[test]
    fn one_that_cannot_be_fired_is_tried_later_and_later() {
        let (mut timers, address) = (Timers::default(), Address::new("k", "i"));
        let at = |micros| Timestamp { micros };
        timers.set(&address, "a", set(10));
        timers.set(&address, "b", set(11));
        let due = timers.due(at(10), 9).remove(0);
        let mut now = 10;
        for wait in [1, 2, 4, 8, 16, 32, 64, 64] {
            timers.defer(&due, at(now));
            now += wait * 1_000_000;
            assert!(
                timers.due(at(now - 1), 9).iter().all(|other| other.name == "b"),
                "{wait} s"
            );
            assert!(
                timers.due(at(now), 9).contains(&due),
                "it is still the one that was due at 10"
            );
        }
        timers.set(&address, "a", set(20));
        assert_eq!(timers.due(at(20), 9).len(), 2, "set anew, it is due when it says");
        timers.clear(&address, "a");
        timers.clear(&address, "b");
        assert_eq!((timers.bytes(), timers.order.len(), timers.deferred.len()), (0, 0, 0));
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
        let missed = [100, 109, 110, 135].map(|now| due.missed_beats(at(now)));
        assert_eq!(missed, [0, 0, 1, 3], "the beats at 110, 120 and 130, by 135");
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
