//! Setting, clearing and firing timers, and which stay in memory.

use super::*;
use crate::model::LOOK;
use rows::{MARK_ROWS, due_row};
use std::ops::Bound;

const SHARD: ShardId = ShardId(3);
const WRITER: WriterId = WriterId(2);

/// The rows of one shard's timers in a store.
#[derive(Clone, Default)]
struct Store(BTreeMap<Vec<u8>, Vec<u8>>);

impl Store {
    fn scan(&self, prefix: &[u8], after: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let from = Bound::Excluded(if after.is_empty() { prefix } else { after });
        let rows = self.0.range::<[u8], _>((from, Bound::Unbounded));
        let rows = rows.take_while(|(row, _)| row.starts_with(prefix)).take(limit);
        rows.map(|(row, value)| (row.clone(), value.clone())).collect()
    }

    /// Applies the timer rows of a successful checkpoint.
    fn take(&mut self, timers: TimerRows) -> TimersStored {
        let (mut read, mut rows) = (HashMap::new(), Vec::new());
        read.extend(
            timers
                .of_ended()
                .iter()
                .flat_map(|prefix| self.scan(prefix, b"", usize::MAX)),
        );
        for row in timers.unknown() {
            let value = self.0.get(&row).cloned();
            read.extend(value.map(|value| (row, value)));
        }
        let stored = timers.resolve(&read, &mut rows);
        for (row, value) in rows {
            match value {
                Some(value) => _ = self.0.insert(row, value),
                None => _ = self.0.remove(&row),
            }
        }
        stored
    }

    fn read(&self, page: &TimersPage, limit: usize) -> TimersRead {
        let due = self.scan(&page.prefix(), &page.after(), limit);
        TimersRead {
            is_last: due.len() < limit,
            found: due
                .into_iter()
                .map(|(row, _)| {
                    let timer = self.0.get(&TimersPage::timer_row(&row).unwrap()).cloned();
                    (row, timer)
                })
                .collect(),
        }
    }

    /// Returns timers after a checkpoint of an older program, whose index rows do not count.
    fn left_by_older(&mut self) -> Timers {
        self.0
            .retain(|row, _| !row.starts_with(DUE_ROWS) && !row.starts_with(MARK_ROWS));
        let mut timers = Timers::default();
        for (row, value) in self.scan(TIMER_ROWS, b"", usize::MAX) {
            assert!(timers.restore(&row, &value));
        }
        timers
    }

    /// Checks that each timer row has exactly one index row, and each index row a timer.
    fn check(&self) {
        let timers = self.scan(TIMER_ROWS, b"", usize::MAX);
        let found = timers.iter().map(|(row, value)| {
            let set: Set = serde_json::from_slice(value).unwrap();
            due_row(SHARD, place_of(&row[1..], set.at), &row[1..])
        });
        let found: BTreeSet<Vec<u8>> = found.collect();
        let due: BTreeSet<Vec<u8>> = self
            .scan(DUE_ROWS, b"", usize::MAX)
            .into_iter()
            .map(|(row, _)| row)
            .collect();
        assert_eq!(found, due);
    }
}

/// Reads the due pages that were not read yet.
fn refill(timers: &mut Timers, store: &Store, now: i64, kept: usize) {
    while timers.due(Timestamp { micros: now }, 1).is_empty()
        && let Some(page) = timers.page(SHARD, Timestamp { micros: now })
    {
        assert!(timers.read(&page, store.read(&page, kept)));
    }
}

fn restarted(store: &Store, kept: usize) -> Timers {
    let mut timers = Timers::default();
    let mark = store.scan(MARK_ROWS, b"", 1);
    let mark = mark.first().and_then(|(row, value)| TimersMark::read(row, value));
    timers.in_store(mark.map_or_else(TimersCount::default, |mark| mark.count));
    while let Some(page) = timers.page(SHARD, Timestamp { micros: i64::MIN }) {
        timers.read(&page, store.read(&page, kept));
    }
    timers
}

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
    let mut store = Store::default();
    let stored = store.take(timers.rows(SHARD, WRITER).unwrap());
    timers.stored(&stored, 9);
    let mut again = Timers::default();
    for (row, value) in store.scan(TIMER_ROWS, b"", 9) {
        assert!(again.restore(&row, &value));
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
fn a_timer_knows_whether_a_pass_has_left_its_setting() {
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
    // Setting the timer again does not undo that.
    timers.set(&address, "a", set(30));
    timers.staged(7);
    assert_eq!(is_left(&timers), [true, false, false]);
    timers.clear(&address, "a");
    timers.set(&address, "a", set(30));
    assert_eq!(is_left(&timers), [false; 3]);
    // The previous state is unknown at the start of an epoch.
    timers.replay(&address, "c", set(40));
    assert_eq!(is_left(&timers), [false, false, true]);
    // The timer is replayed after a stored row already has it, and still counts as one.
    timers.replay(&address, "c", set(50));
    timers.clear(&address, "c");
    let due = timers.due(Timestamp { micros: 100 }, 9);
    assert!(due.iter().all(|due| due.name != "c"), "{due:?}");
    assert_eq!(timers.order.len(), timers.set.len());
}

#[test]
fn print_of_a_timer_is_that_of_its_own_record() {
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
fn a_repeating_timer_skips_missed_ticks() {
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
    let missed = [100, 109, 110, 135].map(|now| due.missed_ticks(at(now)));
    assert_eq!(missed, [0, 0, 1, 3], "the ticks at 110, 120 and 130, by 135");
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

/// Random changes of timers, with the expected result.
struct Trial {
    timers: Timers,
    store: Store,
    /// The timers that must be set.
    expected: BTreeMap<(u8, u8), i64>,
    /// The log after the last checkpoint.
    tail: Vec<Change>,
    log: Vec<Change>,
    /// The number of open calls now, and at the last checkpoint in the store.
    open: [i64; 2],
    dice: fastrand::Rng,
    kept: usize,
    now: i64,
    /// Each process has its own writer.
    writer: WriterId,
}

#[derive(Clone, Copy)]
enum Change {
    Set(u8, u8, i64),
    Clear(u8, u8),
    End(u8),
}

impl Trial {
    fn new(seed: u64) -> Self {
        Self {
            timers: Timers::default(),
            store: Store::default(),
            expected: BTreeMap::new(),
            tail: Vec::new(),
            log: Vec::new(),
            open: [0; 2],
            dice: fastrand::Rng::with_seed(seed),
            kept: 1 + seed as usize % 4,
            now: 0,
            writer: WRITER,
        }
    }

    fn address(of: u8) -> Address {
        Address::new("call-k", of.to_string())
    }

    /// Returns a timer's name. One is that of an open call, and one is that of a quarantine, which is never due.
    fn name(name: u8) -> &'static str {
        ["a", "b", LOOK, QUARANTINE][usize::from(name)]
    }

    fn change(&mut self, change: Change) {
        let is_open = |of: u8| self.expected.contains_key(&(of, 2));
        let opened = match change {
            Change::Set(of, 2, _) if !is_open(of) => 1,
            Change::Clear(of, 2) | Change::End(of) if is_open(of) => -1,
            _ => 0,
        };
        self.tail.push(change);
        self.log.push(change);
        self.open[0] += opened;
        self.timers.calls.add("call-k", opened);
        match change {
            Change::Set(of, name, at) => _ = self.expected.insert((of, name), at),
            Change::Clear(of, name) => _ = self.expected.remove(&(of, name)),
            Change::End(of) => self.expected.retain(|(other, _), _| *other != of),
        }
        match change {
            Change::Set(of, name, at) => {
                self.timers.set(&Self::address(of), Self::name(name), set(at));
                self.timers.staged(1);
            }
            other => replay(&mut self.timers, other),
        }
    }

    fn some_change(&mut self) {
        let (of, name) = (self.dice.u8(..12), self.dice.u8(..4));
        let at = match name {
            3 => i64::MAX - 1,
            // Many timers are due at the same moment.
            _ => self.now + self.dice.i64(1..40) * 10,
        };
        let change = match self.dice.u8(..10) {
            0 => Change::End(of),
            1..4 => Change::Clear(of, name),
            _ => Change::Set(of, name, at),
        };
        self.change(change);
    }

    fn some_changes(&mut self) {
        (0..self.dice.u8(..5)).for_each(|_| self.some_change());
    }

    /// Makes a checkpoint that may fail, before or after the store has it. Timers change and pages are read meanwhile.
    fn checkpoint(&mut self) {
        let early = self.timers.page(SHARD, Timestamp { micros: i64::MAX });
        let early = early.map(|page| (self.store.read(&page, self.kept), page));
        let Some(rows) = self.timers.rows(SHARD, self.writer) else {
            return;
        };
        let (covered, open) = (self.tail.len(), self.open[0]);
        self.some_changes();
        let is_lost = self.dice.u8(..5);
        let stored = (is_lost != 0).then(|| self.store.take(rows));
        if stored.is_some() {
            // A checkpoint that fails after it was stored counts, too: the store says up to where it covers the log.
            self.open[1] = open;
        }
        if self.dice.bool() {
            refill(&mut self.timers, &self.store, self.now, self.kept);
        }
        match stored.filter(|_| is_lost > 1) {
            None => self.timers.failed(),
            Some(stored) => {
                self.tail.drain(..covered);
                self.timers.stored(&stored, self.kept);
                self.store.check();
                if let Some((read, page)) = early {
                    assert!(!self.timers.read(&page, read), "it was read before the checkpoint");
                }
            }
        }
    }

    /// Restarts the process: the new one reads the store, then the log after the checkpoint. Sometimes an older program made the last checkpoint, or
    /// the store has no counts, so all of the log is read.
    fn restart(&mut self) {
        self.writer.0 += 1;
        match self.dice.u8(..6) {
            0 => {
                self.timers = Timers::default();
                self.timers.window.is_rebuilt = true;
                self.tail.clone_from(&self.log);
            }
            2.. if !self.store.scan(MARK_ROWS, b"", 1).is_empty() => self.timers = restarted(&self.store, self.kept),
            _ => self.timers = self.store.left_by_older(),
        }
        self.tail.iter().for_each(|change| replay(&mut self.timers, *change));
        let [open, stored] = self.open;
        let is_rebuilt = self.timers.window.is_rebuilt;
        self.timers
            .calls
            .add("call-k", if is_rebuilt { open } else { open - stored });
        let quarantined = self.expected.keys().filter(|(_, name)| *name == 3).count();
        assert_eq!(self.timers.quarantines.len(), quarantined);
    }

    /// Lets time pass. Each due timer fires once, at its time.
    fn fire(&mut self, until: i64) {
        loop {
            refill(&mut self.timers, &self.store, self.now, self.kept);
            let now = Timestamp { micros: self.now };
            if let Some(due) = self.timers.due(now, 1).pop() {
                let of = due.address.id.parse().unwrap();
                let name = (0..3).find(|name| Self::name(*name) == due.name).unwrap();
                assert_eq!(self.expected.get(&(of, name)), Some(&due.at.micros), "{due:?}");
                assert_eq!(due.at.micros, self.now, "a timer is late");
                self.change(Change::Clear(of, name));
            } else {
                match self.timers.next() {
                    Some(next) if next.micros <= until => self.now = self.now.max(next.micros),
                    _ => break self.now = until,
                }
            }
        }
        let late = self.expected.values().find(|at| **at <= until);
        assert_eq!(late, None, "a timer has not fired");
    }
}

fn replay(timers: &mut Timers, change: Change) {
    match change {
        Change::Set(of, name, at) => timers.replay(&Trial::address(of), Trial::name(name), set(at)),
        Change::Clear(of, name) => timers.clear(&Trial::address(of), Trial::name(name)),
        Change::End(of) => timers.clear_all(&Trial::address(of)),
    }
}

#[test]
fn timers_fire_once_in_time_wherever_they_stand() {
    let mut away = 0;
    for seed in 0..150 {
        let mut trial = Trial::new(seed);
        for _ in 0..60 {
            match trial.dice.u8(..8) {
                0 => trial.restart(),
                1 | 2 => trial.checkpoint(),
                3 => {
                    let until = trial.now + trial.dice.i64(0..60);
                    trial.fire(until);
                }
                _ => trial.some_changes(),
            }
            away += usize::from(trial.timers.set.len() < trial.expected.len());
            let open = trial.expected.keys().filter(|(_, name)| *name == 2).count();
            assert_eq!(trial.timers.open_calls("call-k"), open as u64, "seed {seed}");
            let own = Trial::address(3);
            let seen = trial.timers.views_of(&own, 9).len()
                + trial.timers.away(&own).map_or(0, |away| {
                    let rows = trial.store.scan(away.prefix(), b"", 9);
                    rows.iter().filter_map(|(row, value)| away.view(row, value)).count()
                });
            assert_eq!(
                seen,
                trial.expected.keys().filter(|(of, name)| *of == 3 && *name < 3).count()
            );
        }
        let until = trial.now + 1_000;
        trial.fire(until);
        // Nothing of the last timers remains, in memory or in the store.
        for of in 0..12 {
            trial.change(Change::End(of));
        }
        if let Some(rows) = trial.timers.rows(SHARD, trial.writer) {
            let stored = trial.store.take(rows);
            trial.timers.stored(&stored, trial.kept);
        }
        assert_eq!(trial.store.scan(TIMER_ROWS, b"", 9), []);
        assert_eq!(trial.store.scan(DUE_ROWS, b"", 9), []);
        assert_eq!(
            (trial.timers.bytes(), trial.timers.pending_bytes(), trial.timers.len()),
            (0, 0, 0)
        );
    }
    assert!(away > 1_000, "{away}");
}
