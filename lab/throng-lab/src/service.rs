//! The real program as a child process.

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// The time after which a process that starts or ends counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);
/// The bytes of a log's end that an error quotes.
const TOLD_BYTES: usize = 2_000;

/// The launch of a service.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The app of the program.
    pub(crate) app: &'static str,
    /// The journal, as `--journal` takes it.
    pub(crate) place: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// The file for its output.
    pub(crate) log: PathBuf,
    /// The namespace it runs in, if not that of this program.
    pub(crate) within: Option<Within>,
}

/// A network namespace by its name in `ip netns`, and an address in it to listen at.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(crate) namespace: String,
    pub(crate) address: IpAddr,
}

/// Returns the command of an app's program, which is this one under another name.
pub(crate) fn program(app: &str) -> anyhow::Result<Command> {
    program_within(app, None)
}

fn program_within(app: &str, namespace: Option<&str>) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = match namespace {
        None => Command::new(own),
        Some(namespace) => {
            // `ip` replaces itself with the program, so the process id stays the same.
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(own);
            command
        }
    };
    command.args(["app", app]);
    command.env_remove("RUST_LOG").env("NO_COLOR", "1").stdin(Stdio::null());
    Ok(command)
}

impl Launch {
    /// Starts the service and does not wait until it serves.
    pub(crate) fn spawn(&self) -> anyhow::Result<Service> {
        let said = OpenOptions::new().create(true).append(true).open(&self.log);
        let said: File = said.with_context(|| format!("cannot write {}", self.log.display()))?;
        let (namespace, address) = match &self.within {
            None => (None, IpAddr::from([127, 0, 0, 1])),
            Some(within) => (Some(&*within.namespace), within.address),
        };
        let mut command = program_within(self.app, namespace)?;
        command.arg("serve");
        if !self.arguments.iter().any(|argument| argument == "--listen") {
            command.args(["--listen", &SocketAddr::new(address, 0).to_string()]);
        }
        command
            .args(["--journal", &self.place])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(said);
        let mut child = command.spawn().context("cannot start the service")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let (sender, lines) = mpsc::channel();
        thread::Builder::new().name("first-line".into()).spawn(move || {
            let mut line = String::new();
            // A process that ends prints nothing, which is an empty line.
            let _ = BufReader::new(output).read_line(&mut line);
            let _ = sender.send(line);
        })?;
        Ok(Service {
            child,
            lines,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            log: self.log.clone(),
        })
    }

    /// Runs `throng cluster drain NAME` or a similar command on its journal, as a person does.
    pub(crate) fn ask_cluster(&self, what: &[&str]) -> anyhow::Result<()> {
        let done = program(self.app)?
            .arg("cluster")
            .args(what)
            .args(["--journal", &self.place])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(done.success(), "cluster {} ended with {done}", what.join(" "));
        Ok(())
    }

    /// Starts the service and waits until it serves.
    pub(crate) fn start(&self) -> anyhow::Result<Service> {
        let mut service = self.spawn()?;
        service.wait_until_served()?;
        Ok(service)
    }
}

pub(crate) struct Service {
    child: Child,
    lines: mpsc::Receiver<String>,
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

impl Service {
    pub(crate) fn wait_until_served(&mut self) -> anyhow::Result<()> {
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_default();
        match line.trim().strip_prefix("http://").map(str::parse) {
            Some(Ok(address)) => self.address = address,
            _ => bail!("the service does not start: {}", end_of(&self.log)),
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. Does nothing if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Sends `kill -9` and waits for the end.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        let status: ExitStatus = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "the service does not end: {}",
                end_of(&self.log)
            );
            thread::sleep(PAUSE);
        };
        ensure!(
            status.success(),
            "the service ended with {status}: {}",
            end_of(&self.log)
        );
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail only if the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the last lines of a service's log.
pub(crate) fn end_of(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TOLD_BYTES)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
