//! A standby, an old primary or a backup takes the place of the database, with all it has and without what it lacks.
//!
//! Answers that rest on commits which the database lost cannot hold. So the answers from before the service was whole again are only held to
//! this: each acknowledged change is in the history, or `throng journal loss` names its key; and it names no other.

use super::{
    check::{self, Findings},
    cluster::{NODES, answers, of_node},
    database::signal,
    history::{self, History},
    load::{Asked, Load, Operation, PATIENCE},
    run::{Outcome, Setting, arguments, ask_again, open_sections, verify},
};
use crate::bench::service::{Launch, Service, end_of, program};
use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use servers::{Postgres, PostgresOptions, Stop};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(20);
/// After this long nothing of a load that pauses is on its way.
const QUIET: Duration = Duration::from_millis(1_500);
const SCHEMA: &str = "run";

/// The server that takes the database's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A standby that commits wait for.
    Synchronous,
    /// A standby that commits do not wait for.
    Asynchronous,
    /// A standby that got nothing for a while.
    Lagging,
    /// A standby that commits wait for, and that has not replayed them.
    Paused,
    /// Two lagging standbys, one after the other.
    PromotedTwice,
    /// A lagging standby, and then the old primary again.
    SwitchedBack,
    /// A base backup, on the same timeline.
    Restored,
}

const WAYS: [Way; 7] = [
    Way::Synchronous,
    Way::Asynchronous,
    Way::Lagging,
    Way::Paused,
    Way::PromotedTwice,
    Way::SwitchedBack,
    Way::Restored,
];

impl Way {
    /// Commits wait for the standby: none is lost.
    fn is_synchronous(self) -> bool {
        matches!(self, Self::Synchronous | Self::Paused)
    }
}

/// The parts of a run; each seed is another one, until all were had.
#[derive(Clone, Copy, Debug)]
struct Plan {
    way: Way,
    is_idle: bool,
    nodes: usize,
    /// The service stops where commits are lost, and a person has it go on.
    stops: bool,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let at = usize::try_from(seed).unwrap_or_default();
        let rest = at / WAYS.len();
        Self {
            way: WAYS[at % WAYS.len()],
            is_idle: rest % 2 == 1,
            nodes: if rest / 2 % 2 == 1 { NODES } else { 1 },
            stops: rest / 4 % 2 == 1,
        }
    }
}

/// The answer of `throng journal loss --json`.
#[derive(Deserialize)]
struct Losses {
    losses: Vec<Lost>,
}

#[derive(Deserialize)]
struct Lost {
    missing: u64,
    commits: Vec<LostCommit>,
}

#[derive(Deserialize)]
struct LostCommit {
    keys: Vec<String>,
}

struct Failover {
    plan: Plan,
    random: fastrand::Rng,
    /// In the order of the URL: the primary, then what takes its place.
    servers: Vec<Postgres>,
    launches: Vec<Launch>,
    services: Vec<Service>,
    load: Load,
    findings: Findings,
    /// Keys in commits that were named as lost on any server.
    named: BTreeSet<String>,
}

pub(super) fn make(setting: &Setting) -> anyhow::Result<Outcome> {
    let plan = Plan::of(setting.seed);
    let directory = setting.scratch.join(format!("failover-{}", setting.seed));
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let result = Failover::begin(plan, setting, &directory).and_then(Failover::run);
    if matches!(&result, Ok(outcome) if outcome.findings.is_clean()) {
        let _ = fs::remove_dir_all(&directory);
    }
    result.with_context(|| format!("{plan:?} with seed {}, kept in {}", setting.seed, directory.display()))
}

impl Failover {
    fn begin(plan: Plan, setting: &Setting, directory: &Path) -> anyhow::Result<Self> {
        let primary = Postgres::start(PostgresOptions::default())?;
        let mut servers = Vec::new();
        match plan.way {
            Way::Restored => servers.push(primary.backup()?),
            Way::PromotedTwice => {
                servers.push(primary.standby("one")?);
                servers.push(primary.standby("two")?);
            }
            _ => servers.push(primary.standby("one")?),
        }
        if plan.way.is_synchronous() {
            primary.sql("ALTER SYSTEM SET synchronous_standby_names TO 'one'")?;
            primary.sql("SELECT pg_reload_conf()")?;
            let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            wait_for("the standby is synchronous", || Ok(primary.sql(is_sync)?.trim() == "1"))?;
        }
        servers.insert(0, primary);
        let mut alone = Launch {
            command: vec!["serve".into()],
            place: place(&servers),
            arguments: arguments(setting.durability),
            environment: Vec::new(),
            log: directory.join("service.log"),
            within: None,
        };
        if !plan.stops {
            alone.arguments.extend(["--on-loss", "continue"].map(str::to_owned));
        }
        let launches: Vec<Launch> = match plan.nodes {
            1 => vec![alone],
            nodes => (0..nodes).map(|node| of_node(&alone, directory, node)).collect(),
        };
        let services = launches.iter().map(Launch::start).collect::<anyhow::Result<Vec<_>>>()?;
        let addresses = addresses(&services);
        open_sections(addresses[0])?;
        let load = Load::start(addresses[0], setting.clients, setting.seed, 0)?;
        load.shared.set_addresses(&addresses);
        Ok(Self {
            plan,
            random: fastrand::Rng::with_seed(setting.seed),
            servers,
            launches,
            services,
            load,
            findings: Findings::default(),
            named: BTreeSet::new(),
        })
    }

    fn run(mut self) -> anyhow::Result<Outcome> {
        self.go_on(500..1_500);
        if self.plan.way == Way::Restored {
            // Of this moment, on the port that is in the URL.
            self.servers[1] = self.servers[0].backup_at(self.servers[1].port())?;
        }
        let begun = self.load.shared.now();
        self.replace(0, 1)?;
        let recovery = Duration::from_nanos(self.load.shared.now() - begun);
        match self.plan.way {
            Way::PromotedTwice => {
                self.go_on(500..1_000);
                self.replace(1, 2)?;
            }
            Way::SwitchedBack => {
                self.go_on(500..1_000);
                self.replace(1, 0)?;
            }
            _ => {}
        }
        let since = self.load.shared.now();
        self.go_on(500..1_500);
        self.finish(since, recovery)
    }

    /// Ends a server, and waits until all is served by another in its place.
    fn replace(&mut self, from: usize, to: usize) -> anyhow::Result<()> {
        match self.plan.way {
            Way::Lagging | Way::SwitchedBack if from == 0 => self.servers[1].hold_back()?,
            Way::PromotedTwice if from == 0 => {
                self.servers[2].hold_back()?;
                self.go_on(100..500);
                self.servers[1].hold_back()?;
            }
            Way::Paused => drop(self.servers[1].sql("SELECT pg_wal_replay_pause()")?),
            _ => {}
        }
        self.go_on(200..1_200);
        if self.plan.is_idle {
            self.load.shared.is_paused.store(true, Ordering::Relaxed);
            thread::sleep(QUIET);
        }
        // One that hangs is not told from one that is gone, but by limits.
        let hangs = self.random.u8(..4) == 0 && self.plan.way != Way::SwitchedBack;
        let old = &mut self.servers[from];
        match hangs {
            true => signal(&old.processes(), Signal::STOP),
            false if self.random.bool() => {
                signal(&old.processes(), Signal::KILL);
                old.stop(Stop::Immediate);
            }
            false => old.stop(Stop::Immediate),
        }
        self.go_on(0..500);
        match (self.plan.way, to) {
            (Way::Restored, _) | (Way::SwitchedBack, 0) => self.servers[to].resume()?,
            _ => self.servers[to].promote()?,
        }
        let moment = self.load.shared.now();
        if self.plan.stops && self.is_stopped()? {
            self.accept()?;
        }
        let all = addresses(&self.services);
        let log = self.launches[0].log.clone();
        wait_for_service("each node answers", &log, || {
            Ok(all.iter().all(|address| answers(*address)))
        })?;
        self.load.shared.is_paused.store(false, Ordering::Relaxed);
        let shared = self.load.shared.clone();
        wait_for_service("it serves again", &log, || Ok(shared.serves_since(moment)))?;
        // Who was idle has noticed by now, too.
        self.go_on(1_000..2_000);
        if hangs {
            let old = &mut self.servers[from];
            signal(&old.processes(), Signal::KILL);
            signal(&old.processes(), Signal::CONT);
            old.stop(Stop::Immediate);
        }
        for lost in losses(&self.launches[0].place)? {
            self.findings_of(&lost);
            self.named
                .extend(lost.commits.into_iter().flat_map(|commit| commit.keys));
        }
        Ok(())
    }

    fn findings_of(&mut self, lost: &Lost) {
        if lost.missing != lost.commits.len() as u64 {
            self.findings.other(format!(
                "{} commits are lost, and {} of them are named",
                lost.missing,
                lost.commits.len()
            ));
        }
        if self.plan.way.is_synchronous() {
            self.findings.other(format!(
                "{} commits are said to be lost that were on the standby",
                lost.missing
            ));
        }
    }

    /// Tells whether the service stops because of a loss; or serves, since nothing is lost.
    fn is_stopped(&mut self) -> anyhow::Result<bool> {
        let moment = self.load.shared.now();
        let (all, place) = (addresses(&self.services), self.launches[0].place.clone());
        let mut stopped = false;
        let shared = self.load.shared.clone();
        let is_idle = self.plan.is_idle;
        wait_for_service("it stops or serves", &self.launches[0].log.clone(), || {
            stopped = losses(&place).is_ok_and(|losses| !losses.is_empty());
            let serves = match is_idle {
                true => shared.now() - moment > 5_000_000_000 && all.iter().all(|address| answers(*address)),
                false => shared.serves_since(moment),
            };
            Ok(stopped || serves)
        })?;
        Ok(stopped)
    }

    /// A person has looked at what is lost, and has the service go on.
    fn accept(&mut self) -> anyhow::Result<()> {
        let all = addresses(&self.services);
        let log = self.launches[0].log.clone();
        wait_for_service("nothing is answered once commits are lost", &log, || {
            Ok(!all.iter().any(|address| answers(*address)))
        })?;
        for service in std::mem::take(&mut self.services) {
            service.kill();
        }
        let refused = self.launches[0].start();
        if refused.is_ok() {
            self.findings
                .other("a service started on a journal with a loss that nobody has accepted");
        }
        drop(refused);
        let accepting = self.launches.iter().map(|launch| {
            let mut launch = launch.clone();
            launch.arguments.extend(["--on-loss", "continue"].map(str::to_owned));
            launch.start()
        });
        self.services = accepting.collect::<anyhow::Result<_>>()?;
        self.load.shared.set_addresses(&addresses(&self.services));
        Ok(())
    }

    fn finish(self, since: u64, recovery: Duration) -> anyhow::Result<Outcome> {
        let Self {
            plan,
            random,
            servers,
            launches,
            services,
            load,
            mut findings,
            named,
        } = self;
        let reads = load.shared.reads.load(Ordering::Relaxed);
        let operations = load.stop();
        let is_open = |operation: &&Operation| operation.answered.is_none() && operation.key().is_some();
        for operation in operations.iter().filter(is_open) {
            findings.other(format!("never answered: {:?}", operation.asked));
        }
        let mut running = services.into_iter();
        let last = running.next().context("a service runs")?;
        running.try_for_each(Service::end)?;
        let mut again = checked(&operations, &history::fetch(last.address)?, since, &named);
        last.kill();
        let mut launch = launches[0].clone();
        if plan.stops {
            launch.arguments.extend(["--on-loss", "continue"].map(str::to_owned));
        }
        let last = launch.start()?;
        let histories = history::fetch(last.address)?;
        again.or(checked(&operations, &histories, since, &named));
        findings.add(again);
        let present = keys(&histories);
        let acknowledged = operations.iter().filter(|operation| operation.is_acknowledged_change());
        let lost = acknowledged
            .clone()
            .filter(|operation| !is_present(operation, &present))
            .count();
        // Those that were lost are executed again.
        let kept: Vec<Operation> = acknowledged
            .clone()
            .filter(|operation| is_present(operation, &present) && !is_early(operation, since))
            .cloned()
            .collect();
        ask_again(&kept, &last, random, &mut findings)?;
        last.end()?;
        let on_last = losses(&launch.place)?;
        match on_last.is_empty() {
            true => verify(&launch, &mut findings)?,
            false => is_unsound(&launch, &mut findings)?,
        }
        drop(servers);
        eprintln!("    failover: {plan:?}: {lost} acknowledged changes were lost by the database, and are named");
        Ok(Outcome {
            acknowledged: acknowledged.count() as u64,
            reads,
            findings,
            recovery: Some(recovery),
        })
    }

    fn go_on(&mut self, milliseconds: std::ops::Range<u64>) {
        thread::sleep(Duration::from_millis(self.random.u64(milliseconds)));
    }
}

/// Answered before the service was whole again: it may rest on what was lost.
fn is_early(operation: &Operation, since: u64) -> bool {
    operation.answered.is_some_and(|answered| answered < since)
}

/// The change of a student whose joining is lost: after that it changes nothing, and is acknowledged.
fn is_of_lost_student(operation: &Operation, present: &BTreeSet<String>) -> bool {
    matches!(&operation.asked, Asked::Drop(student) if !present.contains(&format!("add-{student}")))
}

fn is_present(operation: &Operation, present: &BTreeSet<String>) -> bool {
    operation.key().is_some_and(|key| present.contains(&key))
}

/// The keys of all changes in the histories.
fn keys(histories: &[History]) -> BTreeSet<String> {
    let events = histories.iter().flat_map(|history| &history.events);
    let key = |event: &history::Event| {
        let student = event.student.as_deref()?;
        match &*event.name {
            "Added" => Some(format!("add-{student}")),
            "Dropped" => Some(format!("drop-{student}")),
            _ => None,
        }
    };
    events.filter_map(key).collect()
}

/// Holds the histories to what was answered since, and what was answered before to what is named as lost.
fn checked(operations: &[Operation], histories: &[History], since: u64, named: &BTreeSet<String>) -> Findings {
    let present = keys(histories);
    let mut findings = Findings::default();
    let by_key: BTreeMap<String, &Operation> = operations
        .iter()
        .filter_map(|operation| Some((operation.key()?, operation)))
        .collect();
    for (key, operation) in &by_key {
        let is_lost = operation.is_acknowledged_change() && is_early(operation, since) && !present.contains(key);
        if is_lost && !named.contains(key) && !is_of_lost_student(operation, &present) {
            findings.lost(format!(
                "{:?} was acknowledged, is lost, and is not named",
                operation.asked
            ));
        }
    }
    // One that is there was executed again, or has come back with an old primary; whatever is named was asked for.
    for key in named.iter().filter(|key| !by_key.contains_key(*key)) {
        findings.other(format!("{key} is named as lost, and nobody asked for it"));
    }
    if named.is_empty() {
        findings.add(check::check(operations, histories));
        return findings;
    }
    let since_then: Vec<Operation> = operations
        .iter()
        .map(
            |operation| match is_early(operation, since) || is_of_lost_student(operation, &present) {
                false => operation.clone(),
                // It may have come to something, or not.
                true => Operation {
                    answered: None,
                    ..operation.clone()
                },
            },
        )
        .collect();
    findings.add(check::check(&since_then, histories));
    findings
}

fn place(servers: &[Postgres]) -> String {
    let hosts: Vec<String> = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port()))
        .collect();
    let url = servers[0].url("postgres").replace(&hosts[0], &hosts.join(","));
    format!("{url}?schema={SCHEMA}&lease=1s&connect_timeout=1")
}

fn addresses(services: &[Service]) -> Vec<SocketAddr> {
    services.iter().map(|service| service.address).collect()
}

fn losses(place: &str) -> anyhow::Result<Vec<Lost>> {
    let output = program()?.args(["journal", "loss", "--json", place]).output()?;
    ensure!(
        output.status.success(),
        "journal loss: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let found: Losses = serde_json::from_slice(&output.stdout).context("journal loss says something else")?;
    Ok(found.losses)
}

/// A journal with a loss is never called sound again.
fn is_unsound(launch: &Launch, findings: &mut Findings) -> anyhow::Result<()> {
    let output = program()?.args(["journal", "verify", &launch.place]).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let others = said
        .lines()
        .filter(|line| line.contains("checksum") || line.contains("rows are missing"));
    for line in others {
        findings.other(format!("journal verify: {line}"));
    }
    if output.status.success() || !said.contains("accepted loss") {
        findings.other(format!("journal verify does not name the loss: {}", said.trim()));
    }
    Ok(())
}

fn wait_for(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            bail!("never came true in {} s: {what}", PATIENCE.as_secs());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn wait_for_service(what: &str, log: &Path, holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    wait_for(what, holds).with_context(|| format!("the service's log ends: {}", end_of(log)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_cover_each_way_idle_and_busy_alone_and_as_nodes() {
        let plans: BTreeSet<String> = (0..28)
            .map(|seed| {
                let Plan {
                    way, is_idle, nodes, ..
                } = Plan::of(seed);
                format!("{way:?} {is_idle} {nodes}")
            })
            .collect();
        assert_eq!(plans.len(), 28);
        assert!(!Plan::of(0).stops && Plan::of(28).stops);
    }
}
