//! The speed of the embedded journal and store, as ratios to a bare loop where there is one, medians of five:
//!
//! ```text
//! cargo bench -p throng-log                 # everything, in the system's temporary directory
//! cargo bench -p throng-log -- append       # one of: append, index, load, recover
//! THRONG_BENCH_DIR=/some/disk cargo bench -p throng-log
//! ```
#![allow(clippy::unwrap_used, reason = "a measurement may")]

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use throng_journal::{
    Append, Appended, Checkpoint, Commit, CommitBuilder, CommitNo, Journal, Later, Maybe, Position, RecordKind,
    ShardId, Stamp, Store, StoredState, WriterId, conformance::block_on,
};
use throng_log::{Log, Options, open_embedded};
use yardsticks::disk::{Mode, measure};

const ROUNDS: usize = 5;
const EVENTS: usize = 1000;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    if wanted("append") {
        append();
    }
    if wanted("index") || wanted("load") {
        index_and_load();
    }
    if wanted("recover") {
        recover();
    }
}

fn directory() -> TempDir {
    let base = std::env::var_os("THRONG_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::Builder::new()
        .prefix("throng-bench-")
        .tempdir_in(base)
        .unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * percent / 100.0).round() as usize]
}

/// A thousand events of 100 bytes, of entities chosen by `entity`.
fn fill(open: &mut CommitBuilder, events: usize, mut entity: impl FnMut(usize) -> (u64, u64)) {
    use std::fmt::Write as _;
    let body = [b'x'; 100];
    let mut id = String::new();
    for index in 0..events {
        let (number, seq) = entity(index);
        id.clear();
        write!(id, "C S {number}").unwrap();
        open.push_parts(
            RecordKind::Event,
            ShardId((number % 256) as u16),
            ("section", &id),
            seq,
            ("Added", 1),
            &body,
        );
    }
}

fn finish(open: &mut CommitBuilder, writer: WriterId, number: u64) -> Commit {
    open.finish(Stamp::after_synced(
        writer,
        CommitNo(number),
        1_700_000_000_000_000 + number.cast_signed(),
    ))
}

fn append_one(log: &Log, open: &mut CommitBuilder, commit: Commit) {
    let appended = block_on(log.append(commit).landed());
    appended.result.unwrap();
    open.recycle(appended.buffer);
}

/// Bytes appended before the clock starts, so that the log makes its next segment ready as it does for a running service.
const WARM_BYTES: usize = 2 << 20;
/// Commits encoded ahead, at most.
const AHEAD: u64 = 200;

/// Appending against the bare loop at the same block size, one after the other in each round, with as many appends in
/// flight as the log's depth allows: first a surge that fits the segment made ready ahead (the journal alone, then with
/// the encoding of the commits), then more, while a zero has to be written for every byte.
fn append() {
    for (events, surge, sustained) in [(EVENTS, 100, 1000), (70, 1500, 10_000), (1, 5000, 0)] {
        let mut figures: Vec<[f64; 3]> = Vec::new();
        let (mut bytes, mut megabytes) = (0, Vec::new());
        for _ in 0..ROUNDS {
            let dir = directory();
            let mut log = Appender::new(&dir, events);
            log.run(
                if events == 1 {
                    100
                } else {
                    (WARM_BYTES / 140 / events) as u64
                },
                false,
            );
            bytes = log.block_bytes;
            std::thread::sleep(Duration::from_millis(300));
            let bare = || {
                measure(dir.path(), bytes, surge as usize, Mode::PreZeroed)
                    .unwrap()
                    .bytes_per_s
            };
            let before = bare();
            let alone = log.run(surge, false);
            let encoded = log.run(surge, true);
            let after = bare();
            let sustained = log.run(sustained, false);
            let bare = f64::midpoint(before, after);
            figures.push([alone / bare, encoded / bare, sustained / bare]);
            megabytes.push(alone / 1e6);
        }
        let ratio = |index: usize| median(figures.iter().map(|figures| figures[index]).collect());
        println!(
            "append: {events} events of 100 bytes a commit ({bytes} bytes): {:.0} MB/s; of the bare loop: {:.2}, with encoding {:.2}, sustained {:.2}; rounds {figures:.2?}",
            median(megabytes),
            ratio(0),
            ratio(1),
            ratio(2),
        );
    }
}

struct Appender {
    log: Log,
    writer: WriterId,
    open: CommitBuilder,
    events: usize,
    number: u64,
    block_bytes: usize,
    flights: VecDeque<Later<'static, Appended>>,
}

impl Appender {
    fn new(dir: &TempDir, events: usize) -> Self {
        let log = Log::open(dir.path(), Options::default()).unwrap();
        let writer = block_on(log.open("bench")).unwrap().writer;
        Self {
            log,
            writer,
            open: CommitBuilder::default(),
            events,
            number: 0,
            block_bytes: 0,
            flights: VecDeque::new(),
        }
    }

    fn encode(&mut self) -> Commit {
        self.number += 1;
        let number = self.number;
        fill(&mut self.open, self.events, |index| (index as u64, number));
        let commit = finish(&mut self.open, self.writer, number);
        self.block_bytes = commit.bytes().len();
        commit
    }

    fn append(&mut self, commit: Commit) {
        while self.flights.len() >= self.log.depth() {
            self.land();
        }
        match self.log.append(commit) {
            Append::Done(done) => {
                done.result.unwrap();
                self.open.recycle(done.buffer);
            }
            Append::Later(later) => self.flights.push_back(later),
        }
    }

    fn land(&mut self) {
        if let Some(flight) = self.flights.pop_front() {
            let landed = block_on(flight);
            landed.result.unwrap();
            self.open.recycle(landed.buffer);
        }
    }

    /// Bytes a second of so many commits, encoded while the clock runs or ahead.
    fn run(&mut self, commits: u64, encoding: bool) -> f64 {
        let (mut left, mut took) = (commits, Duration::ZERO);
        while left > 0 {
            let now = left.min(AHEAD);
            left -= now;
            let mut ahead = VecDeque::new();
            if !encoding {
                ahead.extend((0..now).map(|_| self.encode()));
            }
            let began = Instant::now();
            for _ in 0..now {
                let commit = ahead.pop_front().unwrap_or_else(|| self.encode());
                self.append(commit);
            }
            while !self.flights.is_empty() {
                self.land();
            }
            took += began.elapsed();
        }
        commits as f64 * self.block_bytes as f64 / took.as_secs_f64()
    }
}

/// Indexing a million entities' events at checkpoints, then loading them at random.
fn index_and_load() {
    const ENTITIES: u64 = 1_000_000;
    let dir = directory();
    let (log, store) = open_embedded(dir.path(), Options::default()).unwrap();
    let writer = block_on(log.open("bench")).unwrap().writer;
    let mut open = CommitBuilder::default();
    let mut number = 0;
    for round in 1..=2u64 {
        let began_append = Instant::now();
        let mut next = 0;
        while next < ENTITIES {
            number += 1;
            // Far from the order of their keys.
            fill(&mut open, EVENTS, |index| {
                ((next + index as u64) * 7919 % ENTITIES, round)
            });
            next += EVENTS as u64;
            let commit = finish(&mut open, writer, number);
            append_one(&log, &mut open, commit);
        }
        let appended = began_append.elapsed();
        let states = (0..ENTITIES)
            .filter(|entity| round == 1 && entity % 4 == 0)
            .map(|entity| StoredState {
                address: throng_journal::Address::new("section", format!("C S {entity}")),
                shard: ShardId(0),
                seq: 1,
                version: 1,
                bytes: vec![7; 200],
            });
        let checkpoint = Checkpoint {
            upto: Position::new(writer, CommitNo(number)),
            states: states.collect(),
            ..Checkpoint::default()
        };
        let states = checkpoint.states.len();
        let began = Instant::now();
        block_on(store.advance(checkpoint)).unwrap();
        let took = began.elapsed();
        println!(
            "index: {ENTITIES} events of as many entities, {states} states: appended in {appended:.2?}, indexed in {took:.2?}, {:.2} M events/s; store {} MB, log {} MB",
            ENTITIES as f64 / took.as_secs_f64() / 1e6,
            store.bytes().unwrap() / 1_000_000,
            log.bytes().unwrap() / 1_000_000,
        );
    }
    drop((log, store));
    let began = Instant::now();
    let (_log, store) = open_embedded(dir.path(), Options::default()).unwrap();
    println!("load: opened in {:.2?}", began.elapsed());
    for (what, events) in [
        ("first loads", None),
        ("again", None),
        ("with state and 1 event", Some(4)),
    ] {
        let mut times = Vec::new();
        let mut at = 12345u64;
        for _ in 0..100_000 {
            at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut entity = (at >> 33) % ENTITIES;
            if let Some(multiple) = events {
                entity -= entity % multiple;
            }
            let address = throng_journal::Address::new("section", format!("C S {entity}"));
            let began = Instant::now();
            let Maybe::Ready(loaded) = store.load(&address, 1) else {
                panic!("a load is answered at once")
            };
            times.push(began.elapsed());
            let loaded = loaded.unwrap();
            assert_eq!(loaded.events.len() + usize::from(loaded.state.is_some()), 2);
        }
        times.sort_unstable();
        println!(
            "load: of {ENTITIES} entities, {what}: p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, max {:.1?}",
            percentile(&times, 50.0),
            percentile(&times, 99.0),
            percentile(&times, 99.9),
            percentile(&times, 100.0)
        );
    }
}

/// Opening and reading a million events after the last checkpoint, as recovery does.
fn recover() {
    let mut times = Vec::new();
    for batch in [1000, 70] {
        let dir = directory();
        let events = 1_000_000 / batch * batch;
        {
            let log = Log::open(dir.path(), Options::default()).unwrap();
            let writer = block_on(log.open("bench")).unwrap().writer;
            let mut open = CommitBuilder::default();
            for number in 1..=(events / batch) as u64 {
                fill(&mut open, batch, |index| (index as u64, number));
                let commit = finish(&mut open, writer, number);
                append_one(&log, &mut open, commit);
            }
            // As after a kill: nothing is ended.
            std::mem::forget(Arc::new(log));
            let lock = dir.path().join("lock");
            std::fs::remove_file(lock).unwrap();
        }
        for _ in 0..ROUNDS {
            let copy = directory();
            for entry in std::fs::read_dir(dir.path()).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
            let began = Instant::now();
            let log = Log::open(copy.path(), Options::default()).unwrap();
            let opened = began.elapsed();
            let writer = block_on(log.open("bench")).unwrap().writer;
            let begun = began.elapsed();
            let taken = block_on(log.take(writer, &[])).unwrap();
            let mut records = 0;
            for stream in taken {
                let mut after = Position::new(stream.writer, CommitNo(0));
                while after.commit < stream.last {
                    for commit in block_on(log.read(after, 8 << 20)).unwrap() {
                        records += commit.records().filter(|record| record.is_ok()).count();
                        after = commit.position();
                    }
                }
            }
            assert_eq!(records, events);
            times.push((opened, begun - opened, began.elapsed() - begun));
        }
        times.sort_unstable_by_key(|(a, b, c)| *a + *b + *c);
        let (opened, begun, read) = times[times.len() / 2];
        println!(
            "recover: {events} events in commits of {batch}: {:.2?} (open {opened:.2?}, first writer {begun:.2?}, read {read:.2?})",
            opened + begun + read
        );
        times.clear();
    }
}
