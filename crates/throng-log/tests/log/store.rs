//! The store under failures of the disk: a checkpoint is atomic, and later ones work again.

use crate::{
    disk::{Call, Chance, Disk, Fault},
    kit::{DIR, append, body, checkpoint, open_writer, options},
};
use std::sync::Arc;
use throng_journal::{Address, Cut, Maybe, ShardSet, Store, ViewBatch, Views, WriterId, conformance::block_on};
use throng_log::{EmbeddedStore, EmbeddedViews, Log, open_embedded};

const STATE_BYTES: usize = 3000;

struct ThreeOfSix {
    disk: Disk,
    _log: Arc<Log>,
    store: Arc<EmbeddedStore>,
    writer: WriterId,
}

/// Returns a journal of six commits, three of them in the store.
fn three_of_six() -> ThreeOfSix {
    let disk = Disk::new();
    let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
    let writer = open_writer(&log).unwrap();
    for number in 1..=6 {
        append(&log, writer, number, 200).unwrap();
    }
    block_on(store.advance(checkpoint(writer, 3, STATE_BYTES))).unwrap();
    ThreeOfSix {
        disk,
        _log: log,
        store,
        writer,
    }
}

/// Returns the checkpoint that the store holds, and checks that all of it belongs to one.
fn whole(store: &EmbeddedStore) -> u64 {
    let covers = block_on(store.covers(&ShardSet::first(256))).unwrap()[0]
        .upto
        .map_or(0, |covers| covers.commit.0);
    let Maybe::Ready(row) = store.system(b"row") else {
        panic!("a row is answered at once")
    };
    let row = row
        .unwrap()
        .map_or(0, |row| u64::from_le_bytes(row.try_into().unwrap()));
    let Maybe::Ready(loaded) = store.load(&Address::new("section", "s"), 1) else {
        panic!("a load is answered at once")
    };
    let state = loaded.unwrap().state.map_or(0, |state| state.seq);
    let events = block_on(store.history(&Address::new("section", "s"), 0, 1000, 1 << 20))
        .unwrap()
        .len() as u64;
    assert_eq!(
        (row, state, events),
        (covers, covers, covers),
        "parts of two checkpoints"
    );
    covers
}

#[test]
fn a_failed_checkpoint_keeps_the_one_before_and_can_be_retried() {
    for call in [Call::Write, Call::Sync, Call::SetLength, Call::Read] {
        let mut failures = 0;
        for after in 0..60 {
            let ThreeOfSix {
                disk,
                _log,
                store,
                writer,
            } = three_of_six();
            disk.fail(Fault::once(call, after));
            let before = disk.calls(call);
            let advanced = block_on(store.advance(checkpoint(writer, 6, STATE_BYTES)));
            let reached = disk.calls(call) - before > after;
            disk.heal();
            if advanced.is_err() {
                failures += 1;
                assert_eq!(whole(&store), 3, "{call:?} number {after} failed");
                block_on(store.advance(checkpoint(writer, 6, STATE_BYTES))).unwrap();
            }
            assert_eq!(whole(&store), 6);
            if !reached {
                break;
            }
        }
        assert!(
            failures > 0 || call == Call::SetLength,
            "no {call:?} made a checkpoint fail"
        );
    }
}

#[test]
fn after_a_power_loss_the_store_holds_one_checkpoint_whole() {
    for seed in 0..40 {
        let disk = Disk::new();
        let mut chance = Chance::new(seed);
        let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
        let writer = open_writer(&log).unwrap();
        let mut covered = 0;
        for number in 1..=8 {
            append(&log, writer, number, 200).unwrap();
            if chance.coin() {
                block_on(store.advance(checkpoint(writer, number, STATE_BYTES))).unwrap();
                covered = number;
            }
        }
        // Fails half way through another checkpoint.
        disk.fail(Fault {
            times: 10,
            ..Fault::once(Call::Sync, chance.next() % 3)
        });
        let begun = block_on(store.advance(checkpoint(writer, 8, STATE_BYTES)));
        if begun.is_ok() {
            covered = 8;
        }
        disk.lose_power(&mut chance);
        drop((log, store));
        let (_log, store) = open_embedded(DIR, options(&disk)).unwrap();
        let found = whole(&store);
        assert!(
            found == covered || found == 8,
            "seed {seed}: {found} where {covered} was covered"
        );
    }
}

#[test]
fn the_next_reader_reopens_a_failed_store() {
    for call in [Call::Write, Call::Sync, Call::SetLength, Call::Open] {
        let mut failures = 0;
        for after in 0..12 {
            let ThreeOfSix {
                disk,
                _log,
                store,
                writer,
            } = three_of_six();
            let broken = |call, after| Fault {
                times: u64::MAX,
                ..Fault::once(call, after)
            };
            disk.fail(broken(call, after));
            // Opening the store again fails as well.
            disk.fail(broken(Call::Open, 0));
            let advanced = block_on(store.advance(checkpoint(writer, 6, STATE_BYTES)));
            disk.heal();
            failures += u32::from(advanced.is_err());
            // A store that goes on reads the state it knows. A new one reads the file.
            if let Maybe::Ready(Ok(loaded)) = store.load(&Address::new("section", "s"), 1) {
                let expected = if advanced.is_ok() { 6 } else { 3 };
                assert_eq!(loaded.state.unwrap().seq, expected, "{call:?} number {after} failed");
            }
            let found = whole(&store);
            assert!(found == 3 || found == 6, "{call:?} number {after} failed");
            block_on(store.advance(checkpoint(writer, 6, STATE_BYTES))).unwrap();
            assert_eq!(whole(&store), 6);
        }
        assert!(
            failures > 0 || call != Call::Write,
            "no {call:?} made a checkpoint fail"
        );
    }
}

/// Returns a disk with a store that covers six commits, and a killed process.
fn covered() -> Disk {
    let disk = Disk::new();
    let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
    let writer = open_writer(&log).unwrap();
    for number in 1..=6 {
        append(&log, writer, number, 200).unwrap();
    }
    block_on(store.advance(checkpoint(writer, 6, STATE_BYTES))).unwrap();
    disk.kill_process();
    drop((log, store));
    disk
}

/// Returns the disk of [`covered`], with one byte changed in the first occurrence of these bytes.
fn with_damage(of: &[u8]) -> Disk {
    let disk = covered();
    let path = std::path::Path::new(DIR).join("store.redb");
    let mut bytes = disk.bytes(&path);
    let at = bytes.windows(of.len()).position(|window| window == of).unwrap();
    bytes[at + of.len() / 2] ^= 0x10;
    disk.set_bytes(&path, bytes);
    disk
}

#[test]
fn an_entity_with_damaged_state_is_rebuilt_from_its_events() {
    let disk = with_damage(&[6; 500]);
    let (_log, store) = open_embedded(DIR, options(&disk)).unwrap();
    let Maybe::Ready(loaded) = store.load(&Address::new("section", "s"), 1) else {
        panic!("a load is answered at once")
    };
    let loaded = loaded.unwrap();
    assert_eq!((loaded.state, loaded.events.len()), (None, 6));
}

#[test]
fn index_damage_is_reported_for_the_store_and_not_the_log() {
    let third = body(WriterId(1), 3, 200);
    let disk = with_damage(&crc32c::crc32c(&third).to_le_bytes());
    let (_log, store) = open_embedded(DIR, options(&disk)).unwrap();
    let Err(error) = block_on(store.history(&Address::new("section", "s"), 0, 1000, 1 << 20)) else {
        panic!("it is read")
    };
    let said = error.to_string();
    assert!(
        said.contains("remove the store's file") && !said.contains("restore"),
        "{said}"
    );
}

#[test]
fn flipped_bit_of_an_index_row_never_gives_another_history() {
    let (prepared, path) = (covered(), std::path::Path::new(DIR).join("store.redb"));
    let history = |disk: &Disk| {
        let (_log, store) = open_embedded(DIR, options(disk)).ok()?;
        block_on(store.history(&Address::new("section", "s"), 0, 1000, 1 << 20)).ok()
    };
    let expected = history(&prepared.copy()).unwrap();
    assert_eq!(expected.len(), 6);
    let bytes = prepared.bytes(&path);
    let place = |number| {
        let sum = crc32c::crc32c(&body(WriterId(1), number, 200)).to_le_bytes();
        bytes.windows(4).position(|window| window == sum).unwrap()
    };
    // From before the first event's place to after the last one's.
    let mut refused = 0;
    for at in place(1) - 10..place(6) + 12 {
        for bit in 0..8 {
            let disk = prepared.copy();
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            disk.set_bytes(&path, damaged);
            match history(&disk) {
                Some(found) => assert_eq!(found, expected, "byte {at}, bit {bit}"),
                None => refused += 1,
            }
        }
    }
    assert!(refused > 400, "{refused}");
}

#[test]
fn the_store_file_stays_bounded_by_its_content() {
    const STATES: u64 = 40;
    let disk = Disk::new();
    let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
    let writer = open_writer(&log).unwrap();
    let path = std::path::Path::new(DIR).join("store.redb");
    let mut sizes = Vec::new();
    for round in 1..=60 {
        append(&log, writer, round, 200).unwrap();
        let mut changed = checkpoint(writer, round, STATE_BYTES);
        // Each checkpoint has other entities, and removes those of the previous one.
        for number in 0..STATES {
            let mut state = changed.states[0].clone();
            state.address = Address::new("section", format!("{round} {number}"));
            changed.states.push(state);
            changed.cuts.push(Cut {
                address: Address::new("section", format!("{} {number}", round - 1)),
                upto: u64::MAX,
                is_gone: true,
            });
        }
        block_on(store.advance(changed)).unwrap();
        sizes.push(disk.bytes(&path).len());
    }
    assert!(sizes[59] <= 2 * sizes[9], "after each checkpoint, in bytes: {sizes:?}");
}

#[test]
fn closing_stores_write_only_while_the_directory_is_locked() {
    for number in 1..=2 {
        let disk = Disk::new();
        let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
        let views = EmbeddedViews::open(Arc::clone(&log)).unwrap();
        let writer = open_writer(&log).unwrap();
        append(&log, writer, 1, 200).unwrap();
        block_on(store.advance(checkpoint(writer, 1, STATE_BYTES))).unwrap();
        let batch = ViewBatch {
            changes: vec![(b"row".to_vec(), Some(vec![number]))],
            ..ViewBatch::default()
        };
        block_on(views.apply("view", batch)).unwrap();
        drop(log);
        // The last one releases the directory.
        match number {
            1 => drop((views, store)),
            _ => drop((store, views)),
        }
        assert_eq!(disk.changes_unlocked(), 0, "the other way round: {number}");
    }
}
