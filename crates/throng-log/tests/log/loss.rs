//! Loss proved by the store: it is reported and refused. Once accepted, it is recorded for good.

use crate::{
    disk::Disk,
    kit::{DIR, append_commit, commit_of, commits_of, count, open_writer, options, segment},
};
use std::path::Path;
use throng_journal::{
    Checkpoint, CommitNo, Error, Loss, Position, ShardSet, Store, Witness, WriterId, conformance::block_on,
};
use throng_log::{Log, Options, open_embedded, tools};

fn at(writer: u64, commit: u64) -> Position {
    Position::new(WriterId(writer), CommitNo(commit))
}

/// Appends events of a section that belongs to this writer alone, so that its numbers are contiguous after any loss.
fn append(log: &Log, writer: WriterId, number: u64, bytes: usize) {
    let commit = commit_of(&format!("s{writer}"), writer, number, bytes);
    append_commit(log, commit).unwrap();
}

/// Returns a disk after two epochs. The second ends with a checkpoint at commit 2.6 and a kill.
fn checkpointed() -> Disk {
    let disk = Disk::new();
    for epoch in 1..=2 {
        let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
        let writer = open_writer(&log).unwrap();
        for number in 1..=6 {
            append(&log, writer, number, 200);
        }
        let checkpoint = Checkpoint {
            upto: at(writer.0, 6),
            sealed: (epoch == 2).then(|| at(1, 6)).into_iter().collect(),
            ..Checkpoint::default()
        };
        block_on(store.advance(checkpoint)).unwrap();
        assert_eq!(writer, WriterId(epoch));
        if epoch == 2 {
            disk.kill_process();
        }
    }
    disk
}

/// Overwrites a segment with zeros from its fourth commit on.
fn cut(disk: &Disk, number: u64) {
    let mut bytes = disk.bytes(&segment(number));
    let begin = commits_of(&bytes)[3].start;
    bytes[begin..].fill(0);
    disk.set_bytes(&segment(number), bytes);
}

fn accepting(disk: &Disk, covered: Position) -> Options {
    Options {
        accept_loss: Some(covered),
        ..options(disk)
    }
}

fn loss_of(disk: &Disk, options: Options) -> Loss {
    match open_embedded(DIR, options) {
        Err(Error::Lost { place, loss }) => {
            assert_eq!(place, DIR);
            disk.kill_process();
            loss
        }
        other => panic!("expected a loss, found {other:?}"),
    }
}

//= promise 10: damage is found
#[test]
fn a_log_behind_its_store_is_refused_and_the_proof_is_kept() {
    let disk = checkpointed();
    cut(&disk, 2);
    let expected = Loss {
        covered: at(2, 6),
        held: at(2, 3),
        witness: Witness::Store,
    };
    for _ in 0..2 {
        assert_eq!(loss_of(&disk, options(&disk)), expected);
        assert_eq!(
            loss_of(&disk, accepting(&disk, at(2, 5))),
            expected,
            "another loss was accepted"
        );
    }
    let found = tools::verify(&options(&disk), Path::new(DIR)).unwrap();
    assert_eq!(found.damages.len(), 1, "{found}");
    assert_eq!((&*found.damages[0].position, &*found.damages[0].place), ("2.6", DIR));
    assert!(found.damages[0].why.contains("--accept-loss 2.6"), "{found}");
}

//= promise 10: damage is found
#[test]
fn an_accepted_loss_is_recorded_and_every_check_reports_it() {
    let disk = checkpointed();
    cut(&disk, 2);
    let (log, store) = open_embedded(DIR, accepting(&disk, at(2, 6))).unwrap();
    assert_eq!(
        block_on(store.covers(&ShardSet::first(256))).unwrap()[0].upto,
        None,
        "it is rebuilt"
    );
    drop((store, log));
    for _ in 0..2 {
        let (log, store) = open_embedded(DIR, options(&disk)).unwrap();
        let writer = open_writer(&log).unwrap();
        append(&log, writer, 1, 100);
        assert_eq!((count(&log, WriterId(1)), count(&log, WriterId(2))), (6, 3));
        drop((store, log));
        let found = tools::verify(&options(&disk), Path::new(DIR)).unwrap();
        assert_eq!(found.damages.len(), 1, "{found}");
        assert!(
            found.damages[0].why.contains(r#""covered":"2.6","held":"2.3""#),
            "{found}"
        );
    }
}

#[test]
fn a_writers_number_that_lost_commits_had_is_not_given_again() {
    let disk = checkpointed();
    disk.remove(&segment(2));
    let loss = loss_of(&disk, options(&disk));
    assert_eq!((loss.covered, loss.held), (at(2, 6), at(1, 6)));
    let (log, _store) = open_embedded(DIR, accepting(&disk, at(2, 6))).unwrap();
    let writer = open_writer(&log).unwrap();
    assert!(writer > WriterId(3), "writer 3 recorded the loss, and this is {writer}");
}

#[test]
fn a_log_with_another_commit_than_its_store_covers_is_refused() {
    let disk = checkpointed();
    disk.remove(&segment(2));
    {
        // Simulates that somebody went on without the store.
        let log = Log::open(DIR, options(&disk)).unwrap();
        let writer = open_writer(&log).unwrap();
        assert_eq!(writer, WriterId(2));
        for number in 1..=8 {
            append(&log, writer, number, 300);
        }
        disk.kill_process();
    }
    let loss = loss_of(&disk, options(&disk));
    assert_eq!((loss.covered, loss.held), (at(2, 6), at(2, 6)));
    let (log, _store) = open_embedded(DIR, accepting(&disk, at(2, 6))).unwrap();
    assert_eq!(count(&log, WriterId(2)), 8);
}
