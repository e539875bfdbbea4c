//! Tests of the service's program as a process: its commands and their output.

#![cfg(unix)]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use throng_testing::Client;

fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_registration"));
    command
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .env("NO_COLOR", "1");
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    program(directory).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(directory: &Path) -> Self {
        let mut child = program(directory)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("http://").parse().unwrap();
        Self { child, address }
    }

    fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Stops the program gracefully, and returns its log.
    fn stop(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {log}");
        log
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if the process has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_program_serves_and_shows_its_default_directory() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let opened = served.client().post("/api/section/S/open", None, r#"{"capacity":30}"#);
    assert_eq!(opened.unwrap().status, 200);
    let log = served.stop();
    for line in [
        "DURABILITY fsync",
        "registration in data/registration, ready",
        "finishing what is in flight",
        "ended",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let records = run(directory.path(), &["journal", "inspect", "--entity", "section/S"]);
    assert!(text(&records.stdout).contains("Opened"), "{records:?}");
    let verified = run(directory.path(), &["journal", "verify"]);
    assert!(verified.status.success(), "{verified:?}");

    let checked = run(directory.path(), &["check"]);
    assert!(checked.status.success(), "{checked:?}");
    assert!(
        text(&checked.stdout).contains("checked 1 events of 1 entities"),
        "{checked:?}"
    );

    let served = Served::start(directory.path());
    let beside = run(directory.path(), &["check"]);
    assert!(beside.status.success(), "{beside:?}");
    let found = served.client().get("/api/section/S").unwrap();
    assert!(found.body.contains("30"), "{found:?}");
    served.stop();
}

#[test]
fn help_names_the_program_and_all_that_can_be_set() {
    let directory = tempfile::tempdir().unwrap();
    let help = text(&run(directory.path(), &["--help"]).stdout);
    assert!(help.contains("Usage: registration <COMMAND>"), "{help}");
    let help = text(&run(directory.path(), &["serve", "--help"]).stdout);
    for part in [
        "--journal",
        "--durability",
        "--listen",
        "THRONG_ADMIN_TOKEN",
        "THRONG_ADMIN_LISTEN",
        "THRONG_TOKENS",
        "THRONG_JWT_KEYS",
        "THRONG_TLS_CERT",
        "THRONG_TLS_CLIENT_CA",
        "THRONG_HOSTS",
        "THRONG_ORIGINS",
        "RUST_LOG",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    let help = text(&run(directory.path(), &["journal", "verify", "--help"]).stdout);
    assert!(help.contains("[default: data/registration]"), "{help}");
}

#[test]
fn each_failure_of_the_program_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let refused = run(directory.path(), &["journal", "verify"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.starts_with("registration: ") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(
        run(directory.path(), &["serve", "--listen", "x"]).status.code(),
        Some(2)
    );
}
