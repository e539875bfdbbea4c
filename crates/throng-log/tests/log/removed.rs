//! Backups and restores of a log whose history is removed meanwhile, or whose engine is killed.

use crate::{
    disk::{Chance, Disk, Hit},
    kit::{self, DIR, options},
    notes::{ARCHIVE, Note, Running, look, start, start_in, start_with, write},
};
use std::{path::Path, sync::Arc, time::Duration};
use throng::{
    Follow,
    model::Keep,
    projection::{DurableEvent, Interrupt, Projection, Rows},
};
use throng_journal::{
    CommitBuilder, CommitNo, Durability, Error, Journal as _, Position, Prune, PruneHow, RecordKind, ShardId,
    conformance::block_on,
};
use throng_log::{
    Log, Options,
    tools::{self, Until, for_each_commit},
};

/// Keeps no durable history.
const NOTHING: Keep = Keep::Age(Duration::ZERO);
const COPY: &str = "copy";
const TEXTS: u64 = 6;
/// Far more than the calls of one backup.
const CALLS_MAX: u64 = 1_000;

async fn write_texts(running: &Running) {
    for _ in 0..TEXTS {
        for id in ["ann", "bob"] {
            write(&running.engine, id, &"x".repeat(700)).await;
        }
    }
}

/// Makes a pass over the history of earlier epochs.
async fn prune(disk: &Disk) {
    let running = start(disk, NOTHING).await;
    assert!(running.engine.prune(false).await.unwrap().records > 0);
    running.engine.stop().await;
}

/// Returns the number of texts of each note after each commit.
fn history(disk: &Disk, dir: &str) -> Vec<(Position, [u64; 2])> {
    let (mut all, mut counts) = (Vec::new(), [0, 0]);
    for_each_commit(&options(disk), Path::new(dir), &mut |commit| {
        for record in commit.records().flatten() {
            if record.record == RecordKind::Event {
                counts[usize::from(record.id == "bob")] = record.seq;
            }
        }
        all.push((commit.position(), counts));
        Ok(())
    })
    .unwrap();
    all
}

fn backup(disk: &Disk) -> Result<tools::BackedUp, Error> {
    tools::backup(&options(disk), Path::new(DIR), Path::new(COPY))
}

async fn counts(running: &Running) -> [u64; 2] {
    let mut counts = [0, 0];
    for (id, count) in ["ann", "bob"].into_iter().zip(&mut counts) {
        *count = look(&running.engine, id).await.map_or(0, |(count, _)| count);
    }
    counts
}

/// Restores up to this point. Returns the result, or the sentence of the refusal.
async fn restored(disk: &Disk, from: (&str, Option<&str>), until: Until) -> Result<[u64; 2], String> {
    let (disk, from) = (disk.copy(), (Path::new(from.0), from.1.map(Path::new)));
    tools::restore(&options(&disk), from, Path::new("new"), until).map_err(|error| error.to_string())?;
    let running = start_in(&disk, "new", Keep::Forever).await;
    let found = counts(&running).await;
    running.engine.stop().await;
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_to_before_a_removal_is_whole_or_refused() {
    let disk = Disk::new();
    let running = start(&disk, NOTHING).await;
    write_texts(&running).await;
    running.engine.stop().await;
    drop(running);
    let history = history(&disk, DIR);
    prune(&disk).await;
    let mut refusals = 0;
    for (position, counts) in &history {
        let until = Until::Commit(*position);
        let archived = restored(&disk, (DIR, Some(ARCHIVE)), until).await;
        assert_eq!(archived.as_ref(), Ok(counts), "from the archive at {position}");
        match restored(&disk, (DIR, None), until).await {
            Ok(found) => assert_eq!(found, *counts, "at {position}"),
            Err(refused) => {
                assert!(refused.contains("history was removed from commit 1."), "{refused}");
                assert!(refused.contains("are known again from commit 2."), "{refused}");
                refusals += 1;
            }
        }
    }
    assert!(refusals as u64 > TEXTS, "{refusals}");
    let all = restored(&disk, (DIR, None), Until::End).await;
    assert_eq!(all, Ok([TEXTS, TEXTS]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_and_imported_logs_know_removed_history() {
    let disk = Disk::new();
    let running = start(&disk, NOTHING).await;
    write_texts(&running).await;
    running.engine.stop().await;
    drop(running);
    prune(&disk).await;
    tools::restore(
        &options(&disk),
        (Path::new(DIR), None),
        Path::new("restored"),
        Until::End,
    )
    .unwrap();
    let mut lines = Vec::new();
    tools::export(
        &options(&disk),
        Path::new("restored"),
        &mut lines,
        tools::ExportOptions::default(),
    )
    .unwrap();
    let how = tools::ImportOptions::default();
    tools::import(&options(&disk), Path::new("imported"), &mut &*lines, how).unwrap();
    for dir in [DIR, "restored", "imported"] {
        let first = history(&disk, dir)[0].0;
        let refused = restored(&disk, (dir, None), Until::Commit(first)).await.unwrap_err();
        assert!(refused.contains("history was removed"), "{dir}: {refused}");
        assert_eq!(restored(&disk, (dir, None), Until::End).await, Ok([TEXTS, TEXTS]));
    }
}

/// Makes a copy, then writes as much again and removes all history. Returns the history before the removal.
async fn outdated_copy(disk: &Disk) -> (Position, Vec<(Position, [u64; 2])>) {
    let running = start(disk, NOTHING).await;
    write_texts(&running).await;
    let copied = backup(disk).unwrap().upto.parse().unwrap();
    write_texts(&running).await;
    running.engine.stop().await;
    drop(running);
    let history = history(disk, DIR);
    prune(disk).await;
    (copied, history)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_keeps_history_that_is_removed_after_it_was_copied() {
    let disk = Disk::new();
    let (copied, history) = outdated_copy(&disk).await;
    for _ in 0..2 {
        let backed_up = backup(&disk).unwrap();
        assert!(backed_up.verification.is_sound(), "{backed_up}");
    }
    for (position, counts) in &history {
        match restored(&disk, (COPY, None), Until::Commit(*position)).await {
            Ok(found) => assert_eq!(found, *counts, "at {position}"),
            Err(refused) => assert!(*position > copied, "{position}: {refused}"),
        }
    }
    let all = restored(&disk, (COPY, None), Until::End).await;
    assert_eq!(all, Ok([2 * TEXTS, 2 * TEXTS]));
    let running = start_in(&disk, COPY, Keep::Forever).await;
    assert_eq!(
        counts(&running).await,
        [2 * TEXTS, 2 * TEXTS],
        "with the copy's own store, too"
    );
    running.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_killed_at_any_call_leaves_the_copy_whole() {
    let prepared = Disk::new();
    outdated_copy(&prepared).await;
    for at in 0..CALLS_MAX {
        let disk = prepared.copy();
        disk.hit_after(at, Hit::Death);
        let killed = backup(&disk).is_err();
        disk.hit_no_more();
        disk.kill_process();
        let found = tools::verify(&options(&disk), Path::new(COPY)).unwrap();
        assert!(found.is_sound(), "killed at call {at}: {found}");
        let left = restored(&disk, (COPY, None), Until::End).await.unwrap();
        assert!(
            [[TEXTS; 2], [2 * TEXTS; 2]].contains(&left),
            "killed at call {at}: {left:?}"
        );
        let backed_up = backup(&disk).unwrap();
        assert!(backed_up.verification.is_sound(), "{backed_up}");
        let all = restored(&disk, (COPY, None), Until::End).await;
        assert_eq!(all, Ok([2 * TEXTS; 2]), "killed at call {at}");
        if !killed {
            assert!(at > 20, "a backup of {at} calls is none");
            return;
        }
    }
    panic!("the backup never ended");
}

/// A follower that reads everything and changes nothing.
struct Reader;

impl Projection for Reader {
    const NAME: &'static str = "reader";
    type Of = Note;

    fn apply(&self, _: &DurableEvent<Note>, _: &mut Rows<'_>) -> Result<(), Interrupt> {
        Ok(())
    }
}

/// Returns the positions up to which history is reported as removed to a projection and a follower that begin with the first event, and the service's
/// messages.
async fn told_of_removal(disk: &Disk, keep: Keep) -> ([Option<Position>; 2], Vec<String>) {
    let running = start_with(disk, DIR, keep, |builder| builder.projection(Reader)).await;
    let engine = &running.engine;
    while engine.projections()[0].reached != engine.health().position {
        tokio::task::yield_now().await;
    }
    let from = engine.place(true).await.unwrap();
    let follower = engine.follow(Follow::Kind { kind: 0, from }).await.unwrap();
    let told = [engine.projections()[0].missed_upto, follower.removed_upto()];
    let troubles = engine.health().troubles;
    running.engine.stop().await;
    (told, troubles)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_followers_are_told_of_removed_history() {
    let disk = Disk::new();
    let running = start(&disk, NOTHING).await;
    write_texts(&running).await;
    running.engine.stop().await;
    drop(running);
    let end = history(&disk, DIR).last().unwrap().0;
    let running = start(&disk, NOTHING).await;
    // The second pass removes nothing, and reaches the stream still being written. The third stores its progress.
    for is_first in [true, false, false] {
        assert_eq!(running.engine.prune(false).await.unwrap().records > 0, is_first);
    }
    running.engine.stop().await;
    drop(running);
    for is_store_lost in [false, true] {
        if is_store_lost {
            disk.remove(&Path::new(DIR).join("store.redb"));
        }
        let (told, troubles) = told_of_removal(&disk, NOTHING).await;
        assert!(told.iter().all(|upto| upto.is_some_and(|upto| upto <= end)), "{told:?}");
        let is_said = |trouble: &String| trouble.contains("reader lacks history of note up to commit 1.");
        assert!(troubles.iter().any(is_said), "{troubles:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_removal_where_nothing_was_removed() {
    let disk = Disk::new();
    let enough = Keep::Events(1_000);
    for _ in 0..2 {
        let running = start(&disk, enough).await;
        write_texts(&running).await;
        for _ in 0..2 {
            running.engine.prune(false).await.unwrap();
        }
        running.engine.stop().await;
    }
    assert_eq!(told_of_removal(&disk, enough).await, ([None; 2], Vec::new()));
}

fn commits(disk: &Disk, dir: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for_each_commit(&options(disk), Path::new(dir), &mut |commit| {
        all.push(commit.bytes().to_vec());
        Ok(())
    })
    .unwrap();
    all
}

#[test]
fn removal_of_an_older_program_is_replaced_by_its_last_counts() {
    let disk = Disk::new();
    let log = kit::open(&disk).unwrap();
    let writer = kit::open_writer(&log).unwrap();
    let at = |commit| Position::new(writer, CommitNo(commit));
    for number in 1..=9 {
        let mut commit = kit::commit(writer, number, 200);
        if number == 7 {
            let mut open = CommitBuilder::default();
            open.push_parts(RecordKind::Numbers, ShardId(0), ("", ""), 0, ("", 0), b"{}");
            commit = open.finish(commit.stamp());
        }
        kit::append_commit(&log, commit).unwrap();
    }
    block_on(log.end_segment()).unwrap();
    let removed = block_on(log.prune(Prune {
        after: at(0),
        upto: CommitNo(9),
        judge: Arc::new(|record, _| (3..6).contains(&record.seq)),
        // An older program did not set this.
        replaced_by: Position::default(),
        how: PruneHow::Remove,
    }));
    assert_eq!(removed.unwrap().records, 3);
    drop(log);
    let restore = |number: u64| {
        let (to, until) = (format!("new-{number}"), Until::Commit(at(number)));
        let restored = tools::restore(&options(&disk), (Path::new(DIR), None), Path::new(&to), until);
        restored
            .map(|restored| restored.records)
            .map_err(|error| error.to_string())
    };
    assert_eq!((restore(2), restore(7), restore(9)), (Ok(2), Ok(4), Ok(6)));
    for number in 4..7 {
        let refused = restore(number).unwrap_err();
        let expected = format!("history was removed from commit {} on", at(3));
        assert!(refused.contains(&expected), "{refused}");
    }
}

#[test]
fn restore_to_a_time_within_removed_commits_is_refused() {
    let disk = Disk::new();
    let log = kit::open(&disk).unwrap();
    let writer = kit::open_writer(&log).unwrap();
    let at = |commit| Position::new(writer, CommitNo(commit));
    // Each event has its number as its time in microseconds.
    for number in 1..=9 {
        kit::append(&log, writer, number, 200).unwrap();
    }
    block_on(log.end_segment()).unwrap();
    let removed = block_on(log.prune(Prune {
        after: at(0),
        upto: CommitNo(9),
        judge: Arc::new(|record, _| (3..6).contains(&record.seq)),
        replaced_by: at(7),
        how: PruneHow::Remove,
    }));
    assert_eq!(removed.unwrap().commits, 3);
    drop(log);
    let restore = |micros: i64| {
        let (to, until) = (format!("new-{micros}"), Until::Micros(micros));
        let restored = tools::restore(&options(&disk), (Path::new(DIR), None), Path::new(&to), until);
        restored
            .map(|restored| restored.records)
            .map_err(|error| error.to_string())
    };
    assert_eq!((restore(1), restore(7), restore(9)), (Ok(1), Ok(4), Ok(6)));
    for micros in 3..7 {
        let refused = restore(micros).unwrap_err();
        let expected = format!("history was removed from commit {} on", at(3));
        assert!(refused.contains(&expected), "{micros}: {refused}");
    }
}

#[test]
fn backup_to_the_journal_from_its_backup_is_refused() {
    let disk = Disk::new();
    let append = |dir: &str| {
        let log = Log::open(dir, options(&disk)).unwrap();
        let writer = kit::open_writer(&log).unwrap();
        kit::append(&log, writer, 1, 900).unwrap();
    };
    append(DIR);
    backup(&disk).unwrap();
    let copied = commits(&disk, DIR);
    for from in [COPY, "nowhere"] {
        let swapped = tools::backup(&options(&disk), Path::new(from), Path::new(DIR));
        let refused = swapped.unwrap_err().to_string();
        assert!(refused.contains("data holds a log and is no copy"), "{refused}");
    }
    assert_eq!(commits(&disk, DIR), copied);
    backup(&disk).unwrap();
    // A service runs on the backup, so it is a journal with backups of its own.
    append(COPY);
    let of_copy = tools::backup(&options(&disk), Path::new(COPY), Path::new("other"));
    assert_eq!(of_copy.unwrap().verification.commits, 2);
}

#[test]
fn copy_goes_on_after_a_kill_right_behind_a_roll() {
    let disk = Disk::new();
    for epoch in 1..=3 {
        let log = kit::open(&disk).unwrap();
        let writer = kit::open_writer(&log).unwrap();
        for number in 1..=epoch {
            kit::append(&log, writer, number, 900).unwrap();
        }
        block_on(log.end_segment()).unwrap();
        backup(&disk).unwrap();
        disk.kill_process();
    }
    backup(&disk).unwrap();
    assert_eq!(commits(&disk, COPY), commits(&disk, DIR));
    assert_eq!(commits(&disk, COPY).len(), 6);
}

#[test]
fn copy_follows_a_log_over_kills_and_power_losses() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let disk = Disk::new();
        for _ in 0..6 {
            let durability = if chance.coin() {
                Durability::Os
            } else {
                Durability::Fsync
            };
            let options = Options {
                durability,
                ..options(&disk)
            };
            let log = Log::open(DIR, options).unwrap();
            let writer = kit::open_writer(&log).unwrap();
            for number in 1..=chance.next() % 30 {
                let bytes = 200 + (chance.next() % 1_500) as usize;
                let commit = kit::commit_of(&format!("of {writer}"), writer, number, bytes);
                kit::append_commit(&log, commit).unwrap();
                match chance.next() % 9 {
                    0 => block_on(log.end_segment()).unwrap(),
                    1 => drop(backup(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"))),
                    _ => {}
                }
            }
            match chance.next() % 3 {
                0 => disk.kill_process(),
                1 => disk.lose_power(&mut chance),
                _ => {}
            }
        }
        kit::open_writer(&kit::open(&disk).unwrap()).unwrap();
        let backed_up = backup(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(backed_up.verification.is_sound(), "seed {seed}: {backed_up}");
        assert_eq!(commits(&disk, COPY), commits(&disk, DIR), "seed {seed}");
    }
}
