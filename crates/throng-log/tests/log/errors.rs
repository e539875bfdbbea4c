//! File system calls that fail at every possible moment, and a full disk.

use crate::{
    disk::{Call, Disk, Fault},
    kit::{DIR, append, count, open, open_writer, options},
};
use std::{collections::BTreeMap, io::ErrorKind, sync::Arc, time::Duration};
use throng_journal::{AppendError, Durability, Error, Journal, WriterId, conformance::block_on};
use throng_log::{Log, Options};
use throng_testing::PATIENCE;

/// Appends twenty commits, with a new writer whenever one is over. Returns what was acknowledged, by writer.
fn work(log: &Log) -> BTreeMap<WriterId, u64> {
    let (mut acknowledged, mut writer, mut next) = (BTreeMap::new(), None, 1);
    for _ in 0..60 {
        let Some(current) = writer else {
            writer = open_writer(log).ok();
            next = 1;
            continue;
        };
        match append(log, current, next, 1500) {
            Ok(()) => {
                acknowledged.insert(current, next);
                next += 1;
            }
            Err(AppendError::InDoubt(_)) => writer = None,
            Err(other) => panic!("nobody sealed it: {other:?}"),
        }
        if acknowledged.values().sum::<u64>() == 20 {
            return acknowledged;
        }
    }
    panic!("only {acknowledged:?} were acknowledged");
}

fn assert_all_there(log: &Log, acknowledged: &BTreeMap<WriterId, u64>) {
    for (writer, commits) in acknowledged {
        assert_eq!(count(log, *writer), *commits, "the commits of writer {writer}");
    }
}

fn each_failure(call: Call, sync_delay: Duration) {
    let mut failures = 0;
    for after in 0..200 {
        let disk = Disk::new();
        let slow = Options {
            sync_delay,
            ..options(&disk)
        };
        let log = Log::open(crate::kit::DIR, slow).unwrap();
        let before = disk.calls(call);
        disk.fail(Fault::once(call, after));
        let acknowledged = work(&log);
        disk.heal();
        assert_all_there(&log, &acknowledged);
        let reached = disk.calls(call) - before > after;
        failures += u64::from(reached);
        disk.kill_process();
        drop(log);
        let log = open(&disk).unwrap();
        assert_all_there(&log, &acknowledged);
        if !reached {
            break;
        }
    }
    assert!(failures > 0, "no {call:?} was made to fail");
}

#[test]
fn nothing_acknowledged_is_lost_whichever_write_fails() {
    each_failure(Call::Write, Duration::ZERO);
}

//= promise 2: acknowledged events survive
#[test]
fn nothing_acknowledged_is_lost_whichever_sync_fails() {
    each_failure(Call::Sync, Duration::ZERO);
}

#[test]
fn nothing_acknowledged_is_lost_whichever_sync_beside_fails() {
    each_failure(Call::Sync, Duration::from_micros(400));
}

#[test]
fn nothing_acknowledged_is_lost_whichever_other_call_fails() {
    for call in [Call::Open, Call::Allocate, Call::SyncDir] {
        each_failure(call, Duration::ZERO);
    }
}

#[test]
fn a_call_that_fails_while_opening_is_told_and_harms_nothing() {
    let disk = Disk::new();
    let log = open(&disk).unwrap();
    let acknowledged = work(&log);
    disk.kill_process();
    drop(log);
    for call in [Call::Open, Call::List, Call::Read, Call::Lock, Call::CreateDir] {
        for after in 0..20 {
            disk.fail(Fault {
                call,
                after,
                times: 1,
                kind: ErrorKind::PermissionDenied,
            });
            let opened = open(&disk);
            disk.heal();
            match opened {
                Ok(_) => break,
                Err(Error::Io { doing, source }) => {
                    assert_eq!(source.kind(), ErrorKind::PermissionDenied, "{doing}");
                    assert!(doing.contains("data"), "{doing} names the file");
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_all_there(&open(&disk).unwrap(), &acknowledged);
    }
}

#[test]
fn a_failed_sync_ends_the_writer_and_abandons_its_segment() {
    let disk = Disk::new();
    let log = open(&disk).unwrap();
    let writer = open_writer(&log).unwrap();
    append(&log, writer, 1, 100).unwrap();
    disk.fail(Fault::once(Call::Sync, 0));
    let failed = append(&log, writer, 2, 100);
    assert!(
        matches!(&failed, Err(AppendError::InDoubt(why)) if why.contains("00000001.log")),
        "{failed:?}"
    );
    let after_it = append(&log, writer, 3, 100);
    assert!(matches!(after_it, Err(AppendError::InDoubt(_))), "{after_it:?}");
    assert_eq!(
        block_on(log.seal(writer)).unwrap().0,
        1,
        "what was in doubt is decided by the seal"
    );
    let next = open_writer(&log).unwrap();
    append(&log, next, 1, 100).unwrap();
    assert_eq!((count(&log, writer), count(&log, next)), (1, 1));
    // The page cache still shows all of commit 2. The seal comes after it.
    disk.kill_process();
    drop(log);
    let log = open(&disk).unwrap();
    assert_eq!((count(&log, writer), count(&log, next)), (1, 1));
}

#[test]
fn commits_go_on_during_a_sync() {
    let disk = Disk::new();
    let options = Options {
        durability: Durability::Os,
        ..options(&disk)
    };
    let log = Arc::new(Log::open(DIR, options).unwrap());
    let writer = open_writer(&log).unwrap();
    append(&log, writer, 1, 100).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    disk.during_next_sync({
        let log = Arc::clone(&log);
        move || {
            let (appended, done) = std::sync::mpsc::channel();
            std::thread::spawn(move || appended.send(append(&log, writer, 2, 100)));
            tell.send(done.recv_timeout(PATIENCE)).unwrap();
        }
    });
    log.sync().unwrap();
    let appended = told.recv().unwrap();
    assert!(matches!(appended, Ok(Ok(()))), "{appended:?}");
    assert_eq!(count(&log, writer), 2);
}

#[test]
fn a_full_disk_is_told_and_works_again_when_there_is_room() {
    let disk = Disk::new();
    let log = open(&disk).unwrap();
    let writer = open_writer(&log).unwrap();
    disk.set_room(Some(disk.used() + 40_000));
    let mut acknowledged = 0;
    let why = loop {
        match append(&log, writer, acknowledged + 1, 1500) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error.to_string(),
        }
        assert!(acknowledged < 1000, "the disk never fills up");
    };
    assert!(why.contains("No space left on device"), "{why}");
    assert!(acknowledged >= 10, "only {acknowledged} fit");
    assert_eq!(count(&log, writer), acknowledged);
    // Space freed by finished segments may be enough for a header by now.
    disk.set_room(Some(0));
    let told = open_writer(&log).unwrap_err().to_string();
    assert!(told.contains("making room for the log in data/"), "{told}");
    disk.set_room(None);
    let next = open_writer(&log).unwrap();
    append(&log, next, 1, 1500).unwrap();
    assert_eq!((count(&log, writer), count(&log, next)), (acknowledged, 1));
    drop(log);
    let log = open(&disk).unwrap();
    assert_eq!((count(&log, writer), count(&log, next)), (acknowledged, 1));
}
