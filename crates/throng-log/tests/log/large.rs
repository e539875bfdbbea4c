//! Commits that span whole blocks, between small ones, on a real disk.

use throng_journal::{
    Address, CommitBuilder, CommitNo, Journal, Position, RecordKind, ShardId, Stamp, conformance::block_on,
};
use throng_log::{Log, Options, tools};

/// Lengths of the commits' bodies: below and above the limit of large ones, at and near multiples of a block.
const BODIES: [usize; 12] = [
    10, 70_000, 65_536, 200, 65_480, 300_000, 4_096, 131_000, 90_000, 1, 2_500_000, 66_000,
];

fn body(number: u64) -> Vec<u8> {
    let length = BODIES[number as usize % BODIES.len()];
    (0..length).map(|at| (at as u64 * 31 + number) as u8).collect()
}

#[test]
fn large_and_small_commits_are_read_back_after_a_kill() {
    const COMMITS: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 2 << 20,
        ..Options::default()
    };
    let log = Log::open(dir.path(), options.clone()).unwrap();
    let writer = block_on(log.open("node")).unwrap().writer;
    let address = Address::new("section", "s");
    let mut open = CommitBuilder::default();
    for number in 1..=COMMITS {
        open.push(
            RecordKind::Event,
            ShardId(0),
            &address,
            number,
            "Added",
            1,
            &body(number),
        );
        let commit = open.finish(Stamp::new(writer, CommitNo(number), 0));
        let appended = block_on(log.append(commit).landed());
        appended.result.unwrap();
        open.recycle(appended.buffer);
    }
    // Copies the files without a clean end, as a kill leaves them.
    let killed = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "lock" {
            std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
        }
    }
    let found = tools::verify(&options, killed.path()).unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found}");
    let again = Log::open(killed.path(), options).unwrap();
    block_on(again.open("node")).unwrap();
    for log in [&log, &again] {
        let mut after = Position::new(writer, CommitNo(0));
        while after.commit < CommitNo(COMMITS) {
            for commit in block_on(log.read(after, 1 << 20)).unwrap() {
                after = commit.position();
                let record = commit.records().next().unwrap().unwrap();
                assert!(record.body == body(after.commit.0), "commit {after}");
            }
        }
    }
}
