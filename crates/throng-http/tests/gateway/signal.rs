//! The end by a signal, in a separate process.

use crate::support::section::{Command as SectionCommand, Section};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::{
    env,
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore, ShardSet, Store as _},
};
use throng_http::{Gateway, Running};
use throng_testing::blocking_pause;

/// Returns true if this process has a handler for the signal. Without a handler the signal would end the process.
fn is_handled(signal: i32) -> bool {
    is_in("SigCgt:", signal)
}

fn is_in(mask: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let signals = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap();
    u64::from_str_radix(signals.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
}

/// Starts a gateway. Its engine has something to checkpoint, and its store is still empty.
fn start() -> (Running, Engine, MemoryStore) {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let runtime = runtime();
    let engine = runtime
        .block_on(Engine::builder().with::<Section>().start(journal, store.clone()))
        .unwrap();
    let open = engine.entity::<Section>("A").ask(SectionCommand::Open { capacity: 1 });
    runtime.block_on(open).unwrap();
    (Gateway::builder(engine.clone()).start().unwrap(), engine, store)
}

/// Returns a runtime without timers: a stop needs none of the caller's.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

type Serve = fn(Running) -> std::io::Result<()>;

/// The ways in which a program waits for the signal.
const WAYS: [(&str, Serve); 3] = [
    ("blocking", Running::run_until_signal_blocking),
    ("blocking on a thread of a runtime", |running| {
        runtime().block_on(async { running.run_until_signal_blocking() })
    }),
    ("async", |running| runtime().block_on(running.run_until_signal())),
];

/// The variable that selects this process's way and signal.
const WAY: &str = "THRONG_TEST_WAY";
const SIGNAL: &str = "THRONG_TEST_SIGNAL";

#[test]
fn a_program_in_a_process_of_its_own() {
    let Ok(way) = env::var(WAY) else { return };
    let (_, serve) = WAYS.into_iter().find(|(name, _)| *name == way).unwrap();
    let (running, engine, store) = start();
    let (address, durable) = (running.address(), engine.health().position);
    let serving = thread::spawn(move || serve(running));
    let signal = env::var(SIGNAL).unwrap().parse().unwrap();
    // SIGQUIT is the last signal to get a handler.
    while !is_handled(signal) || !is_handled(SIGQUIT) {
        thread::yield_now();
    }
    assert!(TcpStream::connect(address).is_ok());
    // A signal between the handler's installation and its entry in the library's table is lost.
    while !serving.is_finished() {
        signal_hook::low_level::raise(signal).unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while !serving.is_finished() && Instant::now() < patience {
            blocking_pause();
        }
    }
    serving.join().unwrap().unwrap();
    assert!(!engine.health().ready);
    assert!(TcpStream::connect(address).is_err());
    let checkpoint = runtime().block_on(store.covers(&ShardSet::first(256))).unwrap()[0].upto;
    assert_eq!(checkpoint, durable);
}

#[test]
fn a_signal_ends_the_gateway_with_a_last_checkpoint() {
    // A signal that this test ignores (SIGHUP under nohup) is also ignored by the program.
    let signals = [SIGHUP, SIGINT, SIGQUIT]
        .into_iter()
        .filter(|signal| !is_in("SigIgn:", *signal));
    let signals = signals.map(|signal| (WAYS[0].0, signal));
    for (way, signal) in WAYS.map(|(way, _)| (way, SIGTERM)).into_iter().chain(signals) {
        let output = Command::new(env::current_exe().unwrap())
            .args(["signal::a_program_in_a_process_of_its_own", "--exact", "--nocapture"])
            .env(WAY, way)
            .env(SIGNAL, signal.to_string())
            .output()
            .unwrap();
        assert!(output.status.success(), "{way}, {signal}: {output:?}");
        // The run would also succeed with an unknown test name, so its output is checked.
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(ran, "{way}: {output:?}");
    }
}
