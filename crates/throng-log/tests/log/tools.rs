//! The offline tools on real directories.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use throng_journal::{
    Address, Checkpoint, CommitBuilder, CommitNo, Error, Journal, Loaded, Maybe, Position, Prune, PruneHow, RecordKind,
    ShardId, ShardSet, Stamp, Store, StoredState, WriterId, conformance::block_on,
};
use throng_log::{
    EmbeddedStore, Log, Options, open_embedded,
    tools::{self, ExportOptions, ImportOptions, Imported, InspectOptions, LiveBackup, Until},
};

/// Bodies of every sort: JSON, JSON with spaces, JSON over several lines, text, bytes, empty.
const BODIES: [&[u8]; 8] = [
    br#"{"capacity":30,"name":"Caf\u00e9"}"#,
    br#"{ "spaced" : [1, 2.50, -0, 1e3] }"#,
    b"{\n  \"lines\": 2\n}",
    b"null",
    b" 1 ",
    b"not json",
    &[0, 159, 146, 150],
    b"",
];

fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        ..Options::default()
    }
}

/// Adds an event of a section to an open commit.
fn push_added(open: &mut CommitBuilder, id: &str, seq: u64, body: &[u8]) {
    let address = Address::new("section", id);
    open.push(RecordKind::Event, ShardId(0), &address, seq, "Added", 1, body);
}

fn append(log: &Log, writer: WriterId, number: u64, open: &mut CommitBuilder) {
    let commit = open.finish(Stamp::after_synced(
        writer,
        CommitNo(number),
        1_000_000 + (writer.0 * 1000 + number).cast_signed(),
    ));
    let appended = block_on(log.append(commit).landed());
    appended.result.unwrap();
}

/// Runs three epochs of a node: events of seven entities, other records, an empty commit. Returns the last commit of each epoch.
fn live(dir: &Path) -> Vec<Position> {
    let mut ends = Vec::new();
    let mut seqs: BTreeMap<u64, u64> = BTreeMap::new();
    for epoch in 1..=3u64 {
        let log = Log::open(dir, options()).unwrap();
        let writer = block_on(log.open("node-a")).unwrap().writer;
        let mut open = CommitBuilder::default();
        for number in 1..=30u64 {
            for index in 0..(number % 4) {
                let entity = (number * 3 + index) % 7;
                let seq = seqs.entry(entity).or_default();
                *seq += 1;
                let body = BODIES[(number + index) as usize % BODIES.len()];
                let address = Address::new("section", format!("C S {entity} ü"));
                open.push(
                    RecordKind::Event,
                    ShardId(entity as u16),
                    &address,
                    *seq,
                    "Added",
                    3,
                    body,
                );
            }
            if number % 5 == 0 {
                let address = Address::new("section", "sender");
                open.push(
                    RecordKind::Sent,
                    ShardId(9),
                    &address,
                    number,
                    "tell",
                    1,
                    BODIES[epoch as usize],
                );
            }
            append(&log, writer, number, &mut open);
        }
        ends.push(Position::new(writer, CommitNo(30)));
    }
    ends
}

fn exported(dir: &Path) -> String {
    let mut out = Vec::new();
    tools::export(&options(), dir, &mut out, ExportOptions::default()).unwrap();
    String::from_utf8(out).unwrap()
}

fn imported(dir: &Path, lines: &str, unchecked: bool) -> Result<Imported, Error> {
    tools::import(&options(), dir, &mut lines.as_bytes(), ImportOptions { unchecked })
}

fn checkpointed(dir: &Path, ends: &[Position]) -> (Arc<Log>, Arc<EmbeddedStore>) {
    let (log, store) = open_embedded(dir, options()).unwrap();
    let state = StoredState {
        address: Address::new("section", "C S 1 ü"),
        shard: ShardId(1),
        seq: 2,
        version: 1,
        bytes: b"two events in it".to_vec(),
    };
    let (upto, sealed) = ends.split_last().unwrap();
    let checkpoint = Checkpoint {
        upto: *upto,
        sealed: sealed.to_vec(),
        states: vec![state],
        system: vec![(b"timer/1".to_vec(), Some(b"noon".to_vec()))],
        ..Checkpoint::default()
    };
    block_on(store.advance(checkpoint)).unwrap();
    (log, store)
}

fn load(store: &EmbeddedStore, id: &str) -> Loaded {
    match store.load(&Address::new("section", id), 1) {
        Maybe::Ready(loaded) => loaded.unwrap(),
        Maybe::Later(later) => block_on(later).unwrap(),
    }
}

fn all_loaded(store: &EmbeddedStore) -> Vec<Loaded> {
    (0..7).map(|entity| load(store, &format!("C S {entity} ü"))).collect()
}

fn covers(store: &EmbeddedStore) -> Option<Position> {
    block_on(store.covers(&ShardSet::first(256))).unwrap()[0].upto
}

#[test]
fn an_export_imported_and_exported_again_is_the_same() {
    let (dir, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    live(dir.path());
    let lines = exported(dir.path());
    assert!(
        lines.contains(r#""body":{"capacity":30,"name":"Caf\u00e9"}"#),
        "JSON stands as it is"
    );
    assert!(
        lines.contains(r#""body":{ "spaced" : [1, 2.50, -0, 1e3] }"#),
        "JSON stands byte by byte"
    );
    let to = copy.path().join("new");
    let imported = imported(&to, &lines, false).unwrap();
    assert_eq!(
        (imported.writers, imported.commits),
        (4, 90),
        "three epochs, and the end of the last"
    );
    assert_eq!(exported(&to), lines);
    assert!(tools::verify(&options(), &to).unwrap().is_sound());
}

#[test]
fn an_import_says_which_line_it_cannot_take_and_why() {
    let dir = TempDir::new().unwrap();
    let begin = "{\"throng_export\":1}\n{\"writer\":1,\"node\":\"n\"}\n";
    let refusals = [
        (
            "{\"writer\":1}\n",
            "importing line 1 failed: an export begins with {\"throng_export\":2}",
        ),
        (
            "{\"throng_export\":7}\n",
            "importing line 1 failed: the export has version 7, this program reads 2",
        ),
        (
            "{\"throng_export\":1}\n{\"commit\":1,\"at_micros\":1}\n",
            "importing line 2 failed: a commit before any writer",
        ),
        (
            "\u{feff}{\"throng_export\":1}\n",
            "importing line 1 failed: it begins with a byte order mark (the bytes EF BB BF), which JSON does not have; leave that out",
        ),
        (
            "nonsense\n",
            "importing line 1 failed: expected ident at line 1 column 2",
        ),
    ];
    let after_begin = [
        (
            "{\"commit\":2,\"at_micros\":1}\n",
            "importing line 3 failed: commit 2 follows commit 0 of writer 1",
        ),
        (
            "{\"commit\":1}\n",
            "importing line 3 failed: the field at_micros is missing",
        ),
        (
            "{\"commit\":1,\"at_micros\":1,\"record\":\"evnt\"}\n",
            "importing line 3 failed: there is no kind of record named \"evnt\"",
        ),
        (
            "{\"commit\":1,\"at_micros\":1,\"record\":\"event\",\"kind\":\"k\",\"id\":\"i\",\"name\":\"n\"}\n",
            "importing line 3 failed: a record has one of the fields body and base64",
        ),
        (
            "{\"writer\":1,\"node\":\"n\"}\n",
            "importing writer 1 failed: writer 2 comes next, with a node's name of at most 256 bytes",
        ),
    ];
    let after_begin = after_begin.map(|(line, why)| (format!("{begin}{line}"), why));
    let all = refusals
        .map(|(text, why)| (text.to_owned(), why))
        .into_iter()
        .chain(after_begin);
    for (number, (text, why)) in all.enumerate() {
        let to = dir.path().join(number.to_string());
        let refused = imported(&to, &text, true).unwrap_err();
        assert_eq!(refused.to_string(), why, "of {text}");
    }
    live(&dir.path().join("full"));
    let refused = imported(&dir.path().join("full"), begin, true).unwrap_err();
    assert!(
        refused.to_string().contains("there is a log in this directory already"),
        "{refused}"
    );
}

#[test]
fn an_export_that_was_cut_or_altered_is_refused_with_the_line() {
    let (dir, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    live(dir.path());
    let text = exported(dir.path());
    let lines: Vec<&str> = text.lines().collect();
    let to = copies.path();
    let refused = |lines: &[&str]| {
        let refused = imported(to, &(lines.join("\n") + "\n"), false).unwrap_err().to_string();
        assert!(tools::verify(&options(), to).is_err(), "what is there is no journal");
        refused
    };
    for at in 1..lines.len() {
        let said = refused(&lines[..at]);
        assert!(said.contains(&format!("was cut after line {at}")), "{said}");
        let mut without = lines.clone();
        without.remove(at - 1);
        let said = refused(&without);
        assert!(
            said.contains(&format!("importing line {at} failed")),
            "without line {at}: {said}"
        );
        let mut twice = lines.clone();
        twice.insert(at, lines[at - 1]);
        let (said, next) = (refused(&twice), at + 1);
        assert!(
            said.contains(&format!("importing line {next} failed")),
            "line {at} twice: {said}"
        );
        let changed = lines[at].replacen(|found: char| found.is_ascii_digit(), "x", 1);
        let mut altered = lines.clone();
        altered[at] = &changed;
        let said = refused(&altered);
        assert!(
            said.contains(&format!("importing line {next} failed")),
            "line {next} altered: {said}"
        );
    }
    let said = refused(&[&lines[..], &lines[lines.len() - 1..]].concat());
    assert!(said.contains("failed"), "{said}");
    let taken = imported(to, &text, false).unwrap();
    assert_eq!(taken.commits, 90, "begun anew after all that");
    assert_eq!(exported(to), text);
}

#[test]
fn an_export_of_an_older_program_is_taken_on_request() {
    let dir = TempDir::new().unwrap();
    let text = "{\"throng_export\":1}\n{\"writer\":1,\"node\":\"n\"}\n{\"commit\":1,\"at_micros\":1}\n";
    let to = dir.path().join("new");
    let said = imported(&to, text, false).unwrap_err().to_string();
    assert!(said.contains("line 1 failed: it carries no sum"), "{said}");
    assert_eq!(imported(&to, text, true).unwrap().commits, 1);
}

#[test]
fn an_import_that_did_not_end_is_no_journal() {
    let (dir, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    live(dir.path());
    let text = exported(dir.path());
    let to = copies.path();
    let half: String = text.lines().take(60).map(|line| format!("{line}\n")).collect();
    imported(to, &half, false).unwrap_err();
    assert!(!segments(to).is_empty(), "something was written");
    for said in [
        Log::open(to, options()).unwrap_err().to_string(),
        open_embedded(to, options()).unwrap_err().to_string(),
        tools::verify(&options(), to).unwrap_err().to_string(),
        tools::backup(&options(), to, &copies.path().join("b"))
            .unwrap_err()
            .to_string(),
    ] {
        assert!(said.contains("did not end"), "{said}");
    }
    // An interrupted backup is recognized the same way, and begun anew.
    let copied = tools::backup(&options(), dir.path(), to).unwrap();
    assert!(copied.verification.is_sound());
    assert_eq!(exported(to), text);
}

#[test]
fn a_directory_is_either_held_for_a_move_or_in_use() {
    let dir = TempDir::new().unwrap();
    live(dir.path());
    let held = tools::hold(&options(), dir.path()).unwrap();
    assert!(matches!(Log::open(dir.path(), options()), Err(Error::InUse { .. })));
    drop(held);
    let _log = Log::open(dir.path(), options()).unwrap();
    assert!(matches!(tools::hold(&options(), dir.path()), Err(Error::InUse { .. })));
}

#[test]
fn tools_say_that_there_is_no_log() {
    let dir = TempDir::new().unwrap();
    let refused = tools::verify(&options(), dir.path()).unwrap_err();
    assert!(
        refused.to_string().contains("there is no log in this directory"),
        "{refused}"
    );
    assert!(tools::compact(&options(), dir.path()).is_err());
    assert!(
        fs::read_dir(dir.path()).unwrap().next().is_none(),
        "and leave nothing behind"
    );
}

fn copied(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|is| is == "log"))
        .collect();
    segments.sort();
    segments
}

#[test]
fn verify_finds_a_flipped_bit_anywhere_and_names_it() {
    let dir = TempDir::new().unwrap();
    live(dir.path());
    let whole = tools::verify(&options(), dir.path()).unwrap();
    assert!(whole.is_sound(), "{whole}");
    assert_eq!((whole.writers, whole.commits, whole.entities), (4, 90, 7));
    let segments = segments(dir.path());
    for segment in &segments[..segments.len() - 1] {
        let bytes = fs::read(segment).unwrap();
        for at in (0..bytes.len()).step_by(41) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(segment, &damaged).unwrap();
            let found = tools::verify(&options(), dir.path()).unwrap();
            assert!(!found.is_sound(), "byte {at} of {}", segment.display());
            let named = found
                .damages
                .iter()
                .any(|damage| damage.place.starts_with(&*segment.display().to_string()));
            assert!(named, "byte {at}: {found}");
        }
        fs::write(segment, &bytes).unwrap();
    }
}

#[test]
fn verify_goes_on_behind_damage_and_export_can_leave_it_out() {
    let dir = TempDir::new().unwrap();
    live(dir.path());
    let segment = &segments(dir.path())[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes[1024 + 10] ^= 1;
    fs::write(segment, &bytes).unwrap();
    let found = tools::verify(&options(), dir.path()).unwrap();
    assert_eq!(found.commits, 89, "{found}");
    assert!(
        found.damages[0].place.ends_with("00000001.log at offset 1024"),
        "{found}"
    );
    let mut out = Vec::new();
    let stopped = tools::export(&options(), dir.path(), &mut out, ExportOptions::default());
    assert!(matches!(stopped, Err(Error::Damaged { .. })));
    let skipped = tools::export(&options(), dir.path(), &mut out, ExportOptions { skip_damage: true }).unwrap();
    assert_eq!((skipped.commits, skipped.skipped), (89, 1));
}

//= promise 5: numbers have no gaps
#[test]
fn verify_finds_a_gap_in_an_entitys_events() {
    let dir = TempDir::new().unwrap();
    let log = Log::open(dir.path(), options()).unwrap();
    let writer = block_on(log.open("n")).unwrap().writer;
    for (number, seq) in [(1, 1), (2, 3)] {
        let mut open = CommitBuilder::default();
        open.push(
            RecordKind::Event,
            ShardId(0),
            &Address::new("k", "i"),
            seq,
            "E",
            1,
            b"1",
        );
        append(&log, writer, number, &mut open);
    }
    let found = tools::verify(&options(), dir.path()).unwrap();
    assert_eq!(found.damages.len(), 1, "{found}");
    assert_eq!(
        (&*found.damages[0].place, &*found.damages[0].why),
        ("k/i", "event 3 follows event 1")
    );
}

#[test]
fn inspect_shows_writers_records_and_one_entitys_history() {
    let dir = TempDir::new().unwrap();
    live(dir.path());
    let what = InspectOptions {
        entity: Some(Address::new("section", "C S 1 ü")),
        records_max: 5,
        ..InspectOptions::default()
    };
    let inspection = tools::inspect(&options(), dir.path(), &what).unwrap();
    let found = &inspection.contents;
    assert_eq!(found.commits, 90);
    assert_eq!(
        found.writers.iter().map(|writer| writer.commits).collect::<Vec<_>>(),
        [30, 30, 30, 0]
    );
    assert_eq!(found.records["sent section tell"], 18);
    assert_eq!(
        found.history.iter().map(|line| line.seq).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert!(found.history_cut);
    let shown = inspection.to_string();
    assert!(shown.contains("section/C S 1 ü event 1 Added"), "{shown}");
}

#[test]
fn a_backup_holds_the_log_and_the_store() {
    let (dir, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let ends = live(dir.path());
    let (log, store) = checkpointed(dir.path(), &ends);
    let writer = block_on(log.open("node-a")).unwrap().writer;
    let mut open = CommitBuilder::default();
    push_added(&mut open, "late", 1, b"{}");
    append(&log, writer, 1, &mut open);
    let expected = all_loaded(&store);
    let live_copy = to.path().join("live");
    let backed_up = tools::backup_live(&log, Some(&store), &live_copy).unwrap();
    assert!(backed_up.verification.is_sound(), "{backed_up}");
    assert_eq!(backed_up.verification.commits, 91);
    push_added(&mut open, "late", 2, b"{}");
    append(&log, writer, 2, &mut open);
    let used = to.path().join("used");
    let backed_up = tools::backup(&options(), dir.path(), &used).unwrap();
    assert!(
        backed_up.verification.is_sound() && backed_up.verification.commits == 92,
        "also while it is used: {backed_up}"
    );
    drop((log, store));
    assert_eq!(
        exported(&used).lines().count() + 1,
        exported(dir.path()).lines().count(),
        "all but the writer after it"
    );
    let stopped_copy = to.path().join("stopped");
    let backed_up = tools::backup(&options(), dir.path(), &stopped_copy).unwrap();
    assert_eq!(backed_up.verification.commits, 92);
    for copy in [live_copy, stopped_copy] {
        let (_log, store) = open_embedded(&copy, options()).unwrap();
        assert_eq!(covers(&store), ends.last().copied());
        assert_eq!(all_loaded(&store), expected);
    }
}

#[test]
fn compacting_gives_back_room_and_keeps_everything() {
    let dir = TempDir::new().unwrap();
    let ends = live(dir.path());
    let (log, store) = checkpointed(dir.path(), &ends);
    let expected = all_loaded(&store);
    drop((log, store));
    let before = exported(dir.path());
    fs::write(dir.path().join("00000099.log"), vec![0; 1 << 20]).unwrap();
    let compacted = tools::compact(&options(), dir.path()).unwrap();
    assert!(
        compacted.store.store_bytes_after < compacted.store.store_bytes_before,
        "{compacted}"
    );
    assert!(compacted.segments_removed_bytes >= 1 << 20, "{compacted}");
    assert!(!dir.path().join("00000099.log").exists());
    assert_eq!(exported(dir.path()), before);
    let (_log, store) = open_embedded(dir.path(), options()).unwrap();
    assert_eq!(all_loaded(&store), expected);
}

#[test]
fn a_damaged_store_is_begun_anew_and_rebuilt() {
    let dir = TempDir::new().unwrap();
    let ends = live(dir.path());
    drop(checkpointed(dir.path(), &ends));
    let path = dir.path().join("store.redb");
    let bytes = fs::read(&path).unwrap();
    for damaged in [
        Vec::new(),
        b"not a database".to_vec(),
        vec![0; bytes.len()],
        bytes[..bytes.len() / 2].to_vec(),
    ] {
        fs::write(&path, damaged).unwrap();
        let (_log, store) = open_embedded(dir.path(), options()).unwrap();
        assert_eq!(covers(&store), None);
        assert_eq!(load(&store, "C S 1 ü"), Loaded::default());
    }
    let (_log, store) = checkpointed(dir.path(), &ends);
    assert_eq!(covers(&store), ends.last().copied());
    assert_eq!(load(&store, "C S 1 ü").state.unwrap().seq, 2);
}

#[test]
fn a_newer_store_beside_an_older_log_is_proof_of_loss() {
    let dir = TempDir::new().unwrap();
    let ends = live(dir.path());
    let older = copied(dir.path());
    // The log and the store go on. Then an older log is restored beside the newer store.
    let (log, store) = checkpointed(dir.path(), &ends);
    let writer = block_on(log.open("node-a")).unwrap().writer;
    let mut open = CommitBuilder::default();
    push_added(&mut open, "late", 1, b"{}");
    append(&log, writer, 1, &mut open);
    let upto = Position::new(writer, CommitNo(1));
    block_on(store.advance(Checkpoint {
        upto,
        ..Checkpoint::default()
    }))
    .unwrap();
    drop((log, store));
    fs::copy(dir.path().join("store.redb"), older.path().join("store.redb")).unwrap();
    let lost = || match open_embedded(older.path(), options()) {
        Err(Error::Lost { loss, .. }) => loss,
        other => panic!("expected a loss, found {other:?}"),
    };
    let begun = Position::new(upto.writer, CommitNo(0));
    assert_eq!(
        (lost().covered, lost().held),
        (upto, begun),
        "its last commit is not in the log"
    );
    // This is another history, with commits of the same numbers.
    let log = Log::open(older.path(), options()).unwrap();
    assert_eq!(block_on(log.open("node-a")).unwrap().writer, writer);
    push_added(&mut open, "other", 1, b"[]");
    append(&log, writer, 1, &mut open);
    drop(log);
    fs::copy(dir.path().join("store.redb"), older.path().join("store.redb")).unwrap();
    assert_eq!(lost().held, upto, "a commit of that number is, but it is another one");
}

/// Returns a random number below a bound.
fn below(seed: &mut u64, bound: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % bound
}

/// Returns the commit lines of an export, without their checksums.
fn commits_of(dir: &Path) -> Vec<String> {
    let text = exported(dir);
    let lines = text.lines().filter(|line| line.starts_with("{\"commit\""));
    lines
        .map(|line| line[..line.rfind(",\"sum\"").unwrap()].to_owned())
        .collect()
}

#[test]
fn a_copy_follows_a_live_log_and_restores_at_any_commit() {
    let mut seed = 7;
    let (dir, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let copy = copies.path().join("copy");
    let (mut ends, mut number) = (Vec::new(), 0);
    for epoch in 0..4 {
        let log = Log::open(dir.path(), options()).unwrap();
        let writer = block_on(log.open("node-a")).unwrap().writer;
        for commit in 1..=60 {
            number += 1;
            let mut open = CommitBuilder::default();
            let body = format!(
                "{{\"n\":{number},\"filler\":\"{}\"}}",
                "x".repeat(below(&mut seed, 900) as usize)
            );
            let address = Address::new("section", "S");
            open.push(
                RecordKind::Event,
                ShardId(0),
                &address,
                number,
                "Added",
                1,
                body.as_bytes(),
            );
            append(&log, writer, commit, &mut open);
            ends.push(Position::new(writer, CommitNo(commit)));
            if below(&mut seed, 15) == 0 {
                let backed_up = tools::backup(&options(), dir.path(), &copy).unwrap();
                assert!(backed_up.verification.is_sound(), "{backed_up}");
                assert_eq!(backed_up.upto, ends.last().unwrap().to_string(), "epoch {epoch}");
            }
        }
    }
    let mut live = LiveBackup::begin(&options(), dir.path(), &copy).unwrap();
    live.catch_up().unwrap();
    assert_eq!(live.catch_up().unwrap().bytes, 0, "there is nothing more");
    drop(live);
    let all = commits_of(dir.path());
    assert_eq!(all.len(), 240);
    assert_eq!(commits_of(&copy), all);
    for try_number in 0..12 {
        let last = below(&mut seed, 240) as usize;
        let to = copies.path().join(format!("restored-{try_number}"));
        let restored = tools::restore(&options(), (&copy, None), &to, Until::Commit(ends[last])).unwrap();
        assert_eq!(restored.commits, last as u64 + 1);
        assert_eq!(commits_of(&to), all[..=last]);
        assert!(tools::verify(&options(), &to).unwrap().is_sound());
    }
    let nowhere = Position::new(WriterId(2), CommitNo(61));
    let to = copies.path().join("nowhere");
    let refused = tools::restore(&options(), (&copy, None), &to, Until::Commit(nowhere));
    assert!(
        matches!(refused, Err(Error::NoCommit(at)) if at == nowhere),
        "{refused:?}"
    );
    assert!(Log::open(&to, options()).is_err(), "it is no journal");
    let moment = 1_000_000 + 2 * 1000 + 7;
    let at_that_time = tools::restore(&options(), (&copy, None), &to, Until::Micros(moment)).unwrap();
    assert_eq!(at_that_time.commits, 67, "seven commits of the second epoch");
}

#[test]
fn a_copy_that_was_used_or_is_of_another_log_gets_nothing_more() {
    let (dir, other, copies) = (
        TempDir::new().unwrap(),
        TempDir::new().unwrap(),
        TempDir::new().unwrap(),
    );
    live(dir.path());
    live(other.path());
    let (copy, elsewhere) = (copies.path().join("copy"), copies.path().join("elsewhere"));
    tools::backup(&options(), dir.path(), &copy).unwrap();
    tools::backup(&options(), other.path(), &elsewhere).unwrap();
    let refused = tools::backup(&options(), dir.path(), &elsewhere)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("it is no copy of"), "{refused}");
    for (used, body) in [(&*copy, b"in the copy"), (dir.path(), b"in the log!")] {
        let log = Log::open(used, options()).unwrap();
        let writer = block_on(log.open("node-a")).unwrap().writer;
        let mut open = CommitBuilder::default();
        let address = Address::new("section", "later");
        open.push(RecordKind::Event, ShardId(0), &address, 1, "Added", 1, body);
        append(&log, writer, 1, &mut open);
    }
    let refused = tools::backup(&options(), dir.path(), &copy).unwrap_err().to_string();
    assert!(refused.contains("was used since"), "{refused}");
}

#[test]
fn copy_that_follows_keeps_history_removed_behind_it() {
    let (dir, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = copies.path().join("copy");
    let log = Log::open(dir.path(), options()).unwrap();
    let writer = block_on(log.open("node-a")).unwrap().writer;
    let address = Address::new("section", "a");
    let write = |numbers: std::ops::RangeInclusive<u64>| {
        let mut open = CommitBuilder::default();
        for number in numbers {
            let body = format!("{{\"filler\":\"{}\"}}", "x".repeat(900));
            open.push(
                RecordKind::Command,
                ShardId(0),
                &address,
                number,
                "Add",
                1,
                body.as_bytes(),
            );
            append(&log, writer, number, &mut open);
        }
    };
    write(1..=10);
    let mut live = LiveBackup::begin(&options(), dir.path(), &copy).unwrap();
    live.catch_up().unwrap();
    let copied = commits_of(&copy);
    // The first segment ends. Then history is removed from its middle, where the copy has arrived.
    write(11..=40);
    let prune = Prune {
        after: Position::new(writer, CommitNo(0)),
        upto: CommitNo(40),
        judge: Arc::new(|record, _| (5..=12).contains(&record.seq)),
        replaced_by: Position::new(writer, CommitNo(40)),
        how: PruneHow::Erase,
    };
    let pruned = block_on(log.prune(prune)).unwrap();
    assert_eq!(pruned.records, 8);
    let added = live.catch_up().unwrap();
    assert_eq!(added.upto.commit, CommitNo(40));
    drop((live, log));
    let (left, of_copy) = (commits_of(dir.path()), commits_of(&copy));
    assert_eq!(of_copy[..10], copied[..10]);
    assert!(
        of_copy[10].starts_with("{\"commit\":12,\"at_micros\":1001012,\"removed\":1,"),
        "{}",
        of_copy[10]
    );
    assert_eq!(of_copy[11..], left[5..], "commit 13 and those behind it");
    assert!(tools::verify(&options(), &copy).unwrap().is_sound());
    assert!(
        fs::read_dir(&copy)
            .unwrap()
            .all(|file| !file.unwrap().path().to_string_lossy().ends_with(".new"))
    );
}
