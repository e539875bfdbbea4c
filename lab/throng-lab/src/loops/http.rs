//! Loops of a service in its own process, behind the load generator's connections.

use anyhow::{Context as _, ensure};
use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};
use yardsticks::echo::EchoProcess;

use super::{Commits, LoopsArguments, Round, Subject};
use crate::{
    http_client::{ANSWER_WAIT, Connection, metrics},
    requests::{self, Students},
    yardstick,
};

/// A service for each number of loops.
pub(super) struct Services {
    by_loops: BTreeMap<u16, Service>,
    requests: usize,
}

struct Service {
    process: EchoProcess,
    students: Students,
}

impl Services {
    pub(super) fn start(data: &Path, sync_delay: Duration, arguments: &LoopsArguments) -> anyhow::Result<Self> {
        let mut by_loops = BTreeMap::new();
        for &loops in &arguments.loops {
            let mut command = yardstick("serve")?;
            command.arg("--data").arg(data.join(loops.to_string()));
            command.args(["--sync-delay", &format!("{}us", sync_delay.as_micros())]);
            let process = EchoProcess::start(command, usize::from(loops))?;
            requests::open_sections(process.address())?;
            let mut students = Students::default();
            // This round is not counted. It touches the memory and makes the journal's first segment.
            requests::add_students(process.address(), 64, arguments.requests.div_ceil(10), &mut students)?;
            by_loops.insert(loops, Service { process, students });
        }
        Ok(Self {
            by_loops,
            requests: arguments.requests,
        })
    }
}

impl Subject for Services {
    fn round(&mut self, loops: u16, clients: u32) -> anyhow::Result<Round> {
        let service = self.by_loops.get_mut(&loops).context("no service has so many loops")?;
        let (address, process) = (service.process.address(), service.process.id());
        let (commits, cpu, by_thread) = (
            read_commits(address)?,
            service.process.cpu_time()?,
            loops_ticks(process)?,
        );
        let report = requests::add_students(address, clients as usize, self.requests, &mut service.students)?;
        let cpu = service.process.cpu_time()?.saturating_sub(cpu);
        let elapsed_s = report.elapsed_nanos as f64 / 1e9;
        let (commits_per_s, commit_us) = read_commits(address)?.since(commits, elapsed_s);
        let ticks = loops_ticks(process)?.into_iter();
        let by_loop = ticks
            .map(|(name, ticks)| (ticks - by_thread.get(&name).unwrap_or(&0)) as f64)
            .collect();
        let at = |quantile| report.service.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Round {
            answered_per_s: report.throughput(),
            by_loop,
            p50_us: at(0.5),
            p99_us: at(0.99),
            worst_us: at(1.0),
            cpu_us: cpu.as_secs_f64() * 1e6 / self.requests as f64,
            commits_per_s,
            commit_us,
        })
    }
}

fn read_commits(address: SocketAddr) -> anyhow::Result<Commits> {
    let mut connection = Connection::open(address, ANSWER_WAIT).context("cannot connect")?;
    Ok(Commits::read(&metrics(&mut connection)?))
}

/// Returns the CPU of a process' loops so far, in clock ticks, by the names of their threads (proc(5), `task/*/stat`).
fn loops_ticks(process: u32) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut ticks = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let stat = std::fs::read_to_string(entry?.path().join("stat")).unwrap_or_default();
        if let Some((name, used)) = thread_ticks(&stat).filter(|(name, _)| is_loop(name)) {
            ticks.insert(name.to_owned(), used);
        }
    }
    ensure!(!ticks.is_empty(), "process {process} has no thread of a loop");
    Ok(ticks)
}

fn is_loop(name: &str) -> bool {
    let number = name.strip_prefix("throng-http-");
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns a thread's name, and `utime` + `stime` (fields 14 and 15; field 2 is the name, in parentheses).
fn thread_ticks(stat: &str) -> Option<(&str, u64)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some((name, user + kernel))
}

#[cfg(test)]
mod tests {
    use super::{is_loop, thread_ticks};

    #[test]
    fn a_loops_thread_is_known_by_its_name() {
        let stat = "7 (throng-http-1) S 1 7 7 0 -1 4194304 93 0 0 0 12 30 0 0 20 0 4 0 1 2 3";
        assert_eq!(thread_ticks(stat), Some(("throng-http-1", 42)));
        assert!(is_loop("throng-http-1") && !is_loop("throng-http-watch") && !is_loop("throng-engine"));
        assert_eq!(thread_ticks(""), None);
    }
}
