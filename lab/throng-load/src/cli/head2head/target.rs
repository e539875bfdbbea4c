//! A target of a comparison, and its process.

use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Stop, Target};

/// The longest wait for a connection to a command's port.
const START: Duration = Duration::from_secs(60);
/// The longest wait for a command's end.
const END: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const CONNECT: Duration = Duration::from_millis(200);

/// A target as on the command line: `name=NAME,url=URL[,http2=STREAMS][,pid=PID][,command=COMMAND]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetArgument {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The streams on a connection, if it uses HTTP/2.
    pub(crate) http2: Option<usize>,
    pub(crate) pid: Option<u32>,
    pub(crate) command: Option<String>,
}

impl FromStr for TargetArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut name, mut url, mut http2, mut pid, mut command) = (None, None, None, None, None);
        let mut rest = text;
        while !rest.is_empty() {
            let (key, after) = rest
                .split_once('=')
                .ok_or_else(|| format!("`{rest}` has no `=`: write name=…,url=…[,http2=…][,pid=…][,command=…]"))?;
            if key.trim() == "command" {
                command = Some(after.to_string());
                break;
            }
            let (value, next) = after.split_once(',').unwrap_or((after, ""));
            match key.trim() {
                "name" => name = Some(value.to_string()),
                "url" => url = Some(value.to_string()),
                "http2" => {
                    http2 = Some(
                        value
                            .parse()
                            .map_err(|_| format!("`{value}` is no number of streams"))?,
                    )
                }
                "pid" => pid = Some(value.parse().map_err(|_| format!("`{value}` is no process id"))?),
                other => return Err(format!("no field `{other}`: there are name, url, http2, pid, command")),
            }
            rest = next;
        }
        match (name, url) {
            (Some(name), Some(url)) if !name.is_empty() && !url.is_empty() => Ok(TargetArgument {
                name,
                url,
                http2,
                pid,
                command,
            }),
            _ => Err("a target needs name=… and url=…".into()),
        }
    }
}

/// A running command with all processes that it started. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a command through `sh` and waits until its target accepts connections.
    pub(crate) fn start(name: &str, command: &str, target: &Target, stop: &Stop) -> anyhow::Result<Self> {
        if reachable(target) {
            bail!(
                "cannot start `{name}`: somebody listens at {} already; end it, or leave the command out",
                target.base()
            );
        }
        let child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start the command of `{name}`"))?;
        let mut process = Process { child };
        let begun = Instant::now();
        while !reachable(target) {
            if let Ok(Some(status)) = process.child.try_wait() {
                bail!(
                    "the command of `{name}` ended before it listened at {}: {status}",
                    target.base()
                );
            }
            if begun.elapsed() > START || stop.is_set() {
                bail!(
                    "the command of `{name}` does not listen at {} after {:.0} s",
                    target.base(),
                    begun.elapsed().as_secs_f64()
                );
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        // Fails only if the group has ended.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END {
            std::thread::sleep(LOOK_EVERY);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

fn reachable(target: &Target) -> bool {
    let connect = |address| TcpStream::connect_timeout(address, CONNECT).is_ok();
    target.addresses.iter().any(connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_all_that_follows() {
        let target: TargetArgument = "name=new one,url=http://127.0.0.1:1/a=b,command=serve --set a=1,b=2"
            .parse()
            .unwrap();
        assert_eq!(
            (target.name.as_str(), target.url.as_str()),
            ("new one", "http://127.0.0.1:1/a=b")
        );
        assert_eq!(target.command.as_deref(), Some("serve --set a=1,b=2"));
        assert_eq!("name=a,url=b,pid=7".parse::<TargetArgument>().unwrap().pid, Some(7));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("http://127.0.0.1", "no `=`"),
            ("name=a", "needs"),
            ("url=b", "needs"),
            ("name=a,url=b,pid=x", "process id"),
            ("name=a,url=b,port=1", "no field `port`"),
        ] {
            let error = text.parse::<TargetArgument>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_command_that_ends_at_once_is_told() {
        let target = Target::resolve("http://127.0.0.1:1", false).unwrap();
        let error = Process::start("x", "false", &target, &Stop::new()).unwrap_err();
        assert!(error.to_string().contains("ended before it listened"), "{error}");
    }
}
