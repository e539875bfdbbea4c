//! Commits in flight at a power loss: a later one is complete, an earlier one is not.

use crate::{
    disk::Disk,
    kit::{append, commits_of, count, open, open_writer, options, segment},
};
use std::path::Path;
use throng_journal::{Durability, Error, WriterId};
use throng_log::{Log, Options, tools::LiveBackup};

/// Writes ten commits, of which the log reports this many as synced, then loses power. All ten remain.
fn in_flight(synced: u64) -> (Disk, WriterId) {
    let disk = Disk::new();
    let log = Log::open(
        crate::kit::DIR,
        Options {
            durability: Durability::Os,
            ..options(&disk)
        },
    )
    .unwrap();
    let writer = open_writer(&log).unwrap();
    for number in 1..=10 {
        append(&log, writer, number, 700).unwrap();
        if number == synced {
            log.sync().unwrap();
        }
    }
    disk.kill_process();
    (disk, writer)
}

fn tear(disk: &Disk, number: usize, at: usize) {
    let mut bytes = disk.bytes(&segment(1));
    let commit = commits_of(&bytes)[number - 1].clone();
    let sector = commit.start + at * 512;
    bytes[sector..sector + 512].fill(0);
    disk.set_bytes(&segment(1), bytes);
}

#[test]
fn history_ends_before_the_first_torn_commit() {
    for torn in 1..=10 {
        for sector in 0..2 {
            let (disk, writer) = in_flight(0);
            tear(&disk, torn, sector);
            let log = open(&disk).unwrap();
            assert_eq!(
                count(&log, writer),
                torn as u64 - 1,
                "sector {sector} of commit {torn} is torn"
            );
        }
    }
}

//= promise 10: damage is found
#[test]
fn a_torn_commit_that_was_synced_is_damage() {
    for torn in 1..=10 {
        let (disk, writer) = in_flight(6);
        tear(&disk, torn, 0);
        match open(&disk) {
            Err(Error::Damaged { position, why, .. }) if torn <= 6 => {
                assert_eq!((position.writer, position.commit.0), (writer, torn as u64));
                assert!(why.contains("though commit 1.6 was synced"), "{why}");
            }
            Ok(log) if torn > 6 => assert_eq!(count(&log, writer), torn as u64 - 1),
            other => panic!("commit {torn} is torn, found {other:?}"),
        }
    }
}

#[test]
fn cut_commits_never_come_back() {
    let (disk, writer) = in_flight(0);
    tear(&disk, 4, 0);
    let whole = disk.bytes(&segment(1));
    for _ in 0..3 {
        let log = open(&disk).unwrap();
        let next = open_writer(&log).unwrap();
        append(&log, next, 1, 100).unwrap();
        assert_eq!((count(&log, writer), count(&log, next)), (3, 1));
        disk.kill_process();
        drop(log);
        // This holds even if the hole is filled later, because the next writer's header records the end.
        disk.set_bytes(&segment(1), whole.clone());
    }
}

#[test]
fn a_copy_of_a_log_that_lost_its_unfinished_end_follows_it() {
    for begun_anew in [false, true] {
        let (disk, writer) = in_flight(3);
        let mut copy = LiveBackup::begin(&options(&disk), Path::new(crate::kit::DIR), Path::new("copy")).unwrap();
        assert_eq!(copy.catch_up().unwrap().upto.commit.0, 10, "as far as it can be read");
        // The power fails, and unsynced bytes are lost.
        tear(&disk, 4, 0);
        let log = open(&disk).unwrap();
        let next = open_writer(&log).unwrap();
        append(&log, next, 1, 100).unwrap();
        if begun_anew {
            drop(copy);
            copy = LiveBackup::begin(&options(&disk), Path::new(crate::kit::DIR), Path::new("copy")).unwrap();
        }
        copy.catch_up().unwrap();
        drop(copy);
        let log = Log::open("copy", options(&disk)).unwrap();
        assert_eq!(
            (count(&log, writer), count(&log, next)),
            (3, 1),
            "begun anew: {begun_anew}"
        );
    }
}
