//! Tests whether the process that holds a lease has ended: only then nobody has to wait for the lease. A lost session proves nothing,
//! because a restarting server, or an operator, ends the sessions of living processes.

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::{fmt, fs, str::FromStr};

/// The identity of a process, unique over all machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    id: i32,
    /// When it began, in the kernel's ticks since the machine did.
    began: u64,
    /// The process namespace its id is of.
    namespace: String,
    /// The id of the present running of the machine.
    boot: String,
    /// The machine's name, for people.
    host: String,
}

impl Process {
    /// Returns the present process; `None` if the system does not tell all of it.
    pub(super) fn own() -> Option<Self> {
        let id = i32::try_from(std::process::id()).ok()?;
        let word = |path: &str| Some(fs::read_to_string(path).ok()?.trim().replace(' ', "_"));
        Some(Self {
            id,
            began: Stat::of(id)?.began,
            namespace: fs::read_link("/proc/self/ns/pid").ok()?.display().to_string(),
            boot: word("/proc/sys/kernel/random/boot_id")?,
            host: word("/proc/sys/kernel/hostname")?,
        })
    }

    /// True if the process is known to have ended. That is never known of one on another machine, or in another container.
    pub(super) fn has_ended(&self, own: &Self) -> bool {
        if (&self.boot, &self.namespace) != (&own.boot, &own.namespace) {
            return false;
        }
        let Some(pid) = Pid::from_raw(self.id) else {
            return false;
        };
        match test_kill_process(pid) {
            Err(Errno::SRCH) => true,
            // Another process may have its number by now.
            _ => Stat::of(self.id).is_some_and(|stat| stat.began != self.began || stat.is_over(self.id)),
        }
    }
}

/// The system's entry for a process.
struct Stat {
    state: String,
    began: u64,
}

impl Stat {
    fn of(id: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name before it may contain anything.
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?.to_owned();
        let began = fields.nth(18)?.parse().ok()?;
        Some(Self { state, began })
    }

    /// True if it runs no more, and only waits to be looked at.
    fn is_over(&self, id: i32) -> bool {
        let threads = fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count);
        (self.state == "Z" || self.state == "X") && threads <= 1
    }
}

/// True if an engine with these unexpired leases may still answer: it is another process, which is not known to have ended.
pub(crate) fn may_answer(processes: Option<Vec<Option<String>>>) -> bool {
    let own = Process::own();
    let has_ended = |process: &Option<String>| {
        let process: Option<Process> = process.as_ref().and_then(|text| text.parse().ok());
        matches!((&own, process), (Some(own), Some(process)) if process == *own || process.has_ended(own))
    };
    processes.is_some_and(|processes| !processes.iter().all(has_ended))
}

/// Writes a process as a lease keeps it.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            began,
            namespace,
            boot,
            host,
        } = self;
        write!(f, "{id} {began} {namespace} {boot} {host}")
    }
}

impl FromStr for Process {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [id, began, namespace, boot, host] = parts[..] else {
            return Err(());
        };
        Ok(Self {
            id: id.parse().map_err(drop)?,
            began: began.parse().map_err(drop)?,
            namespace: namespace.to_owned(),
            boot: boot.to_owned(),
            host: host.to_owned(),
        })
    }
}

pub(super) fn told(process: Option<&str>) -> String {
    match process.map(str::parse::<Process>) {
        Some(Ok(Process { id, host, .. })) => format!("process {id} on {host}"),
        _ => "a process that did not say its name".into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_read_as_it_is_written_and_lives() {
        let own = Process::own().unwrap();
        assert_eq!(own.to_string().parse(), Ok(own.clone()));
        assert!(!own.has_ended(&own));
        assert!(told(Some(&own.to_string())).starts_with(&format!("process {} on ", own.id)));
    }

    #[test]
    fn a_killed_process_has_ended_before_and_after_its_wait() {
        let own = Process::own().unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let killed = Process {
            id,
            began: Stat::of(id).unwrap().began,
            ..own.clone()
        };
        assert!(!killed.has_ended(&own));
        child.kill().unwrap();
        while !killed.has_ended(&own) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(killed.has_ended(&own));
    }

    #[test]
    fn a_reused_process_number_has_ended_but_a_remote_one_has_not() {
        let own = Process::own().unwrap();
        let earlier = Process {
            began: own.began - 1,
            ..own.clone()
        };
        assert!(earlier.has_ended(&own));
        let elsewhere = Process {
            boot: "another".into(),
            ..earlier.clone()
        };
        let inside = Process {
            namespace: "pid:[1]".into(),
            ..earlier
        };
        assert!(!elsewhere.has_ended(&own) && !inside.has_ended(&own));
    }
}
