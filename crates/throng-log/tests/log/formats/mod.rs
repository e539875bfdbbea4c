//! Directories written by programs of each format can be opened, keep their contents, and go on working.
//!
//! A fixture is written once, by the program of its format, and never changes:
//! `cargo test -p throng-log --test log -- --ignored write_fixtures`.

mod script;
mod service;

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value, json};
use service::{Clock, service};
use std::{
    fs,
    io::{BufReader, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use throng::Engine;
use throng_journal::{Durability, Error, Position};
use throng_log::{
    EmbeddedViews, Options, open_embedded,
    tools::{self, ExportOptions, ImportOptions, Until},
};

/// The format written by this program.
const FORMAT: &str = "format-1";
/// All formats read by this program.
const FORMATS: [&str; 1] = [FORMAT];
/// The names of a fixture's parts.
const DIRECTORY: &str = "directory";
const BACKUP: &str = "backup";
const EXPORT: &str = "export.jsonl";
const EXPECTED: &str = "expected.json";

fn fixture(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(format)
}

fn options() -> Options {
    Options {
        durability: Durability::Os,
        segment_bytes: 16 << 10,
        reserve_bytes: 0,
        ..Options::default()
    }
}

/// Copies the files of a directory, even while an engine uses it. The copy is what a kill would leave.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, to.join(from.file_name().unwrap())).unwrap();
    }
}

fn pack(bytes: &[u8], to: &Path) {
    let mut out = GzEncoder::new(fs::File::create(to).unwrap(), Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap();
}

fn unpack(from: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::io::copy(&mut GzDecoder::new(fs::File::open(from).unwrap()), &mut bytes).unwrap();
    bytes
}

/// Packs each file of a directory.
fn pack_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap().to_str().unwrap();
        if name != "lock" {
            pack(&fs::read(&from).unwrap(), &to.join(format!("{name}.gz")));
        }
    }
}

fn unpack_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        fs::write(to.join(from.file_stem().unwrap()), unpack(&from)).unwrap();
    }
}

async fn start(dir: &Path, how: Options, has_former: bool) -> (Engine, Arc<Clock>) {
    let (log, store) = crate::notes::once_free(|| open_embedded(dir, how.clone())).await;
    let views = EmbeddedViews::open(Arc::clone(&log)).unwrap();
    let clock = Clock::new();
    let builder = service(has_former, Arc::clone(&clock)).views(Arc::new(views));
    (builder.start_shared(log, store).await.unwrap(), clock)
}

async fn rows(dir: &Path) -> Value {
    let (_log, store) = open_embedded(dir, options()).unwrap();
    script::rows(&*store).await
}

fn kinds(dir: &Path) -> Value {
    let mut kinds = Vec::new();
    tools::for_each_commit(&options(), dir, &mut |commit| {
        kinds.extend(commit.records().map(|record| record.unwrap().record));
        Ok(())
    })
    .unwrap();
    script::kinds(kinds.into_iter())
}

/// Returns the sentences of a check. An accepted loss is always reported.
fn findings(dir: &Path) -> Vec<String> {
    let found = tools::verify(&options(), dir).unwrap();
    found.damages.into_iter().map(|damage| damage.why).collect()
}

/// Opens a directory, compares its answers with the expected ones, goes on working, and checks it.
async fn works(dir: &Path, expected: &Value) {
    let (engine, _) = start(dir, options(), true).await;
    let seen = script::observe(&engine).await;
    for part in ["entities", "states", "dead", "balances"] {
        assert_eq!(seen[part], expected[part], "{part} of {}", dir.display());
    }
    script::work_on(&engine).await;
    engine.stop().await;
    drop(engine);
    let (engine, clock) = start(dir, options(), true).await;
    assert_eq!(script::states(&engine).await, expected["worked on"]);
    script::fire(&engine, &clock).await;
    engine.stop().await;
    drop(engine);
    let found = tools::verify(&options(), dir).unwrap();
    let damages: Vec<_> = found.damages.iter().map(|damage| &*damage.why).collect();
    assert_eq!(json!(damages), expected["damages"]);
}

fn expected(format: &str) -> Value {
    serde_json::from_slice(&fs::read(fixture(format).join(EXPECTED)).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_each_format_open_and_work_on() {
    for format in FORMATS {
        let (dir, expected) = (TempDir::new().unwrap(), expected(format));
        unpack_all(&fixture(format).join(DIRECTORY), dir.path());
        assert_eq!(kinds(dir.path()), expected["records"]);
        assert_eq!(json!(findings(dir.path())), expected["damages"]);
        assert_eq!(rows(dir.path()).await, expected["rows"]);
        works(dir.path(), &expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_of_each_format_are_restored_and_work_on() {
    for format in FORMATS {
        let (dir, expected) = (TempDir::new().unwrap(), expected(format));
        let (backup, restored) = (dir.path().join(BACKUP), dir.path().join("restored"));
        unpack_all(&fixture(format).join(BACKUP), &backup);
        tools::restore(&options(), (&backup, None), &restored, Until::End).unwrap();
        works(&restored, &expected).await;
        // A backup must work as a directory, too.
        works(&backup, &expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_of_each_format_are_imported_and_work_on() {
    for format in FORMATS {
        let (dir, expected) = (TempDir::new().unwrap(), expected(format));
        let lines = unpack(&fixture(format).join(format!("{EXPORT}.gz")));
        tools::import(
            &options(),
            dir.path(),
            &mut BufReader::new(&*lines),
            ImportOptions::default(),
        )
        .unwrap();
        works(dir.path(), &expected).await;
    }
}

/// Removes the last commit of a directory. Returns the position that its store covers.
async fn lose_the_last_commit(dir: &Path) -> Position {
    let mut segments: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.sort();
    let with_commits = segments
        .iter()
        .rev()
        .map(|path| (path, fs::read(path).unwrap()))
        .find(|(_, bytes)| !crate::kit::commits_of(bytes).is_empty());
    let (path, mut bytes) = with_commits.unwrap();
    let last = crate::kit::commits_of(&bytes).pop().unwrap();
    bytes[last].fill(0);
    fs::write(path, bytes).unwrap();
    match open_embedded(dir, options()) {
        Err(Error::Lost { loss, .. }) => loss.covered,
        other => panic!("expected a loss, found {other:?}"),
    }
}

/// Writes a directory that contains everything this format has.
async fn write_directory(scratch: &Path, to: &Path) {
    let (first, lost, second) = (scratch.join("first"), scratch.join("lost"), scratch.join("second"));
    let (engine, _) = start(&first, options(), true).await;
    script::begin(&engine).await;
    copy(&first, &lost);
    engine.stop().await;
    drop(engine);

    let accept_loss = Some(lose_the_last_commit(&lost).await);
    let accepting = Options {
        accept_loss,
        ..options()
    };
    let (engine, _) = start(&lost, accepting, true).await;
    script::live(&engine).await;
    copy(&lost, &second);
    engine.stop().await;
    drop(engine);

    let (engine, _) = start(&second, options(), false).await;
    script::live_on(&engine).await;
    copy(&second, to);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes the fixture of a new format, once"]
async fn write_fixtures() {
    let to = fixture(FORMAT);
    assert!(!to.exists(), "{} is there: it stays as it is", to.display());
    let scratch = TempDir::new().unwrap();
    let written = scratch.path().join("written");
    write_directory(scratch.path(), &written).await;
    pack_all(&written, &to.join(DIRECTORY));

    let backup = scratch.path().join(BACKUP);
    tools::backup(&options(), &written, &backup).unwrap();
    pack_all(&backup, &to.join(BACKUP));
    let mut lines = Vec::new();
    tools::export(&options(), &written, &mut lines, ExportOptions::default()).unwrap();
    pack(&lines, &to.join(format!("{EXPORT}.gz")));

    let again = scratch.path().join("again");
    unpack_all(&to.join(DIRECTORY), &again);
    let mut expected = json!({"records": kinds(&again), "damages": findings(&again), "rows": rows(&again).await});
    let (engine, _) = start(&again, options(), true).await;
    let seen = script::observe(&engine).await;
    expected
        .as_object_mut()
        .unwrap()
        .extend(seen.as_object().unwrap().clone());
    script::work_on(&engine).await;
    expected["worked on"] = script::states(&engine).await;
    engine.stop().await;
    let text = serde_json::to_string_pretty(&expected).unwrap();
    fs::write(to.join(EXPECTED), text + "\n").unwrap();
    let missing: Vec<_> = throng_journal::RecordKind::ALL
        .iter()
        .filter(|kind| expected["records"][kind.word()].is_null())
        .collect();
    assert!(missing.is_empty(), "no record of these kinds: {missing:?}");
}
