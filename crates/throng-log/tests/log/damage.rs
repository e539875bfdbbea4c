//! Truncations, flipped bits, and bytes of another epoch. They are found and named, or cut if nothing there was acknowledged.

use crate::{
    disk::Disk,
    kit::{DIR, append, commits_of, count, numbers, open, open_writer, options, segment},
};
use throng_journal::{Error, WriterId};
use throng_log::{files::Files as _, tools::verify};

const COMMITS: u64 = 6;

/// Returns a disk with one segment of a few commits, whose process was killed after the last acknowledgement.
fn killed() -> (Disk, WriterId) {
    let disk = Disk::new();
    let log = open(&disk).unwrap();
    let writer = open_writer(&log).unwrap();
    for number in 1..=COMMITS {
        append(&log, writer, number, (number * 170) as usize).unwrap();
    }
    disk.kill_process();
    (disk, writer)
}

/// Returns the same disk after a clean end. The next segment's header says where the writer was sealed.
fn ended() -> (Disk, WriterId) {
    let (disk, writer) = killed();
    let log = open(&disk).unwrap();
    let next = open_writer(&log).unwrap();
    append(&log, next, 1, 10).unwrap();
    drop(log);
    (disk, writer)
}

//= promise 2: acknowledged events survive
#[test]
fn a_log_cut_at_any_byte_keeps_its_whole_commits() {
    let (disk, writer) = killed();
    let whole = disk.bytes(&segment(1));
    let commits = commits_of(&whole);
    assert_eq!(commits.len() as u64, COMMITS);
    for cut in commits[2].start..=commits[5].end {
        let kept = commits.iter().filter(|commit| commit.end <= cut).count() as u64;
        for zeros in [false, true] {
            let mut bytes = whole[..cut].to_vec();
            if zeros {
                bytes.resize(whole.len(), 0);
            }
            // The commit's padding and the bytes after it hold nothing.
            let copy = disk.copy();
            copy.set_bytes(&segment(1), bytes);
            let log = open(&copy).unwrap();
            assert_eq!(count(&log, writer), kept, "cut at byte {cut}, zeros after it: {zeros}");
            let next = open_writer(&log).unwrap();
            append(&log, next, 1, 100).unwrap();
            assert_eq!((count(&log, writer), count(&log, next)), (kept, 1));
        }
    }
}

//= promise 10: damage is found
#[test]
fn a_flipped_bit_below_the_synced_position_is_found_and_named() {
    let (disk, writer) = killed();
    let whole = disk.bytes(&segment(1));
    let commits = commits_of(&whole);
    for (number, commit) in (1..COMMITS).zip(&commits) {
        for bit in commit.start * 8..commit.end * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let copy = disk.copy();
            copy.set_bytes(&segment(1), bytes);
            let Err(Error::Damaged { position, place, .. }) = open(&copy) else {
                panic!("bit {bit} of commit {number} was not found");
            };
            assert_eq!((position.writer, position.commit.0), (writer, number), "bit {bit}");
            assert_eq!(place, format!("data/00000001.log at offset {}", commit.start));
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_commit_cuts_it_and_nothing_else() {
    let (disk, writer) = killed();
    let whole = disk.bytes(&segment(1));
    let last = commits_of(&whole).pop().unwrap();
    for bit in (last.start * 8..last.end * 8).step_by(3) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let copy = disk.copy();
        copy.set_bytes(&segment(1), bytes);
        assert_eq!(count(&open(&copy).unwrap(), writer), COMMITS - 1, "bit {bit}");
    }
}

#[test]
fn a_flipped_bit_in_a_sealed_stream_is_found_when_it_is_read() {
    let (disk, writer) = ended();
    let whole = disk.bytes(&segment(1));
    for (number, commit) in (1..=COMMITS).zip(commits_of(&whole)) {
        for bit in (commit.start * 8..commit.end * 8).step_by(5) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let copy = disk.copy();
            copy.set_bytes(&segment(1), bytes);
            let log = open(&copy).unwrap();
            let Err(Error::Damaged { position, .. }) = numbers(&log, writer) else {
                panic!("bit {bit} of commit {number} was not found");
            };
            assert_eq!((position.writer, position.commit.0), (writer, number), "bit {bit}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_header_is_outlived_by_its_copy() {
    let (disk, writer) = ended();
    for number in disk.segments() {
        let whole = disk.bytes(&number);
        for bit in (0..1024 * 8).step_by(7) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let copy = disk.copy();
            copy.set_bytes(&number, bytes);
            let log = open(&copy).unwrap();
            assert_eq!(count(&log, writer), COMMITS, "bit {bit} of {}", number.display());
        }
    }
}

#[test]
fn a_lost_header_before_synced_commits_is_damage() {
    let (disk, _) = ended();
    let mut bytes = disk.bytes(&segment(1));
    bytes[..1024].fill(0);
    disk.set_bytes(&segment(1), bytes);
    let Err(Error::Damaged { place, .. }) = open(&disk) else {
        panic!("a lost header was not found");
    };
    assert_eq!(place, "data/00000001.log at offset 0");
}

#[test]
fn file_that_is_no_segment_is_refused_and_left_as_it_is() {
    let long = [b'x'; 4096];
    for (number, bytes) in [
        (1, &b"hello, world\n"[..]),
        (1, &long[..]),
        (7, &b"2026-11-27 started\n"[..]),
    ] {
        let disk = Disk::new();
        disk.process().create_dir(DIR.as_ref()).unwrap();
        disk.set_bytes(&segment(number), bytes.to_vec());
        let refused = open(&disk).unwrap_err();
        assert!(matches!(refused, Error::Backend { .. }), "{refused}");
        let name = segment(number).display().to_string();
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("{name} is no segment of a log")) && refused.contains("move it away"),
            "{refused}"
        );
        assert_eq!(disk.bytes(&segment(number)), bytes);
        assert_eq!(disk.segments(), [segment(number)]);
    }
}

#[test]
fn a_ready_segment_renumbered_during_verify_is_no_damage() {
    let (disk, _) = killed();
    let sound = verify(&options(&disk), DIR.as_ref()).unwrap();
    let (ready, postponed) = (segment(8), segment(9));
    disk.set_bytes(&ready, vec![0; 4096]);
    let files = disk.process();
    disk.before_next_open(move || files.rename(&ready, &postponed).unwrap());
    let found = verify(&options(&disk), DIR.as_ref()).unwrap();
    assert!(found.is_sound(), "{found}");
    assert_eq!(found.segments, sound.segments);
}

#[test]
fn an_unwritten_header_copy_is_noted_and_a_changed_one_damage() {
    let (disk, writer) = killed();
    let whole = disk.bytes(&segment(1));
    for copy in [0..512, 512..1024] {
        let (torn, damaged) = (disk.copy(), disk.copy());
        let mut bytes = whole.clone();
        bytes[copy.clone()].fill(0);
        torn.set_bytes(&segment(1), bytes);
        let found = verify(&options(&torn), DIR.as_ref()).unwrap();
        assert!(found.is_sound() && found.notes.len() == 1, "{found}");
        assert!(found.notes[0].why.contains("was not written"), "{found}");
        assert_eq!(count(&open(&torn).unwrap(), writer), COMMITS);
        let mut bytes = whole.clone();
        bytes[copy.start + 100] ^= 4;
        damaged.set_bytes(&segment(1), bytes);
        let found = verify(&options(&damaged), DIR.as_ref()).unwrap();
        assert!(!found.is_sound() && found.damages.len() == 1, "{found}");
    }
}

#[test]
fn a_missing_segment_is_found_when_it_is_read() {
    let disk = Disk::new();
    let log = open(&disk).unwrap();
    let writer = open_writer(&log).unwrap();
    for number in 1..=60 {
        append(&log, writer, number, 900).unwrap();
    }
    drop(log);
    assert!(disk.segments().len() >= 4, "{:?}", disk.segments());
    let second = segment(2);
    disk.set_bytes(&second, Vec::new());
    let log = open(&disk).unwrap();
    assert!(matches!(numbers(&log, writer), Err(Error::Damaged { .. })));
}

#[test]
fn stale_bytes_of_a_recycled_segment_never_pass_for_commits() {
    let (disk, writer) = ended();
    let stale = disk.bytes(&segment(1));
    let next = disk.segments().len() as u64 + 1;
    let mut recycled = stale;
    recycled[..1024].fill(0);
    disk.set_bytes(&segment(next), recycled);
    let log = open(&disk).unwrap();
    assert_eq!(count(&log, writer), COMMITS);
    block_until_used(&log, &disk, next);
    disk.kill_process();
    let log = open(&disk).unwrap();
    for writer in 1..=10 {
        // A stream that does not exist has no commits. No stream has more than were appended.
        assert!(count(&log, WriterId(writer)) <= COMMITS);
    }
    assert_eq!(count(&log, writer), COMMITS);
}

/// Opens writers with one commit each, until one of them uses the recycled segment.
fn block_until_used(log: &throng_log::Log, disk: &Disk, number: u64) {
    for _ in 0..4 {
        let writer = open_writer(log).unwrap();
        append(log, writer, 1, 60).unwrap();
        if disk.bytes(&segment(number))[..8] == *b"THRNGLOG" {
            assert_eq!(count(log, writer), 1);
            return;
        }
    }
    panic!("the recycled segment was not used");
}

#[test]
fn a_log_of_another_format_version_is_refused() {
    let (disk, _) = killed();
    let mut bytes = disk.bytes(&segment(1));
    for copy in [0, 512] {
        bytes[copy + 8] = 9;
    }
    disk.set_bytes(&segment(1), bytes);
    let Err(error) = open(&disk) else {
        panic!("another version was not noticed");
    };
    let expected = "data/00000001.log has format version 9, this program reads 1; use the program it was written by, or \
                    export it there and import it here";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn room_that_a_life_did_not_use_is_given_back() {
    let disk = Disk::new();
    for epoch in 1..=4 {
        let log = open(&disk).unwrap();
        let writer = open_writer(&log).unwrap();
        // Some epochs commit nothing, some are killed, some end cleanly.
        if epoch % 2 == 0 {
            append(&log, writer, 1, 100).unwrap();
        }
        if epoch == 2 {
            disk.kill_process();
        }
        drop(log);
    }
    let used: Vec<usize> = disk.segments().iter().map(|path| disk.bytes(path).len()).collect();
    let (last, earlier) = used.split_last().unwrap();
    assert!(earlier.iter().all(|bytes| *bytes <= 2048), "{used:?}");
    assert!(*last <= 16 << 10, "{used:?}");
}
