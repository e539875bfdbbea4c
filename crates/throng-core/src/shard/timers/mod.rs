//! Named durable timers.

mod count;
mod operator_quarantine;
mod quarantines;
mod rows;
mod timekeeping;
mod timer;
mod window;

#[cfg(test)]
mod tests;

pub(super) use count::OpenCalls;
pub use count::TimersCount;
use quarantines::Written;
pub use rows::{
    DUE_ROWS, MARKED_ROWS, TIMER_ROWS, TimersMark, TimersStored, due_rows, stored_timer_print, timer_print,
};
pub(super) use rows::{TimerRows, read_row};
pub use timer::{Due, TimerView};
pub(super) use timer::{QUARANTINE, Set};
pub use window::{TimersPage, TimersRead};

use crate::{credit::Credit, limits::TIMERS_CREDIT, model::Timestamp};
use quarantines::OperatorQuarantines;
use rows::{ChangedTimer, KeyParts, StoredTimer, TimerKey, hash_of, key_of, place_of};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use throng_journal::{Address, CommitNo, Position, ShardId, WriterId};

/// A timer that is set.
#[derive(Debug)]
struct Standing {
    set: Set,
    /// The commit of its record in this epoch's stream; 0: it was recorded before this epoch.
    at: u64,
    /// True if a retention pass may have left a record that sets it, because the record is needed while the timer is set.
    is_left: bool,
}

/// The part of a shard's timers that is in memory.
#[derive(Debug, Default)]
pub(super) struct TimersWindow {
    /// The last timer read, by due time and key. `None`: all are in memory.
    pub(super) upto: Option<(i64, Vec<u8>)>,
    /// The time to read the next page, if not all are in memory.
    pub(super) refill_at: i64,
    /// The number of checkpoints. A page that was read before the last one is ignored.
    generation: u64,
    /// The timers in the store, as of the last checkpoint.
    pub(super) stored: TimersCount,
    /// `stored` counts the rows of the store; else it counts none of those that were there before.
    pub(super) is_counted: bool,
    /// A checkpoint has failed, and the store may have it.
    pub(super) is_unsure: bool,
    /// The store has the shard's mark of this writer.
    pub(super) is_marked: bool,
    /// True if all timers were read from the journal, and the store may have rows for any of them.
    pub(super) is_rebuilt: bool,
    /// Rows of the store that find no timer, since the last checkpoint.
    pub(super) stale: Vec<Vec<u8>>,
}

/// The version of the record that clears a timer of which retention passes have left no record.
pub(super) const LEFT_NONE: u16 = 1;
/// The commit of a timer that is not staged yet.
const UNSTAGED: u64 = u64::MAX;
/// The number of counters of a shard's [credit](Timers::credit): few, because each of many shards has its own.
const CREDIT_BUCKETS: usize = 64;

/// A shard's timers, as far as they are [in memory](window).
#[derive(Debug)]
pub(super) struct Timers {
    set: BTreeMap<TimerKey, Standing>,
    /// The timers set by the current command.
    unstaged: Vec<TimerKey>,
    /// The timers by the time of the next try: when due, or later if they could not be fired.
    order: BTreeSet<(i64, TimerKey)>,
    /// The timers that could not be fired: the time of the next try, and the number of failures.
    deferred: HashMap<TimerKey, (i64, u32)>,
    bytes: usize,
    /// The timers changed since the last checkpoint, with what the store has of them.
    changed: BTreeMap<TimerKey, StoredTimer>,
    /// The timers that changed before, and are on their way to the store.
    given: BTreeSet<TimerKey>,
    /// Entities that ended since the last checkpoint while not all timers were in memory. The store may have some of theirs.
    ended: BTreeSet<Vec<u8>>,
    /// Entities that ended before, and are on their way to the store.
    given_ended: BTreeSet<Vec<u8>>,
    pending_bytes: usize,
    window: TimersWindow,
    /// Counts the pending timers of each entity that were set since the start.
    credit: Credit,
    /// The quarantines that timers keep.
    pub(super) quarantines: OperatorQuarantines,
    /// The calls without an outcome, beside those in `window.stored`.
    pub(super) calls: OpenCalls,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            set: BTreeMap::new(),
            unstaged: Vec::new(),
            order: BTreeSet::new(),
            deferred: HashMap::new(),
            bytes: 0,
            changed: BTreeMap::new(),
            given: BTreeSet::new(),
            ended: BTreeSet::new(),
            given_ended: BTreeSet::new(),
            pending_bytes: 0,
            window: TimersWindow::default(),
            credit: Credit::with_buckets(TIMERS_CREDIT as u64, CREDIT_BUCKETS),
            quarantines: OperatorQuarantines::default(),
            calls: OpenCalls::default(),
        }
    }
}

/// The number of a shard's timers in memory before a command.
#[derive(Clone, Copy, Debug)]
pub struct TimersSet(usize);

/// An entity's timers that may be only in the store.
#[derive(Clone, Debug)]
pub struct TimersAway {
    prefix: Vec<u8>,
    /// The keys of timers whose rows in the store are outdated.
    known: BTreeSet<Vec<u8>>,
}

impl TimersAway {
    /// Returns the prefix of the rows of the entity's timers.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the number of timers found in memory.
    #[must_use]
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// Returns the timer of a row, unless it was found in memory.
    #[must_use]
    pub fn view(&self, row: &[u8], value: &[u8]) -> Option<TimerView> {
        let key = row.strip_prefix(TIMER_ROWS)?;
        let set = serde_json::from_slice(value).ok()?;
        let due = due_of(key, &set).filter(|due| due.name != QUARANTINE && !self.known.contains(key))?;
        Some(TimerView {
            tries: 0,
            next_at: due.at,
            due,
        })
    }
}

impl Timers {
    /// Returns the number of pending timers; if not all are in memory, the number at the last checkpoint.
    pub(super) fn len(&self) -> usize {
        let all = match self.window.upto {
            None => self.set.len(),
            Some(_) => usize::try_from(self.window.stored.timers).unwrap_or(usize::MAX),
        };
        all.saturating_sub(self.quarantines.len())
    }

    /// Counts the calls of a kind that have no outcome, in memory or not.
    pub(super) fn open_calls(&self, kind: &str) -> u64 {
        self.calls.now(kind, &self.window.stored)
    }

    /// The version of the record that clears a timer.
    pub(super) fn version_of_clearing(&self, of: &Address, name: &str) -> u16 {
        match self.is_left(of, name) {
            true => 0,
            false => LEFT_NONE,
        }
    }

    /// Returns the number of timers in memory, for [`multiplies`](Self::multiplies).
    pub(super) fn mark(&self) -> TimersSet {
        TimersSet(self.set.len())
    }

    /// True if there are more than at the mark, and the entity of this hash has exceeded its credit.
    pub(super) fn multiplies(&self, before: TimersSet, of: u64) -> bool {
        self.set.len() > before.0 && self.credit.is_spent(of)
    }

    /// Bytes they take in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of the notes on changed timers.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Sets a timer for the current command.
    pub(super) fn set(&mut self, address: &Address, name: &str, set: Set) {
        let key = self.insert(address, name, set, (UNSTAGED, false));
        self.unstaged.push(key);
    }

    /// Takes over a timer that was recorded before this epoch.
    pub(super) fn replay(&mut self, address: &Address, name: &str, set: Set) {
        self.insert(address, name, set, (0, true));
    }

    fn insert(&mut self, address: &Address, name: &str, set: Set, (at, is_left): (u64, bool)) -> TimerKey {
        let key = TimerKey::from(key_of(address, name));
        let is_left = is_left || self.is_left_of(&key);
        self.change(&key);
        self.remove(&key);
        self.credit.charge(hash_of(&key), 1);
        self.put(TimerKey::clone(&key), Standing { set, at, is_left });
        key
    }

    /// Notes that a timer is about to change, and what the store has of it.
    fn change(&mut self, key: &TimerKey) {
        if self.changed.contains_key(key) {
            return;
        }
        let stored = match self.set.get(key) {
            _ if self.given.contains(key) => StoredTimer::Unknown,
            Some(standing) => StoredTimer::At(place_of(key, standing.set.at)),
            None if self.is_all_in_memory() => StoredTimer::None,
            None => StoredTimer::Unknown,
        };
        self.pending_bytes += weigh_change(key);
        self.changed.insert(TimerKey::clone(key), stored);
    }

    fn put(&mut self, key: TimerKey, standing: Standing) {
        if let Some(KeyParts { kind, id, name }) = KeyParts::of(&key).filter(|parts| parts.name == QUARANTINE) {
            let of = Address::new(kind, id);
            self.quarantines.timer_set(&of, name, &standing.set, standing.at);
        }
        self.bytes += weigh(&key, &standing.set);
        self.order.insert((standing.set.at, TimerKey::clone(&key)));
        self.set.insert(key, standing);
    }

    /// Notes that the timers of the current command are in this commit.
    pub(super) fn staged(&mut self, commit: u64) {
        for key in self.unstaged.drain(..) {
            if let Some(standing) = self.set.get_mut(&key) {
                standing.at = commit;
                if let Some(parts) = KeyParts::of(&key).filter(|parts| parts.name == QUARANTINE) {
                    self.quarantines.staged(&parts.address(), parts.name, commit);
                }
            }
        }
    }

    /// True if a retention pass may have left a record that sets a timer of this name.
    pub(super) fn is_left(&self, address: &Address, name: &str) -> bool {
        self.is_left_of(&key_of(address, name))
    }

    fn is_left_of(&self, key: &[u8]) -> bool {
        match self.set.get(key) {
            Some(standing) => standing.is_left,
            None => self.may_be_stored(key),
        }
    }

    pub(super) fn clear(&mut self, address: &Address, name: &str) {
        let key = TimerKey::from(key_of(address, name));
        if self.set.contains_key(&key) || self.may_be_stored(&key) {
            self.change(&key);
            self.remove(&key);
        }
    }

    /// Adds the print of each pending timer in memory, with the position of its record if known. A retention pass leaves the records up to
    /// a kind's horizon that have such a print. `false`: the store has further timers, which are to be left as well.
    pub(super) fn prints(
        &mut self,
        writer: WriterId,
        horizon: impl Fn(&str) -> Position,
        into: &mut HashSet<u64>,
    ) -> bool {
        for (key, standing) in &mut self.set {
            let Some(KeyParts { kind, id, name }) = KeyParts::of(key) else {
                continue;
            };
            let at = (standing.at > 0).then_some(Position {
                writer,
                commit: CommitNo(standing.at),
            });
            standing.is_left |= at.is_none_or(|at| at <= horizon(kind));
            let body = serde_json::to_vec(&standing.set).unwrap_or_default();
            into.insert(timer_print((kind, id, name), &body, at));
        }
        self.window.upto.is_none()
    }

    /// Clears all timers of an entity.
    pub(super) fn clear_all(&mut self, address: &Address) {
        let entity = key_of(address, "");
        let own: Vec<TimerKey> = self.keys_of(&entity).cloned().collect();
        for key in own {
            self.change(&key);
            self.remove(&key);
        }
        if self.window.upto.is_some() {
            let bytes = weigh_change(&entity);
            if self.ended.insert(entity) {
                self.pending_bytes += bytes;
            }
        }
    }

    /// Returns the keys in memory of an entity, by its prefix.
    fn keys_of<'a>(&'a self, entity: &'a [u8]) -> impl Iterator<Item = &'a TimerKey> {
        use std::ops::Bound::{Included, Unbounded};
        let from = self.set.range::<[u8], _>((Included(entity), Unbounded));
        from.map(|(key, _)| key).take_while(|key| key.starts_with(entity))
    }

    fn remove(&mut self, key: &TimerKey) -> Option<Standing> {
        let old = self.take(key)?;
        self.credit.give_back(hash_of(key), 1);
        if let Some(parts) = KeyParts::of(key).filter(|parts| parts.name == QUARANTINE) {
            self.quarantines.timer_gone(&parts.address(), parts.name);
        }
        Some(old)
    }

    /// Removes a timer from memory.
    fn take(&mut self, key: &TimerKey) -> Option<Standing> {
        let old = self.set.remove(key)?;
        self.bytes -= weigh(key, &old.set);
        let at = self.deferred.remove(key).map_or(old.set.at, |(until, _)| until);
        self.order.remove(&(at, TimerKey::clone(key)));
        Some(old)
    }

    /// Has a timer that could not be fired tried again: after a second, and after twice as long at each further failure.
    pub(super) fn defer(&mut self, due: &Due, now: Timestamp) {
        let key = TimerKey::from(key_of(&due.address, &due.name));
        if !self.is_set(&due.address, &due.name, due.at) {
            return;
        }
        let (at, times) = self.deferred.get(&key).copied().unwrap_or((due.at.micros, 0));
        let until = now.micros + (RETRY_MICROS << times.min(RETRY_DOUBLINGS_MAX));
        self.order.remove(&(at, TimerKey::clone(&key)));
        self.order.insert((until, TimerKey::clone(&key)));
        self.deferred.insert(key, (until, times + 1));
    }

    /// Makes an entity's timers that could not be fired due again.
    pub(super) fn end_deferral(&mut self, of: &Address) {
        let entity = key_of(of, "");
        let late = self.deferred.keys().filter(|key| key.starts_with(&entity));
        let late: Vec<TimerKey> = late.cloned().collect();
        for key in late {
            if let (Some((until, _)), Some(standing)) = (self.deferred.remove(&key), self.set.get(&key)) {
                self.order.remove(&(until, TimerKey::clone(&key)));
                self.order.insert((standing.set.at, key));
            }
        }
    }

    /// Returns an entity's timers in memory, at most `limit`.
    pub(super) fn views_of(&self, of: &Address, limit: usize) -> Vec<TimerView> {
        let entity = key_of(of, "");
        let own = self.keys_of(&entity).filter(|key| place_of(key, 0) == 0);
        own.take(limit).filter_map(|key| self.view(key)).collect()
    }

    /// Returns an entity's timers that are not in memory, if there may be any.
    pub(super) fn away(&self, of: &Address) -> Option<TimersAway> {
        let entity = key_of(of, "");
        let has_ended = self.ended.contains(&entity) || self.given_ended.contains(&entity);
        (self.window.upto.is_some() && !has_ended).then(|| {
            let changed = self.changed.keys().chain(&self.given);
            let changed = changed.filter(|key| key.starts_with(&entity));
            TimersAway {
                known: self.keys_of(&entity).chain(changed).map(|key| key.to_vec()).collect(),
                prefix: rows::timer_row(&entity),
            }
        })
    }

    /// Returns timers that could not be fired, at most `limit`.
    pub(super) fn late(&self, limit: usize) -> Vec<TimerView> {
        let late = self.deferred.keys().take(limit);
        late.filter_map(|key| self.view(key)).collect()
    }

    /// True if a timer of this name could not be fired.
    pub(super) fn is_late(&self, of: &Address, name: &str) -> bool {
        self.deferred.contains_key(&key_of(of, name)[..])
    }

    fn view(&self, key: &[u8]) -> Option<TimerView> {
        let Standing { set, .. } = self.set.get(key)?;
        let (next_at, tries) = self.deferred.get(key).copied().unwrap_or((set.at, 0));
        Some(TimerView {
            due: due_of(key, set)?,
            tries,
            next_at: Timestamp { micros: next_at },
        })
    }

    pub(super) fn is_set(&self, address: &Address, name: &str, at: Timestamp) -> bool {
        let standing = self.set.get(&key_of(address, name)[..]);
        standing.is_some_and(|standing| standing.set.at == at.micros)
    }

    /// Returns the time when the next timer is due, or the next page has to be read.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let first = self.order.first().map(|(micros, _)| *micros);
        let refill = self.window.upto.as_ref().map(|_| self.window.refill_at);
        let micros = first.into_iter().chain(refill).min()?;
        Some(Timestamp { micros })
    }

    pub(super) fn due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now.micros).take(limit);
        due.filter_map(|(_, key)| due_of(key, &self.set.get(key)?.set))
            .collect()
    }

    /// Returns the changed timers for a checkpoint.
    pub(super) fn rows(&mut self, shard: ShardId, writer: WriterId) -> Option<TimerRows> {
        let window = &mut self.window;
        let is_same = self.changed.is_empty() && self.ended.is_empty() && window.stale.is_empty();
        if is_same && window.is_marked {
            return None;
        }
        let mut rows = TimerRows {
            shard,
            writer,
            changed: Vec::with_capacity(self.changed.len()),
            ended: self.ended.iter().cloned().collect(),
            stale: std::mem::take(&mut window.stale),
            count: window.stored.clone(),
            is_counted: window.is_counted,
            is_unsure: window.is_unsure,
        };
        self.calls.give();
        for (key, stored) in std::mem::take(&mut self.changed) {
            let set = self.set.get(&key).map(|standing| &standing.set);
            let now = set.and_then(|set| Some((place_of(&key, set.at), serde_json::to_vec(set).ok()?)));
            self.given.insert(TimerKey::clone(&key));
            rows.changed.push(ChangedTimer { key, stored, now });
        }
        self.given_ended.append(&mut self.ended);
        Some(rows)
    }

    /// Notes that the checkpoint with the last rows has failed: these timers count as changed, and the store may have taken them.
    pub(super) fn failed(&mut self) {
        self.window.is_unsure = true;
        self.calls.failed();
        for key in std::mem::take(&mut self.given) {
            let bytes = weigh_change(&key);
            if self.changed.insert(key, StoredTimer::Unknown).is_some() {
                self.pending_bytes -= bytes;
            }
        }
        for entity in std::mem::take(&mut self.given_ended) {
            let bytes = weigh_change(&entity);
            if !self.ended.insert(entity) {
                self.pending_bytes -= bytes;
            }
        }
    }
}

fn due_of(key: &[u8], set: &Set) -> Option<Due> {
    let parts = KeyParts::of(key)?;
    Some(Due {
        address: parts.address(),
        name: parts.name.to_owned(),
        at: Timestamp { micros: set.at },
        every_micros: set.every_micros,
        command: set.command.clone(),
        body: set.body.clone().into_bytes(),
    })
}

/// The first pause of a timer that could not be fired, and the number of times the pause doubles.
const RETRY_MICROS: i64 = 1_000_000;
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// The bytes of a timer in memory, about.
fn weigh(key: &[u8], set: &Set) -> usize {
    key.len() + set.command.len() + set.body.len() + 280
}

/// The bytes of the note that a timer changed, about.
fn weigh_change(key: &[u8]) -> usize {
    key.len() + 96
}

/// Returns the time at which a repeating timer is due next, after the missed ticks; `None` for a timer that does not repeat.
pub(super) fn next_after(due: &Due, now: Timestamp) -> Option<Timestamp> {
    let every = i64::try_from(due.every_micros?).ok()?.max(1);
    let missed = i64::try_from(due.missed_ticks(now)).ok()?;
    Some(Timestamp {
        micros: due
            .at
            .micros
            .saturating_add(missed.saturating_add(1).saturating_mul(every)),
    })
}
