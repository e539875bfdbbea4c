//! A full disk: the log uses the available space, but reserves enough to end and to begin. It reports that there is no room before the reserve is
//! gone, and goes on once there is room.

use crate::{
    disk::Disk,
    kit::{DIR, append, checkpoint, count, open_writer, options},
};
use std::sync::Arc;
use throng_journal::{CommitNo, Journal, ShardSet, Store, WriterId, conformance::block_on};
use throng_log::{EmbeddedStore, Log, Options, open_embedded};
use throng_testing::until;

const RESERVE_BYTES: u64 = 256 << 10;
const SEGMENT_BYTES: u64 = 128 << 10;
const STATE_BYTES: usize = 20_000;
const COMMIT_BYTES: usize = 1500;
/// The bytes of a commit on the disk, including its record's names and header.
const COMMIT_BYTES_WHOLE: u64 = 2048;

/// Returns a disk that is full after this many more bytes, of either sort.
fn full_after(bytes: u64, keeps_what_failed: bool) -> (Disk, Arc<Log>, Arc<EmbeddedStore>) {
    let disk = Disk::new();
    if keeps_what_failed {
        disk.keep_what_failed();
    }
    let (log, store) = begin(&disk);
    disk.set_room(Some(disk.used() + RESERVE_BYTES + bytes));
    (disk, log, store)
}

fn begin(disk: &Disk) -> (Arc<Log>, Arc<EmbeddedStore>) {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: RESERVE_BYTES,
        ..options(disk)
    };
    open_embedded(DIR, options).unwrap()
}

/// Commits while there is room. Returns the number of commits.
fn fill(log: &Log, writer: WriterId) -> u64 {
    let mut number = 0;
    while log.has_room() {
        number += 1;
        assert!(number < 10_000, "the disk never fills up");
        append(log, writer, number, COMMIT_BYTES).unwrap();
    }
    number
}

#[test]
fn a_full_disk_holds_commits_and_not_unused_room() {
    for keeps_what_failed in [false, true] {
        let (disk, log, _store) = full_after(1 << 20, keeps_what_failed);
        let writer = open_writer(&log).unwrap();
        let commits = fill(&log, writer);
        let written = commits * COMMIT_BYTES_WHOLE;
        assert!(
            written > (1 << 20) * 9 / 10,
            "only {written} bytes were written, {keeps_what_failed}"
        );
        assert!(disk.segments().len() < 40, "{} segments", disk.segments().len());
    }
}

#[test]
fn on_a_full_disk_begun_work_ends_and_the_next_start_succeeds() {
    for keeps_what_failed in [false, true] {
        let (disk, log, store) = full_after(1 << 20, keeps_what_failed);
        let writer = open_writer(&log).unwrap();
        let mut commits = fill(&log, writer);
        // Other processes fill the remaining space.
        for _ in 0..10 {
            commits += 1;
            append(&log, writer, commits, COMMIT_BYTES).unwrap();
        }
        block_on(store.advance(checkpoint(writer, commits, STATE_BYTES))).unwrap();
        assert_eq!(block_on(log.seal(writer)).unwrap(), CommitNo(commits));
        for _ in 0..4 {
            disk.kill_process();
            disk.set_room(Some(disk.used() + 8 * 1024));
            let (log, store) = begin(&disk);
            assert_eq!(
                block_on(store.covers(&ShardSet::first(256))).unwrap()[0]
                    .upto
                    .unwrap()
                    .commit,
                CommitNo(commits)
            );
            let next = open_writer(&log).unwrap();
            append(&log, next, 1, COMMIT_BYTES).unwrap();
            assert_eq!((count(&log, writer), count(&log, next)), (commits, 1));
        }
    }
}

#[test]
fn a_checkpoint_that_finds_the_disk_full_gets_the_reserve() {
    let disk = Disk::new();
    let options = Options {
        reserve_bytes: 8 << 20,
        ..options(&disk)
    };
    let (log, store) = open_embedded(DIR, options).unwrap();
    let writer = open_writer(&log).unwrap();
    append(&log, writer, 1, COMMIT_BYTES).unwrap();
    disk.set_room(Some(disk.used()));
    for number in 0..100 {
        let mut more = checkpoint(writer, 1, STATE_BYTES);
        more.states[0].address.id = format!("s{number}").into();
        more.states[0].bytes = vec![1; 100_000];
        block_on(store.advance(more)).unwrap();
        if !log.has_room() {
            return;
        }
    }
    panic!("the store never needed more room");
}

#[test]
fn once_there_is_room_the_log_says_so_by_itself() {
    let (disk, log, _store) = full_after(1 << 20, true);
    let writer = open_writer(&log).unwrap();
    let commits = fill(&log, writer);
    for _ in 0..3 {
        disk.set_room(Some(disk.used() + RESERVE_BYTES / 2));
        assert!(!log.has_room(), "half of the reserve is no reserve");
    }
    disk.set_room(Some(disk.used() + RESERVE_BYTES + (1 << 20)));
    until("there is room", || log.has_room());
    append(&log, writer, commits + 1, COMMIT_BYTES).unwrap();
}
