//! The example with files, in a process that is killed.

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../../examples/lines/main.rs"]
mod lines;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use throng_testing::{
    block_on,
    fixtures::{Counter, Hits},
    until,
};

const DIRECTORY: &str = "THRONG_TEST_DIRECTORY";
const KILLS: u64 = 4;
const EACH: u64 = 300;
const COUNTERS: u64 = 3;

async fn start(directory: &Path) -> (throng::Engine, throng_connectors::Ingress) {
    let [input, output, journal] = ["in", "out", "journal"].map(|name| directory.join(name));
    lines::start(&input, &output, &journal).await.unwrap()
}

/// Runs in a separate process, see below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that the test below kills"]
async fn process_that_takes_lines() {
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let _service = start(&directory).await;
    std::future::pending::<()>().await;
}

fn process(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kills::process_that_takes_lines", "--exact", "--ignored"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the lines of complete batches, and the number of batches.
fn written(output: &Path) -> (Vec<String>, usize) {
    let text = fs::read_to_string(output).unwrap_or_default();
    let (whole, _torn) = text.rsplit_once("# ").unwrap_or_default();
    let (marks, lines): (Vec<&str>, Vec<&str>) = whole.lines().partition(|line| line.starts_with("# "));
    (lines.into_iter().map(str::to_owned).collect(), marks.len())
}

#[test]
fn source_and_target_of_a_user_take_at_most_100_lines() {
    let lines = include_str!("../../examples/lines/files.rs").lines().count();
    assert!(
        lines <= 100,
        "{lines} lines: what do they need from this crate to be fewer?"
    );
}

#[test]
fn lines_count_once_in_a_process_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("in"), directory.path().join("out"));
    let mut lines = fs::File::create(&input).unwrap();
    for _ in 0..KILLS {
        let more: String = (0..EACH).map(|number| format!("{}\n", number % COUNTERS)).collect();
        lines.write_all(more.as_bytes()).unwrap();
        let (_, before) = written(&output);
        let mut child = process(directory.path());
        until("a batch is written", || written(&output).1 > before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A line that no counter accepts, and a batch that a crash has cut within a character.
    lines.write_all(b"\n").unwrap();
    let mut torn = fs::OpenOptions::new().append(true).open(&output).unwrap();
    torn.write_all(b"1.1.0 a whole line\n1.1.1 \xc3").unwrap();
    let all = fs::metadata(&input).unwrap().len().to_string();
    let sent = KILLS * EACH;
    let hits = block_on(async {
        let (engine, ingress) = start(directory.path()).await;
        until("every line is settled", || {
            fs::read_to_string(input.with_extension("settled")).is_ok_and(|settled| settled == all)
        });
        until("every hit is written", || {
            let progress = &engine.projections()[0];
            progress.lag_commits == 0 && progress.events >= sent
        });
        let mut hits = Vec::new();
        for counter in 0..COUNTERS {
            let counter = engine.entity::<Counter>(counter.to_string());
            hits.push(counter.read(Hits).await.unwrap());
        }
        ingress.stop();
        engine.stop().await;
        hits
    });
    assert_eq!(hits, [sent / COUNTERS; COUNTERS as usize]);
    let dead = fs::read_to_string(input.with_extension("dead")).unwrap();
    assert!(dead.contains("id is empty"), "{dead}");
    // Compared without ids, because counters are written in the order of their commits.
    let (lines, _) = written(&output);
    let mut lines: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..COUNTERS)
        .flat_map(|counter| (1..=sent / COUNTERS).map(move |seq| format!("{counter} {seq}")))
        .collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}
