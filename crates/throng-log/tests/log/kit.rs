//! Appending to a log and checking its contents.

use crate::disk::Disk;
use std::{path::Path, sync::Arc};
use throng_journal::{
    Address, AppendError, Checkpoint, Commit, CommitBuilder, CommitNo, Error, Journal, Position, RecordKind, ShardId,
    Stamp, StoredState, WriterId, conformance::block_on,
};
use throng_log::{Log, Options};

pub const DIR: &str = "data";

pub fn options(disk: &Disk) -> Options {
    Options {
        files: Arc::new(disk.process()),
        segment_bytes: 16 << 10,
        reserve_bytes: 0,
        ..Options::default()
    }
}

pub fn open(disk: &Disk) -> Result<Log, Error> {
    Log::open(DIR, options(disk))
}

pub fn open_writer(log: &Log) -> Result<WriterId, Error> {
    Ok(block_on(log.open("node"))?.writer)
}

/// Returns the body of a commit's only record, unique to the commit.
pub fn body(writer: WriterId, number: u64, bytes: usize) -> Vec<u8> {
    let mut body = format!("{writer}.{number} ").into_bytes();
    let filler = (b'a' + ((writer.0 + number) % 26) as u8) as char;
    while body.len() < bytes {
        body.push(filler as u8);
    }
    body
}

pub fn commit(writer: WriterId, number: u64, bytes: usize) -> Commit {
    commit_of("s", writer, number, bytes)
}

/// Returns a commit with one event of this section.
pub fn commit_of(section: &str, writer: WriterId, number: u64, bytes: usize) -> Commit {
    let mut open = CommitBuilder::default();
    let address = Address::new("section", section);
    let body = body(writer, number, bytes);
    open.push(RecordKind::Event, ShardId(0), &address, number, "Added", 1, &body);
    open.finish(Stamp::new(writer, CommitNo(number), number.cast_signed()))
}

pub fn append(log: &Log, writer: WriterId, number: u64, bytes: usize) -> Result<(), AppendError> {
    append_commit(log, commit(writer, number, bytes))
}

pub fn append_commit(log: &Log, commit: Commit) -> Result<(), AppendError> {
    block_on(log.append(commit).landed()).result
}

/// Returns a checkpoint up to this commit: one state of this size and one row, both unique to the commit.
pub fn checkpoint(writer: WriterId, commit: u64, state_bytes: usize) -> Checkpoint {
    Checkpoint {
        upto: Position::new(writer, CommitNo(commit)),
        states: vec![StoredState {
            address: Address::new("section", "s"),
            shard: ShardId(0),
            seq: commit,
            version: 1,
            bytes: vec![commit as u8; state_bytes],
        }],
        system: vec![(b"row".to_vec(), Some(commit.to_le_bytes().to_vec()))],
        ..Checkpoint::default()
    }
}

/// Returns the numbers of a writer's commits, read in small pages, and checks each commit.
pub fn numbers(log: &Log, writer: WriterId) -> Result<Vec<u64>, Error> {
    let mut numbers = Vec::new();
    loop {
        let after = Position::new(writer, CommitNo(numbers.len() as u64));
        let commits = block_on(log.read(after, 3000))?;
        if commits.is_empty() {
            return Ok(numbers);
        }
        for commit in commits {
            let number = commit.stamp().number.0;
            let record = commit.records().next().unwrap().unwrap();
            assert_eq!(record.body, body(writer, number, record.body.len()));
            numbers.push(number);
        }
    }
}

pub fn count(log: &Log, writer: WriterId) -> u64 {
    let numbers = numbers(log, writer).unwrap();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    numbers.len() as u64
}

pub fn segment(number: u64) -> std::path::PathBuf {
    Path::new(DIR).join(format!("{number:08}.log"))
}

/// Returns the byte range of each commit in a segment, according to the lengths.
pub fn commits_of(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut at, mut found) = (1024, Vec::new());
    while let Ok(length) = Commit::length(&bytes[at.min(bytes.len())..]) {
        found.push(at..at + length);
        at = (at + length).next_multiple_of(512);
    }
    found
}
