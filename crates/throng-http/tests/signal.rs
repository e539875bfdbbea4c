//! The end by signal, in a process of its own.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![cfg(target_os = "linux")]

use signal_hook::consts::SIGTERM;
use std::{net::TcpStream, thread};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
};
use throng_http::Gateway;

/// Has this process a handler for the signal? Without one the signal would end it.
fn is_handled(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
}

#[test]
fn a_signal_to_terminate_ends_the_gateway_gracefully() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let engine = runtime.block_on(Engine::builder().start(journal, store)).unwrap();
    let gateway = Gateway::builder(engine.clone()).start().unwrap();
    let address = gateway.address();
    let serving = thread::spawn(move || gateway.run_until_signal());
    while !is_handled(SIGTERM) {
        thread::yield_now();
    }
    assert!(TcpStream::connect(address).is_ok());
    signal_hook::low_level::raise(SIGTERM).unwrap();
    serving.join().unwrap().unwrap();
    assert!(!engine.health().ready);
    assert!(TcpStream::connect(address).is_err());
}
