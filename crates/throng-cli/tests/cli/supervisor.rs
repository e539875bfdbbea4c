//! `throng serve` under a supervisor, and `throng health`, which asks it.

use super::kit::{Served, assert_refused, run, throng};
use rustix::process::Signal;
use std::{os::unix::net::UnixDatagram, time::Duration};

/// Only a program without any message waits this long.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Reads messages until one contains this line. Earlier messages are dropped.
fn wait_for(socket: &UnixDatagram, line: &str) {
    let mut buffer = [0; 4_096];
    loop {
        let length = socket.recv(&mut buffer).unwrap();
        let said = std::str::from_utf8(&buffer[..length]).unwrap();
        if said.lines().any(|said| said == line) {
            return;
        }
    }
}

#[test]
fn serve_tells_supervisor_ready_alive_and_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    let mut command = throng();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(directory.path().join("data"));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "600000");
    let served = Served::spawn(command);
    wait_for(&socket, "READY=1");
    wait_for(&socket, "WATCHDOG=1");
    wait_for(&socket, "WATCHDOG=1");
    served.signal(Signal::TERM);
    wait_for(&socket, "STOPPING=1");
    assert!(served.ended().0.success());
}

#[test]
fn serve_goes_on_without_supervisor_that_cannot_be_reached() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = throng();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(directory.path().join("data"));
    command.env("NOTIFY_SOCKET", directory.path().join("nobody"));
    let served = Served::spawn(command);
    served.signal(Signal::TERM);
    let (status, said) = served.ended();
    assert!(status.success() && said.contains("NOTIFY_SOCKET"), "{said}");
}

#[test]
fn health_tells_ready_service_from_one_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), &[]);
    let (own, admin) = (served.address.to_string(), served.admin.to_string());
    for (arguments, word) in [
        (&["health", &own][..], "ready\n"),
        (&["health", &admin], "ready\n"),
        (&["health", "--live", &admin], "live\n"),
    ] {
        let asked = run(arguments);
        assert!(asked.status.success(), "{asked:?}");
        assert_eq!(String::from_utf8(asked.stdout).unwrap(), word);
    }
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());
    assert_refused(&run(&["health", &own]), &["cannot reach", &own]);
}
