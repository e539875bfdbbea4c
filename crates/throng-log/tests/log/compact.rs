//! Compaction of the store's file while checkpoints go on. After any failure the file holds all completed checkpoints.

use crate::{
    disk::{Chance, Disk, Hit},
    kit::{DIR, append_commit, open_writer, options},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Waker},
    thread,
};
use throng_journal::{
    Address, Checkpoint, CommitBuilder, CommitNo, Cut, Maybe, Position, RecordKind, ShardId, Stamp, Store, StoredState,
    WriterId, conformance::block_on,
};
use throng_log::{EmbeddedStore, Log, Options, open_embedded};

const KIND: &str = "section";
/// Far more than the calls of one compaction.
const CALLS_MAX: u64 = 3_000;

fn file() -> PathBuf {
    Path::new(DIR).join("store.redb")
}

fn new_file() -> PathBuf {
    Path::new(DIR).join("store.redb.new")
}

/// The stored parts of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    /// Its first remaining event, and its last one.
    first: u64,
    last: u64,
    state: Vec<u8>,
}

/// A store and its expected contents.
struct World {
    log: Arc<Log>,
    store: Arc<EmbeddedStore>,
    writer: WriterId,
    commits: u64,
    sections: BTreeMap<String, Section>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    chance: Chance,
}

impl World {
    fn open(disk: &Disk, options: Options) -> Self {
        let (log, store) = open_embedded(DIR, options).unwrap();
        let writer = open_writer(&log).unwrap();
        assert!(!disk.paths().contains(&new_file()), "a leftover is removed");
        Self {
            log,
            store,
            writer,
            commits: 0,
            sections: BTreeMap::new(),
            rows: BTreeMap::new(),
            chance: Chance::new(1),
        }
    }

    /// Opens the same directory with another process.
    fn reopen(self, disk: &Disk) -> Self {
        let Self {
            sections, rows, chance, ..
        } = self;
        drop((self.log, self.store));
        Self {
            sections,
            rows,
            chance,
            ..Self::open(disk, options(disk))
        }
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.chance.next() % sides
    }

    /// Makes a commit and its checkpoint: events and states, also of new entities, and rows. Removes some of each. Returns false if this process is
    /// dead.
    fn step(&mut self) -> bool {
        let (mut sections, mut rows) = (self.sections.clone(), self.rows.clone());
        let position = Position::new(self.writer, CommitNo(self.commits + 1));
        let (mut open, mut made) = (CommitBuilder::default(), Checkpoint::default());
        made.upto = position;
        for _ in 0..5 {
            let id = format!("{} {}", self.dice(20), self.commits / 30);
            let state = vec![self.dice(256) as u8; 1 + self.dice(6_000) as usize];
            let address = Address::new(KIND, &*id);
            let section = sections.entry(id).or_insert(Section {
                first: 1,
                last: 0,
                state: Vec::new(),
            });
            section.last += 1;
            section.state.clone_from(&state);
            open.push(
                RecordKind::Event,
                ShardId(0),
                &address,
                section.last,
                "Added",
                1,
                b"one",
            );
            made.states.push(StoredState {
                address,
                shard: ShardId(0),
                seq: section.last,
                version: 1,
                bytes: state,
            });
        }
        for _ in 0..2 {
            let at = self.dice(sections.len() as u64) as usize;
            let Some((id, section)) = sections.iter_mut().nth(at) else {
                continue;
            };
            let (id, is_gone) = (id.clone(), self.chance.coin());
            let upto = if is_gone { section.last } else { section.first };
            made.cuts.push(Cut {
                address: Address::new(KIND, &*id),
                upto,
                is_gone,
            });
            section.first = upto + 1;
            if is_gone {
                sections.remove(&id);
            }
        }
        for _ in 0..6 {
            let key = format!("p{:03}", self.dice(150)).into_bytes();
            match self.dice(3) {
                0 => {
                    rows.remove(&key);
                    made.system.push((key, None));
                }
                _ => {
                    let value = vec![b'v'; self.dice(300) as usize];
                    rows.insert(key.clone(), value.clone());
                    made.system.push((key, Some(value)));
                }
            }
        }
        let stamp = Stamp::new(self.writer, position.commit, 0);
        if append_commit(&self.log, open.finish(stamp)).is_err() {
            return false;
        }
        // The removal comes before the checkpoint that makes it durable.
        let after = format!("p{:03}", self.dice(150)).into_bytes();
        let Ok(removed) = block_on(self.store.remove_prefix(b"p", &after, 3)) else {
            return false;
        };
        if let Some(removed) = removed {
            let is_set = |key: &Vec<u8>| made.system.iter().any(|(set, value)| set == key && value.is_some());
            rows.retain(|key, _| *key <= after || *key > removed || is_set(key));
        }
        if self.store.advance_here(&made).is_err() {
            return false;
        }
        (self.sections, self.rows) = (sections, rows);
        self.commits += 1;
        true
    }

    fn check(&self, context: &str) {
        let mut rows = BTreeMap::new();
        let mut visit = |key: &[u8], value: &[u8]| drop(rows.insert(key.to_vec(), value.to_vec()));
        block_on(self.store.system_scan(b"", b"", usize::MAX, &mut visit)).unwrap();
        assert!(rows == self.rows, "{context}: other rows");
        let heads = block_on(self.store.entities(KIND, None, usize::MAX)).unwrap();
        let heads: Vec<_> = heads.iter().map(|head| (&*head.id, head.seq)).collect();
        let expected: Vec<_> = self
            .sections
            .iter()
            .map(|(id, section)| (&**id, section.last))
            .collect();
        assert_eq!(heads, expected, "{context}");
        for (id, section) in &self.sections {
            let address = Address::new(KIND, &**id);
            let Maybe::Ready(loaded) = self.store.load(&address, 1) else {
                panic!("a load is answered at once")
            };
            let state = loaded.unwrap().state.unwrap();
            assert!(state.bytes == section.state, "{context}: {id}");
            let events = block_on(self.store.history(&address, section.first - 1, usize::MAX, usize::MAX)).unwrap();
            let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
            assert_eq!(
                seqs,
                (section.first..=section.last).collect::<Vec<_>>(),
                "{context}: {id}"
            );
        }
    }
}

/// Returns a stopped directory whose file is larger than necessary, and its expected contents.
fn prepared() -> (Disk, World) {
    let disk = Disk::new();
    let mut world = World::open(&disk, options(&disk));
    for _ in 0..60 {
        assert!(world.step());
    }
    for id in world.sections.keys().cloned().collect::<Vec<_>>() {
        if world.sections.len() > 10 {
            world.sections.remove(&id);
            let mut made = Checkpoint {
                upto: Position::new(world.writer, CommitNo(world.commits)),
                ..Checkpoint::default()
            };
            made.cuts.push(Cut {
                address: Address::new(KIND, &*id),
                upto: u64::MAX,
                is_gone: true,
            });
            world.store.advance_here(&made).unwrap();
        }
    }
    world.check("before");
    (disk, world)
}

/// Runs `work` while the copy begins: after the first file was measured, while the second is created.
fn meanwhile(disk: &Disk, work: impl FnOnce() + Send + 'static) {
    let next = disk.clone();
    disk.before_next_open(move || next.before_next_open(work));
}

#[test]
fn changes_of_checkpoints_meanwhile_are_in_the_new_file() {
    let (disk, world) = prepared();
    let store = Arc::clone(&world.store);
    let world = Arc::new(Mutex::new(world));
    for _ in 0..3 {
        let working = Arc::clone(&world);
        meanwhile(&disk, move || {
            for _ in 0..10 {
                assert!(working.lock().unwrap().step());
            }
        });
        let before = world.lock().unwrap().commits;
        store.compact_here().unwrap();
        let mut world = world.lock().unwrap();
        assert_eq!(world.commits, before + 10);
        world.check("compacted");
        assert!(world.step());
        world.check("compacted, and gone on with");
    }
    drop(store);
    disk.kill_process();
    let world = Mutex::into_inner(Arc::into_inner(world).unwrap()).unwrap();
    world.reopen(&disk).check("opened again");
}

#[test]
fn a_compaction_gives_back_unused_room() {
    let (disk, world) = prepared();
    let before = disk.bytes(&file()).len() as u64;
    let compacted = world.store.compact_here().unwrap();
    let after = disk.bytes(&file()).len() as u64;
    assert_eq!(
        (compacted.store_bytes_before, compacted.store_bytes_after),
        (before, after)
    );
    assert!(after * 2 <= before, "{compacted}");
    assert!(!disk.paths().contains(&new_file()));
    world.check("compacted");
}

#[test]
fn compactions_under_load_lose_nothing() {
    let (disk, mut world) = prepared();
    let store = Arc::clone(&world.store);
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let working = thread::spawn(move || {
        while !until.load(SeqCst) {
            assert!(world.step());
            world.check("under load");
        }
        world
    });
    for _ in 0..15 {
        store.compact_here().unwrap();
    }
    is_over.store(true, SeqCst);
    drop(store);
    let world = working.join().unwrap();
    world.check("under load, at the end");
    disk.lose_power(&mut Chance::new(7));
    world.reopen(&disk).check("after a power loss");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Failure,
    Kill,
    PowerLoss,
}

fn each_call(end: End) {
    for at in 0..CALLS_MAX {
        let context = &format!("{end:?} at call {at} of a compaction");
        let (disk, world) = small();
        let store = Arc::clone(&world.store);
        let world = Arc::new(Mutex::new(world));
        let (working, spared) = (Arc::clone(&world), disk.clone());
        meanwhile(&disk, move || {
            spared.spared(|| working.lock().unwrap().step());
        });
        let hit = if end == End::Failure { Hit::Failure } else { Hit::Death };
        disk.hit_after(at, hit);
        let compacted = store.compact_here();
        let was_hit = disk.is_hit();
        disk.hit_no_more();
        disk.before_next_open(|| ());
        let mut world = Arc::into_inner(world)
            .map(|world| Mutex::into_inner(world).unwrap())
            .unwrap();
        drop(store);
        if end == End::Failure {
            world.check(context);
            assert!(world.step(), "{context}");
            world.check(context);
        }
        assert!(was_hit || compacted.is_ok(), "{context}: {compacted:?}");
        match end {
            End::Kill => disk.kill_process(),
            End::Failure | End::PowerLoss => disk.lose_power(&mut Chance::new(at)),
        }
        let mut world = world.reopen(&disk);
        world.check(context);
        assert!(world.step() && world.store.compact_here().is_ok(), "{context}");
        world.check(context);
        if !was_hit {
            assert!(at > 20, "a compaction of {at} calls is none");
            return;
        }
    }
    panic!("it never ended");
}

/// Returns a directory with few rows, which is copied quickly.
fn small() -> (Disk, World) {
    let disk = Disk::new();
    let mut world = World::open(&disk, options(&disk));
    for _ in 0..4 {
        assert!(world.step());
    }
    (disk, world)
}

#[test]
fn a_compaction_that_meets_a_failure_at_any_call_loses_nothing() {
    each_call(End::Failure);
}

#[test]
fn a_compaction_that_is_killed_at_any_call_loses_nothing() {
    each_call(End::Kill);
}

#[test]
fn a_power_loss_at_any_call_of_a_compaction_loses_nothing() {
    each_call(End::PowerLoss);
}

#[test]
fn a_compaction_without_room_is_refused_with_advice() {
    let (disk, mut world) = prepared();
    let paths = disk.paths();
    disk.set_room(Some(disk.used() + 40_000));
    let refused = world.store.compact_here().unwrap_err().to_string();
    assert!(
        refused.contains("must be free") && refused.contains("journal compact"),
        "{refused}"
    );
    assert_eq!(disk.paths(), paths);
    // The compaction continues, and the disk fills up meanwhile.
    disk.set_room(None);
    let (full, bytes) = (disk.clone(), disk.used());
    meanwhile(&disk, move || full.set_room(Some(bytes + 40_000)));
    world.store.compact_here().unwrap_err();
    assert_eq!(disk.paths(), paths, "it gives back what it took");
    disk.set_room(None);
    assert!(world.step());
    world.check("after it was full");
    world.store.compact_here().unwrap();
    world.check("compacted");
}

#[test]
fn a_store_that_is_closed_ends_its_compaction() {
    let (disk, world) = prepared();
    let mut compacting = world.store.compact();
    let _ = compacting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(compacting);
    world.reopen(&disk).check("closed meanwhile");
    assert!(!disk.paths().contains(&new_file()));
}

#[test]
fn readers_of_the_old_file_go_on_with_it() {
    let (disk, world) = prepared();
    let store = Arc::clone(&world.store);
    let before = disk.bytes(&file()).len();
    let mut compacting = None;
    let mut rows = BTreeMap::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        rows.insert(key.to_vec(), value.to_vec());
        let store = Arc::clone(&store);
        compacting.get_or_insert_with(|| {
            let compacting = thread::spawn(move || store.compact_here().unwrap());
            while disk.bytes(&file()).len() == before {
                thread::yield_now();
            }
            compacting
        });
    };
    block_on(world.store.system_scan(b"", b"", usize::MAX, &mut visit)).unwrap();
    assert!(rows == world.rows);
    compacting.unwrap().join().unwrap();
    world.check("compacted");
}

#[test]
fn a_file_much_larger_than_its_rows_is_compacted_by_itself() {
    let (disk, world) = prepared();
    let options = Options {
        store_compact_bytes: 1,
        ..options(&disk)
    };
    let before = disk.bytes(&file()).len();
    let World { sections, rows, .. } = world;
    drop((world.log, world.store));
    let mut world = World {
        sections,
        rows,
        ..World::open(&disk, options)
    };
    let mut steps = 0;
    while disk.bytes(&file()).len() >= before {
        // A few steps run beside the compaction. More would add so many rows that the file could not shrink.
        if steps < 5 {
            assert!(world.step());
            steps += 1;
        }
        let made = Checkpoint {
            upto: Position::new(world.writer, CommitNo(world.commits)),
            ..Checkpoint::default()
        };
        block_on(world.store.advance(made)).unwrap();
    }
    world.check("compacted by itself");
    let by_itself = disk.bytes(&file()).len();
    while let Err(why) = world.store.compact_here() {
        // The compaction starts again by itself.
        assert!(why.to_string().contains("under way"), "{why}");
        thread::yield_now();
    }
    let least = disk.bytes(&file()).len();
    // The rows stored meanwhile are included. The next compaction begins at four times the size.
    assert!(
        by_itself < 3 * least && before > 2 * least,
        "{before} bytes, {by_itself} by itself, {least} at least"
    );
}
