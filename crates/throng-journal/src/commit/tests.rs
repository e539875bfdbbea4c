use super::*;
use crate::{Address, CommitNo, ShardId, WriterId};
use proptest::prelude::*;

fn stamp() -> Stamp {
    Stamp {
        writer: WriterId(7),
        number: CommitNo(42),
        synced: CommitNo(40),
        at_micros: -1,
    }
}

type Row = (u8, u16, String, String, u64, String, u16, Vec<u8>);

fn row() -> impl Strategy<Value = Row> {
    (
        1u8..=8,
        any::<u16>(),
        "[a-z0-9-]{1,64}",
        "\\PC{0,60}",
        any::<u64>(),
        "[A-Za-z]{0,40}",
        any::<u16>(),
        proptest::collection::vec(any::<u8>(), 0..200),
    )
}

fn build(rows: &[Row]) -> Commit {
    let mut builder = CommitBuilder::default();
    for (kind, shard, entity, id, seq, name, version, body) in rows {
        let kind = RecordKind::from_byte(*kind).unwrap();
        let address = Address::new(entity.as_str(), id.as_str());
        builder.push(kind, ShardId(*shard), &address, *seq, name, *version, body);
    }
    builder.finish(stamp())
}

proptest! {
    #[test]
    fn pushed_records_are_read_back(rows in proptest::collection::vec(row(), 0..20), seed in any::<[u8; 12]>()) {
        let mut commit = build(&rows);
        commit.seal(&seed);
        let commit = Commit::parse(commit.into_bytes(), &seed).unwrap();
        prop_assert_eq!(commit.stamp(), stamp());
        let read: Vec<Row> = commit.records().map(|record| {
            let r = record.unwrap();
            let body = commit.bytes()[r.place.offset as usize..][..r.place.len as usize].to_vec();
            assert_eq!(body, r.body);
            (r.record as u8, r.shard.0, r.kind.into(), r.id.into(), r.seq, r.name.into(), r.version, body)
        }).collect();
        prop_assert_eq!(read, rows);
    }

    #[test]
    fn any_flipped_bit_is_found(rows in proptest::collection::vec(row(), 1..5), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut commit = build(&rows);
        commit.seal(b"seed");
        let mut bytes = commit.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Commit::parse(bytes, b"seed").is_err());
    }

    #[test]
    fn bytes_of_another_place_are_found(rows in proptest::collection::vec(row(), 1..5)) {
        let mut commit = build(&rows);
        commit.seal(b"here");
        let found = Commit::parse(commit.into_bytes(), b"there");
        prop_assert!(matches!(found, Err(Damage::Checksum { .. })), "found {:?}", found);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), lie in any::<bool>()) {
        if lie && bytes.len() >= HEADER_BYTES {
            bytes[..4].copy_from_slice(&MAGIC);
            let length = bytes.len() as u32;
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            let mut commit = Commit::of_finished(bytes.into());
            commit.seal(b"");
            bytes = commit.into_bytes();
        }
        if let Ok(commit) = Commit::parse(bytes, b"") {
            prop_assert!(commit.records().all(|record| record.is_ok()));
        }
    }
}

#[test]
fn a_mark_takes_back_later_pushes() {
    let mut builder = CommitBuilder::default();
    let address = Address::new("k", "i");
    builder.push(RecordKind::Event, ShardId(1), &address, 1, "A", 1, b"one");
    let mark = builder.mark();
    builder.push(RecordKind::Event, ShardId(1), &address, 2, "B", 1, b"two");
    builder.truncate(mark);
    let commit = builder.finish(stamp());
    assert_eq!(
        commit.records().map(|r| r.unwrap().body.to_vec()).collect::<Vec<_>>(),
        [b"one"]
    );
}

#[test]
fn a_padded_commit_holds_the_same_records() {
    let mut commit = build(&[(1, 1, "k".into(), "i".into(), 1, "A".into(), 1, b"one".to_vec())]);
    let length = commit.bytes().len();
    commit.pad(1000);
    commit.seal(b"seed");
    assert_eq!(Commit::length(commit.bytes()), Ok(length + 1000));
    let commit = Commit::parse(commit.into_bytes(), b"seed").unwrap();
    let bodies: Vec<_> = commit.records().map(|record| record.unwrap().body.to_vec()).collect();
    assert_eq!(bodies, [b"one"]);
}

#[test]
fn a_builder_takes_over_anothers_records() {
    let address = Address::new("k", "i");
    let (mut one, mut other) = (CommitBuilder::default(), CommitBuilder::default());
    other.push(RecordKind::Event, ShardId(1), &address, 1, "A", 1, b"one");
    one.append(&mut other);
    other.push(RecordKind::Event, ShardId(1), &address, 2, "B", 1, b"two");
    one.append(&mut other);
    assert!(other.is_empty());
    let commit = one.finish(stamp());
    assert_eq!(
        commit.records().map(|r| r.unwrap().body.to_vec()).collect::<Vec<_>>(),
        [b"one", b"two"]
    );
    assert!(one.is_empty());
}

/// Returns a commit of nearly the maximum size, without a single record of that size.
fn nearly_full(room: usize) -> CommitBuilder {
    let mut builder = CommitBuilder::default();
    let body = vec![0; COMMIT_BYTES_MAX - HEADER_BYTES - ENTRY_BYTES - 2 - room];
    push(&mut builder, "k", "i", "", &body);
    assert_eq!(builder.bytes(), COMMIT_BYTES_MAX - room);
    builder
}

fn push(builder: &mut CommitBuilder, kind: &str, id: &str, name: &str, body: &[u8]) {
    builder.push_parts(RecordKind::Event, ShardId(0), (kind, id), 1, (name, 1), body);
}

#[test]
fn a_commit_may_be_full_to_the_last_byte() {
    let mut builder = nearly_full(ENTRY_BYTES + 3);
    push(&mut builder, "k", "i", "n", b"");
    assert_eq!(builder.bytes(), COMMIT_BYTES_MAX);
    let (mut full, mut other) = (nearly_full(ENTRY_BYTES + 3), CommitBuilder::default());
    push(&mut other, "k", "i", "n", b"");
    full.append(&mut other);
    let commit = full.finish(stamp());
    assert_eq!(commit.bytes().len(), COMMIT_BYTES_MAX);
    assert_eq!(
        commit.records().map(|record| record.unwrap().name).collect::<Vec<_>>(),
        ["", "n"]
    );
}

#[test]
#[should_panic(expected = "begin the next one before")]
fn a_record_that_does_not_fit_is_not_pushed() {
    push(&mut nearly_full(ENTRY_BYTES + 2), "k", "i", "n", b"");
}

#[test]
#[should_panic(expected = "begin the next one before")]
fn records_that_do_not_fit_are_not_appended() {
    let mut other = CommitBuilder::default();
    push(&mut other, "k", "i", "n", b"");
    nearly_full(ENTRY_BYTES + 2).append(&mut other);
}

#[test]
fn names_that_are_too_long_are_not_cut() {
    let long = |bytes: usize| "x".repeat(bytes);
    for (kind, id, name, fits) in [
        (64, 256, 255, true),
        (65, 256, 255, false),
        (64, 257, 255, false),
        (64, 256, 256, false),
    ] {
        let pushed = std::panic::catch_unwind(|| {
            push(&mut CommitBuilder::default(), &long(kind), &long(id), &long(name), b"");
        });
        assert_eq!(pushed.is_ok(), fits, "{kind}, {id}, {name}");
    }
}

#[test]
fn every_kind_of_record_is_found_by_its_number() {
    for kind in RecordKind::ALL {
        assert_eq!(RecordKind::from_byte(kind as u8), Some(kind));
    }
    assert_eq!(RecordKind::from_byte(0), None);
    assert_eq!(RecordKind::from_byte(RecordKind::ALL.len() as u8 + 1), None);
}
