//! Removal of history, interrupted at every call to the file system: by a failing call, a kill, or a power loss.

use crate::{
    disk::{Call, Chance, Disk, Hit},
    kit::{self, DIR, options},
    notes::{ARCHIVE, Command, Note, Running, look, once_free, seqs, start, write},
};
use std::{future::Future as _, path::Path, pin::pin, sync::Arc, task::Poll, time::Duration};
use throng::model::{Error, Keep};
use throng_journal::{CommitNo, Journal as _, Position, Prune, PruneHow, Store as _, conformance::block_on};
use throng_log::tools::{ExportOptions, export, hold, verify};
use throng_testing::soon;

/// Keeps no durable history.
const NOTHING: Keep = Keep::Age(Duration::ZERO);
const SECRET: &str = "a secret that only ann knew";
const TEXTS: u64 = 12;
/// Far more than the calls of one pass.
const CALLS_MAX: u64 = 3_000;

/// The way in which a pass ends at one of its calls.
#[derive(Clone, Copy, Debug)]
enum End {
    Failure,
    Kill,
    PowerLoss,
}

impl End {
    fn is_death(self) -> bool {
        matches!(self, Self::Kill | Self::PowerLoss)
    }
}

fn text(id: &str, number: u64) -> String {
    format!("{id} {number} {}", "x".repeat(700))
}

/// Returns a stopped directory with four living notes and one that has ended. A part of it was archived before.
async fn prepared() -> Disk {
    let disk = Disk::new();
    for keep in [NOTHING, Keep::Forever] {
        let Running { engine, .. } = start(&disk, keep).await;
        for number in 1..=TEXTS {
            for id in ["bob", "cid", "dan"] {
                write(&engine, id, &text(id, number)).await;
            }
            write(&engine, "ann", SECRET).await;
        }
        if keep == NOTHING {
            write(&engine, "gone", "nothing").await;
            engine.entity::<Note>("gone").ask(Command::Close).await.unwrap();
            // Another event follows, so a checkpoint covers everything before it.
            write(&engine, "last", "").await;
            write(&engine, "last", "").await;
            assert_eq!(engine.prune(false).await.unwrap().gone, 1);
        }
        engine.stop().await;
        drop(engine);
        if keep == NOTHING {
            // Another pass covers the segment that was still being written in the first one.
            let Running { engine, .. } = start(&disk, keep).await;
            engine.prune(false).await.unwrap();
            engine.stop().await;
        }
    }
    assert!(!segments_in(&disk, ARCHIVE).is_empty(), "something was archived");
    disk
}

fn segments_in(disk: &Disk, dir: &str) -> Vec<std::path::PathBuf> {
    let mut segments = disk.segments();
    segments.retain(|path| path.parent() == Some(Path::new(dir)));
    segments
}

fn holds_secret(disk: &Disk) -> bool {
    let secret = SECRET.as_bytes();
    let holds = |path: &std::path::PathBuf| disk.bytes(path).windows(secret.len()).any(|window| window == secret);
    // The store is excluded, because its free pages keep old bytes.
    let paths = disk.paths();
    paths.iter().any(|path| !path.ends_with("store.redb") && holds(path))
}

/// Checks that the directory is sound once nobody uses it.
async fn assert_sound(disk: &Disk, context: &str) {
    drop(once_free(|| hold(&options(disk), Path::new(DIR))).await);
    let found = verify(&options(disk), Path::new(DIR)).unwrap();
    assert!(found.is_sound(), "{context}: {found}");
}

/// Checks that the notes that were not erased are unchanged.
async fn assert_kept(running: &Running, ids: &[&str], context: &str) {
    for id in ids {
        let (count, last) = look(&running.engine, id).await.unwrap();
        assert_eq!(count, 2 * TEXTS, "{context}: {id}");
        assert!(*id == "ann" || last == text(id, TEXTS), "{context}: {id}");
    }
    let gone = look(&running.engine, "gone").await;
    assert!(matches!(gone, Err(Error::Ended { .. })), "{context}: {gone:?}");
}

/// Runs `work` on a copy of the prepared directory, and interrupts it at this call. Returns true if it was interrupted.
async fn cut_off(prepared: &Disk, at: u64, end: End, keep: Keep, work: impl AsyncFn(&Running, &Disk)) -> (Disk, bool) {
    let disk = prepared.copy();
    let running = start(&disk, keep).await;
    let hit = match end.is_death() {
        true => Hit::Death,
        false => Hit::Failure,
    };
    disk.hit_after(at, hit);
    let working = async {
        let mut work = pin!(work(&running, &disk));
        std::future::poll_fn(|context| match work.as_mut().poll(context) {
            // Nothing has to complete in a dead process.
            Poll::Pending if end.is_death() && disk.is_hit() => Poll::Ready(()),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            ready => ready,
        })
        .await;
    };
    soon(&format!("{end:?} at call {at}: it ends"), working).await;
    let was_hit = disk.is_hit();
    disk.hit_no_more();
    if matches!(end, End::Failure) {
        running.engine.stop().await;
    }
    match end {
        End::PowerLoss => disk.lose_power(&mut Chance::new(at)),
        End::Failure | End::Kill => disk.kill_process(),
    }
    drop(running);
    (disk, was_hit)
}

async fn each_call_of_a_pass(end: End) {
    let prepared = prepared().await;
    for at in 0..CALLS_MAX {
        let context = &format!("{end:?} at call {at} of a pass");
        let pass = async |running: &Running, _: &Disk| drop(running.engine.prune(false).await);
        let (disk, was_hit) = cut_off(&prepared, at, end, NOTHING, pass).await;
        let all = ["ann", "bob", "cid", "dan"];
        let running = start(&disk, NOTHING).await;
        assert_kept(&running, &all, context).await;
        running.engine.prune(false).await.unwrap();
        assert!(seqs(&running.engine, "bob").await.len() < TEXTS as usize, "{context}");
        running.engine.stop().await;
        drop(running);
        assert_sound(&disk, context).await;
        // The log alone must be enough.
        disk.remove(&Path::new(DIR).join("store.redb"));
        let running = start(&disk, NOTHING).await;
        assert_kept(&running, &all, context).await;
        running.engine.stop().await;
        if !was_hit {
            assert!(at > 50, "a pass of {at} calls is none");
            return;
        }
    }
    panic!("the pass never ended");
}

async fn each_call_of_an_erasure(end: End) {
    let prepared = prepared().await;
    assert!(holds_secret(&prepared));
    for at in 0..CALLS_MAX {
        let context = &format!("{end:?} at call {at} of an erasure");
        let erase = async |running: &Running, disk: &Disk| {
            if running.engine.erase("note", "ann").await.is_ok() {
                assert!(!holds_secret(disk), "{context}: it said it was done");
            }
        };
        let (disk, was_hit) = cut_off(&prepared, at, end, Keep::Forever, erase).await;
        let running = start(&disk, Keep::Forever).await;
        // A removal that was begun is completed by itself.
        let mut begun = true;
        while begun {
            begun = false;
            let mut visit = |_: &[u8], _: &[u8]| begun = true;
            running
                .store
                .system_scan(b"x", b"", usize::MAX, &mut visit)
                .await
                .unwrap();
            tokio::task::yield_now().await;
        }
        match look(&running.engine, "ann").await {
            Ok((count, _)) => {
                assert_eq!(count, 2 * TEXTS, "{context}: it did not begin");
                let kept = seqs(&running.engine, "ann").await;
                assert_eq!(kept.last(), Some(&(2 * TEXTS)), "{context}");
                running.engine.erase("note", "ann").await.unwrap();
            }
            Err(Error::Ended { .. }) => {}
            Err(other) => panic!("{context}: {other}"),
        }
        assert!(!holds_secret(&disk), "{context}");
        assert_kept(&running, &["bob", "cid", "dan"], context).await;
        running.engine.stop().await;
        drop(running);
        assert_sound(&disk, context).await;
        disk.remove(&Path::new(DIR).join("store.redb"));
        let running = start(&disk, Keep::Forever).await;
        assert_kept(&running, &["bob", "cid", "dan"], context).await;
        let erased = look(&running.engine, "ann").await;
        assert!(matches!(erased, Err(Error::Ended { .. })), "{context}: {erased:?}");
        running.engine.stop().await;
        if !was_hit {
            assert!(at > 50, "an erasure of {at} calls is none");
            return;
        }
    }
    panic!("the erasure never ended");
}

#[test]
fn a_removal_reads_only_the_part_of_history_it_is_for() {
    let disk = Disk::new();
    let log = kit::open(&disk).unwrap();
    let writer = kit::open_writer(&log).unwrap();
    for number in 1..=200 {
        kit::append(&log, writer, number, 1_500).unwrap();
    }
    let reads = |after: u64, upto: u64| {
        let before = disk.calls(Call::Read);
        let prune = Prune {
            after: Position::new(writer, CommitNo(after)),
            upto: CommitNo(upto),
            judge: Arc::new(|_, _| false),
            replaced_by: Position::new(writer, CommitNo(200)),
            how: PruneHow::Remove,
        };
        let pruned = block_on(log.prune(prune)).unwrap();
        (disk.calls(Call::Read) - before, pruned.upto.0)
    };
    let (all, reached) = reads(0, 200);
    assert!(reached > 180, "{reached}");
    let (part, reached) = reads(100, 130);
    assert!(
        part > 0 && part * 4 < all && reached > 110,
        "{part} of {all} reads, up to {reached}"
    );
    assert_eq!(reads(130, 131).0, 0, "no whole segment lies there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_commits_are_read_back_from_the_archive() {
    let disk = Disk::new();
    for _ in 0..2 {
        let running = start(&disk, NOTHING).await;
        for number in 1..=TEXTS {
            write(&running.engine, "bob", &text("bob", number)).await;
        }
        running.engine.prune(false).await.unwrap();
        running.engine.stop().await;
    }
    let running = start(&disk, NOTHING).await;
    running.engine.prune(false).await.unwrap();
    running.engine.stop().await;
    drop(running);
    let exported = |dir: &str| {
        let mut lines = Vec::new();
        export(&options(&disk), Path::new(dir), &mut lines, ExportOptions::default()).unwrap();
        String::from_utf8(lines).unwrap()
    };
    let (log, archive) = (exported(DIR), exported(ARCHIVE));
    for number in 1..=TEXTS {
        let text = text("bob", number);
        assert_eq!(
            archive.matches(&text).count(),
            2,
            "{number}: as often as it was written"
        );
        assert!(
            number == TEXTS || !log.contains(&text),
            "{number} is not in the log any more"
        );
    }
    let found = verify(&options(&disk), Path::new(ARCHIVE)).unwrap();
    assert!(found.is_sound(), "{found}");
}

macro_rules! at_every_call {
    ($($name:ident: $each:ident($end:expr);)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $each($end).await;
        })*
    };
}

at_every_call! {
    a_pass_that_meets_a_failure_at_any_call_loses_nothing: each_call_of_a_pass(End::Failure);
    a_pass_that_is_killed_at_any_call_loses_nothing: each_call_of_a_pass(End::Kill);
    a_pass_whose_power_goes_at_any_call_loses_nothing: each_call_of_a_pass(End::PowerLoss);
    an_erasure_that_meets_a_failure_at_any_call_is_done_or_was_not_begun: each_call_of_an_erasure(End::Failure);
    an_erasure_that_is_killed_at_any_call_is_done_or_was_not_begun: each_call_of_an_erasure(End::Kill);
    an_erasure_whose_power_goes_at_any_call_is_done_or_was_not_begun: each_call_of_an_erasure(End::PowerLoss);
}
