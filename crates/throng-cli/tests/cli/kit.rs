//! The program as a process, and input for it.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};
use throng_testing::{Client, until};

pub(crate) fn throng() -> Command {
    let mut command = Command::new(super::PROGRAM);
    command.env_remove("RUST_LOG").env("NO_COLOR", "1");
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    throng().args(arguments).output().unwrap()
}

/// Checks that the program failed with one sentence that contains these parts.
pub(crate) fn assert_refused(output: &Output, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let is_of_program = |line: &&str| line.split_once(": ").is_some_and(|(program, _)| !program.contains(' '));
    let sentences: Vec<&str> = said.lines().filter(is_of_program).collect();
    assert_eq!(sentences.len(), 1, "{said}");
    for part in parts {
        assert!(sentences[0].contains(part), "no {part:?} in {said}");
    }
    assert!(!said.contains("panicked") && !said.contains("backtrace"), "{said}");
}

/// `throng serve` as a separate process.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// The address of the listener for administration.
    pub(crate) admin: SocketAddr,
    /// The lines of its standard error so far, written by the reader.
    said: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Served {
    pub(crate) fn start(data: &Path, more: &[&str]) -> Self {
        let mut command = throng();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(more);
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let Some(address) = line
            .trim()
            .strip_prefix("http")
            .and_then(|rest| Some(rest.split_once("://")?.1))
        else {
            let output = child.wait_with_output().unwrap();
            panic!("it did not start: {}", String::from_utf8_lossy(&output.stderr));
        };
        let address = address.parse().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        let admin = loop {
            let begin = first.len();
            assert_ne!(stderr.read_line(&mut first).unwrap(), 0, "{first}");
            if let Some((_, admin)) = first[begin..].split_once("administration and metrics on http") {
                let admin = admin.split_once("://").unwrap().1;
                break admin.trim().parse().unwrap();
            }
        };
        let said = Arc::new(Mutex::new(first));
        let lines = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines() {
                *lines.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        Self {
            child,
            address,
            admin,
            said,
            reader,
        }
    }

    /// The lines of its standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits for the process to end. Returns its status and its standard error.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        until("its standard error has ended", || self.reader.is_finished());
        (status, self.said())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if the process has already ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// SplitMix64: a generator determined by its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Writes a small trace. Returns its two files.
pub(crate) fn small_trace(directory: &Path) -> (String, String) {
    let path = |name: &str| directory.join(name).display().to_string();
    let (capacities, requests) = (path("capacities.txt"), path("requests.txt"));
    let output = run(&[
        "trace",
        "generate",
        "--one-in",
        "60",
        "--capacities",
        &capacities,
        "--requests",
        &requests,
    ]);
    assert!(output.status.success(), "{output:?}");
    (capacities, requests)
}
