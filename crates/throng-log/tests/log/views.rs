//! Read models under failures of the disk: a batch is atomic, and a crash loses only the newest batches.

use crate::{
    disk::{Call, Chance, Disk, Fault},
    kit::open,
};
use std::{io::ErrorKind, sync::Arc};
use throng_journal::{
    Applied, CommitNo, Position, ViewBatch, ViewOffset, ViewRange, Views, WriterId, conformance::block_on,
};
use throng_log::{EmbeddedViews, Log};
use throng_testing::until;

const VIEW: &str = "available";

fn offset(commit: u64) -> ViewOffset {
    ViewOffset {
        position: Position::new(WriterId(1), CommitNo(commit)),
        ..ViewOffset::default()
    }
}

/// Returns a batch whose rows all contain its number.
fn batch(from: u64, to: u64) -> ViewBatch {
    let value = Some(to.to_le_bytes().repeat(200));
    ViewBatch {
        expected: (from > 0).then(|| offset(from)),
        offset: offset(to),
        changes: (0..20_u8).map(|key| (vec![key], value.clone())).collect(),
    }
}

/// Returns the batch that the view holds, and checks that all of it belongs to one.
fn whole(views: &EmbeddedViews) -> u64 {
    let commit = block_on(views.offset(VIEW))
        .unwrap()
        .map_or(0, |at| at.position.commit.0);
    let rows = block_on(views.scan(VIEW, ViewRange::default())).unwrap();
    assert_eq!(rows.len(), if commit == 0 { 0 } else { 20 });
    let is_same = |(_, value): &(Vec<u8>, Vec<u8>)| *value == commit.to_le_bytes().repeat(200);
    assert!(rows.iter().all(is_same), "rows of another batch than {commit}");
    commit
}

fn begin(disk: &Disk) -> EmbeddedViews {
    EmbeddedViews::open(Arc::new(open(disk).unwrap())).unwrap()
}

#[test]
fn a_failed_batch_leaves_the_one_before() {
    for call in [Call::Write, Call::Sync] {
        let mut failures = 0;
        for after in 0..40 {
            let disk = Disk::new();
            let views = begin(&disk);
            block_on(views.apply(VIEW, batch(0, 1))).unwrap();
            disk.fail(Fault::once(call, after));
            let before = disk.calls(call);
            let applied = block_on(views.apply(VIEW, batch(1, 2)));
            let synced = views.sync();
            let reached = disk.calls(call) - before > after;
            disk.heal();
            failures += u32::from(applied.is_err() || synced.is_err());
            // The state after a failure is checked as the next start sees it.
            drop(views);
            let views = begin(&disk);
            let found = whole(&views);
            assert!(found <= 2, "{call:?} number {after} failed");
            let next = if found == 0 { batch(0, 3) } else { batch(found, 3) };
            assert_eq!(block_on(views.apply(VIEW, next)).unwrap(), Applied::Done);
            assert_eq!(whole(&views), 3);
            if !reached {
                break;
            }
        }
        assert!(failures > 0, "no {call:?} made a batch fail");
    }
}

#[test]
fn read_models_go_on_after_a_failed_file_without_a_restart() {
    for call in [Call::Write, Call::Sync, Call::Open] {
        let mut failures = 0;
        for after in 0..10 {
            let disk = Disk::new();
            let views = begin(&disk);
            block_on(views.apply(VIEW, batch(0, 1))).unwrap();
            views.sync().unwrap();
            for call in [call, Call::Write] {
                disk.fail(Fault {
                    call,
                    after,
                    times: u64::MAX,
                    kind: ErrorKind::StorageFull,
                });
            }
            let (applied, synced) = (block_on(views.apply(VIEW, batch(1, 2))), views.sync());
            failures += u32::from(applied.is_err() || synced.is_err());
            disk.heal();
            // Retries as a projection does, from the stored offset.
            until("it goes on", || {
                let Ok(found) = block_on(views.offset(VIEW)) else {
                    return false;
                };
                let from = found.unwrap().position.commit.0;
                matches!(block_on(views.apply(VIEW, batch(from, 3))), Ok(Applied::Done))
            });
            assert_eq!(whole(&views), 3);
            views.sync().unwrap();
            drop(views);
            assert_eq!(whole(&begin(&disk)), 3, "and it is durable");
        }
        assert!(failures > 0, "no {call:?} made a batch fail");
    }
}

#[test]
fn a_power_loss_leaves_a_view_at_one_batch_since_the_last_sync() {
    let mut behind = 0;
    for seed in 0..40 {
        let disk = Disk::new();
        let mut chance = Chance::new(seed);
        let views = begin(&disk);
        let (mut last, mut synced) = (0, 0);
        for commit in 1..=8 {
            block_on(views.apply(VIEW, batch(last, commit))).unwrap();
            last = commit;
            if chance.coin() && chance.coin() {
                views.sync().unwrap();
                synced = commit;
            }
        }
        disk.lose_power(&mut chance);
        drop(views);
        let views = begin(&disk);
        let found = whole(&views);
        assert!(
            (synced..=last).contains(&found),
            "seed {seed}: {found}, synced {synced}"
        );
        behind += u32::from(found < last);
        assert_eq!(
            block_on(views.apply(VIEW, batch(found, 9))).unwrap(),
            Applied::Done,
            "the projection goes on from there"
        );
    }
    assert!(behind > 0, "no power loss took anything");
}

#[test]
fn a_file_that_cannot_be_read_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let log = || Arc::new(Log::open(dir.path(), throng_log::Options::default()).unwrap());
    let views = EmbeddedViews::open(log()).unwrap();
    block_on(views.apply(VIEW, batch(0, 1))).unwrap();
    drop(views);
    std::fs::write(dir.path().join("views.redb"), b"these are not the bytes of a database").unwrap();
    let views = EmbeddedViews::open(log()).unwrap();
    assert_eq!(whole(&views), 0, "it is rebuilt from the journal");
}
