//! A standby, an old primary or a backup replaces the database, with or without its last commits.
//!
//! Answers that rest on commits which the database lost cannot hold. So answers from before the service was whole again are only checked for this:
//! each acknowledged change is in the history, or `throng journal loss` names its key. It must not name any other key. Each loss is an error in a log
//! and a trouble of a service, and nothing else is.

use super::{
    check::{self, Findings},
    cluster::{NODES, answers, of_node},
    database::signal,
    history::{self, History},
    load::{Asked, Load, Operation, PATIENCE},
    run::{Outage, Outcome, Setting, arguments, ask_again, open_sections, recovery, verify},
};
use crate::{
    http_client::{self, ANSWER_WAIT, Connection},
    service::{Launch, Service, end_of, program},
};
use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use servers::{Postgres, PostgresOptions, Stop};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    ops::Range,
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(20);
/// The time after which no request of a paused load is in flight.
const QUIET: Duration = Duration::from_millis(1_500);
const SCHEMA: &str = "run";
/// The words in a log and in a trouble that report a loss.
const LOST: &str = "acknowledged commits are lost";

/// The kind of server that replaces the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A standby that commits wait for.
    Synchronous,
    /// A standby that commits do not wait for.
    Asynchronous,
    /// A standby that received nothing for a while.
    Lagging,
    /// A standby that commits wait for, but that has not replayed them.
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
    /// True if commits wait for the standby, so that none is lost.
    fn is_synchronous(self) -> bool {
        matches!(self, Self::Synchronous | Self::Paused)
    }

    /// True if the replacing server received nothing for a while.
    fn lags(self) -> bool {
        !self.is_synchronous() && self != Self::Asynchronous
    }
}

/// The variant of a run. Successive seeds choose different ones, until all have been chosen.
#[derive(Clone, Copy, Debug)]
struct Plan {
    way: Way,
    is_idle: bool,
    nodes: usize,
    /// True if the service stops on a loss, and an operator action lets it continue.
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
    acknowledged: String,
    missing: u64,
    commits: Vec<LostCommit>,
}

#[derive(Deserialize)]
struct LostCommit {
    keys: Vec<String>,
}

/// The parts of the answer of `/health/ready` that concern losses.
#[derive(Default, Deserialize)]
struct Health {
    reason: Option<String>,
    troubles: Vec<String>,
}

/// The keys of commits that were named as lost. A change that was requested and answered within a key's time must be missing, because no other server
/// has executed it.
type Named = BTreeMap<String, Range<u64>>;

/// The times and names that the checker uses.
struct Known {
    /// The moment when the service was whole again.
    since: u64,
    named: Named,
    /// The moment before which an acknowledged change may be lost without being named.
    forgotten: u64,
}

struct Failover {
    plan: Plan,
    random: fastrand::Rng,
    /// The servers in the order of the URL: the primary, then its replacements.
    servers: Vec<Postgres>,
    launches: Vec<Launch>,
    services: Vec<Service>,
    load: Load,
    findings: Findings,
    /// All keys that were named as lost so far.
    named: Named,
    /// The last acknowledged commit of every loss that was found.
    lost: BTreeSet<String>,
    /// The moments when another server took over.
    replaced: Vec<u64>,
    /// The moment when a process ended whose commits the next server lacks. Their contents are unknown from then on.
    forgotten: Option<u64>,
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
            primary.until("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")?;
        }
        servers.insert(0, primary);
        let mut alone = Launch {
            app: "registration",
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
            named: Named::new(),
            lost: BTreeSet::new(),
            replaced: Vec::new(),
            forgotten: None,
        })
    }

    fn run(mut self) -> anyhow::Result<Outcome> {
        self.go_on(500..1_500);
        if self.plan.way == Way::Restored {
            // A backup of this moment replaces the first one, on the port that is in the URL.
            self.servers[1] = self.servers[0].backup_at(self.servers[1].port())?;
        }
        self.replace(0, 1)?;
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
        self.finish(since)
    }

    /// Ends a server, and waits until everything is served by another in its place.
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
        let lags_since = self.load.shared.now();
        self.go_on(200..1_200);
        if self.plan.is_idle {
            self.load.shared.is_paused.store(true, Ordering::Relaxed);
            thread::sleep(QUIET);
        }
        // Only time limits distinguish a server that hangs from one that is gone.
        let mut hangs = self.random.u8(..4) == 0 && self.plan.way != Way::SwitchedBack;
        let is_lost = self.plan.way.lags() && self.load.shared.serves_since(lags_since);
        let ended = self.load.shared.now();
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
        self.replaced.push(moment);
        if self.plan.stops && self.is_stopped(is_lost)? {
            if std::mem::take(&mut hangs) {
                // An operator ends the old server before accepting the loss. Otherwise each connection of a start would wait for it.
                self.end_frozen(from);
            }
            self.accept()?;
        } else if self.plan.is_idle && is_lost {
            let place = self.launches[0].place.clone();
            self.wait("a loss is found while nobody asks", || {
                Ok(losses(&place).is_ok_and(|losses| !losses.is_empty()))
            })?;
        }
        let all = addresses(&self.services);
        self.wait("each node answers", || Ok(all.iter().all(|address| answers(*address))))?;
        self.load.shared.is_paused.store(false, Ordering::Relaxed);
        let shared = self.load.shared.clone();
        self.wait("it serves again", || Ok(shared.serves_since(moment)))?;
        // Idle nodes have noticed by now, too.
        self.go_on(1_000..2_000);
        if hangs {
            self.end_frozen(from);
        }
        if (self.plan.way, to) == (Way::SwitchedBack, 0) {
            // Changes that were lost at first are back. Changes that were repeated on the other server are back, too.
            self.named.values_mut().for_each(|time| *time = 0..0);
        }
        let begun = match self.replaced.first() {
            Some(first) if (self.plan.way, to) == (Way::SwitchedBack, 0) => *first,
            _ => 0,
        };
        let found = losses(&self.launches[0].place)?;
        if !self.plan.stops {
            self.is_told(&found)?;
        }
        for lost in found {
            self.findings_of(&lost, from);
            for key in lost.commits.into_iter().flat_map(|commit| commit.keys) {
                self.named.entry(key).or_insert(begun..ended);
            }
        }
        Ok(())
    }

    fn end_frozen(&mut self, server: usize) {
        let server = &mut self.servers[server];
        signal(&server.processes(), Signal::KILL);
        server.stop(Stop::Immediate);
    }

    /// Checks that each loss is an error in a log and a trouble of a service, and that no other loss is reported.
    fn is_told(&mut self, found: &[Lost]) -> anyhow::Result<()> {
        let names = |text: &String, at: &str| text.contains(&format!("commit {at} "));
        let mut told = Vec::new();
        self.wait("each loss is told as an error and a trouble", || {
            let errors: Vec<String> = self.launches.iter().flat_map(|launch| errors(&launch.log)).collect();
            let health = self.services.iter().map(|service| health(service.address));
            let troubles = health.flat_map(|health| health.troubles);
            let troubles: Vec<String> = troubles.filter(|trouble| trouble.contains(LOST)).collect();
            let is_in = |all: &[String], at: &str| all.iter().any(|text| names(text, at));
            let mut all = found.iter().map(|lost| &*lost.acknowledged);
            let is_told = all.all(|at| is_in(&errors, at) && is_in(&troubles, at));
            told = [errors, troubles].concat();
            Ok(is_told)
        })?;
        self.lost.extend(found.iter().map(|lost| lost.acknowledged.clone()));
        told.retain(|text| !self.lost.iter().any(|at| names(text, at)));
        for text in told {
            self.findings
                .other(format!("a loss is told that is not recorded: {text}"));
        }
        Ok(())
    }

    fn findings_of(&mut self, lost: &Lost, from: usize) {
        let may_be_forgotten = self.forgotten.is_some() && from > 0;
        if lost.missing != lost.commits.len() as u64 && !may_be_forgotten {
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

    /// Returns true if the service stops because of a loss, and false if it serves because nothing is lost.
    fn is_stopped(&self, is_lost: bool) -> anyhow::Result<bool> {
        let moment = self.load.shared.now();
        let (all, place) = (addresses(&self.services), self.launches[0].place.clone());
        let mut stopped = false;
        let shared = self.load.shared.clone();
        let is_idle = self.plan.is_idle;
        self.wait("it stops or serves", || {
            stopped = losses(&place).is_ok_and(|losses| !losses.is_empty());
            let serves = match is_idle {
                true => shared.now() - moment > 5_000_000_000 && all.iter().all(|address| answers(*address)),
                false => shared.serves_since(moment),
            };
            Ok(stopped || serves && !is_lost)
        })?;
        Ok(stopped)
    }

    /// Does the operator action that accepts the loss and lets the service continue.
    fn accept(&mut self) -> anyhow::Result<()> {
        let all = addresses(&self.services);
        // A node that has not noticed the loss yet may know of further commits.
        self.wait("each node says that it stops because of a loss", || {
            Ok(all.iter().all(|address| {
                let reason = health(*address).reason.unwrap_or_default();
                reason.contains("are lost") || reason.contains("rolled back")
            }))
        })?;
        self.is_told(&losses(&self.launches[0].place)?)?;
        if all.iter().any(|address| answers(*address)) {
            self.findings.other("a node answers although commits are lost");
        }
        // The other nodes continue by themselves.
        self.services.remove(0).kill();
        let launch = self.launches[0].clone();
        if launch.start().is_ok() {
            self.findings
                .other("a service started on a journal with a loss that nobody has accepted");
        }
        let mut accepting = launch.clone();
        accepting.arguments.extend(["--on-loss", "continue"].map(str::to_owned));
        accepting.start()?.end()?;
        if matches!(self.plan.way, Way::PromotedTwice | Way::SwitchedBack) {
            self.forgotten = Some(self.load.shared.now());
        }
        self.services.insert(0, launch.start()?);
        self.load.shared.set_addresses(&addresses(&self.services));
        Ok(())
    }

    fn finish(self, since: u64) -> anyhow::Result<Outcome> {
        let Self {
            plan,
            random,
            servers,
            launches,
            services,
            load,
            mut findings,
            named,
            replaced,
            forgotten,
            lost: _,
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
        let known = Known {
            since,
            named,
            forgotten: forgotten.unwrap_or_default(),
        };
        let mut again = checked(&operations, &history::fetch(last.address)?, &known);
        last.kill();
        let launch = launches[0].clone();
        let last = launch.start()?;
        let histories = history::fetch(last.address)?;
        again.or(checked(&operations, &histories, &known));
        findings.add(again);
        let present = keys(&histories);
        let acknowledged = operations.iter().filter(|operation| operation.is_acknowledged_change());
        let (there, lost): (Vec<&Operation>, Vec<&Operation>) = acknowledged
            .clone()
            .partition(|operation| is_present(operation, &present));
        // Lost changes are left out, because they would be executed again.
        let kept: Vec<Operation> = there
            .into_iter()
            .filter(|operation| !is_early(operation, since))
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
        let lost = lost.iter().filter(|operation| has_changed(operation));
        let keys: BTreeSet<String> = lost.filter_map(|operation| operation.key()).collect();
        eprintln!(
            "    failover: {plan:?}: {} acknowledged changes were lost by the database, and {} of them are named",
            keys.len(),
            keys.iter().filter(|key| known.named.contains_key(*key)).count()
        );
        let longest = replaced
            .into_iter()
            .map(|moment| recovery(Outage::Since(moment), &operations));
        Ok(Outcome {
            acknowledged: acknowledged.count() as u64,
            reads,
            findings,
            recovery: longest.max().flatten(),
        })
    }

    fn wait(&self, what: &str, holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        wait_for(what, holds).with_context(|| {
            let ends = self
                .launches
                .iter()
                .map(|launch| format!("the service's log ends: {}", end_of(&launch.log)));
            ends.collect::<Vec<_>>().join("; ")
        })
    }

    fn go_on(&mut self, milliseconds: Range<u64>) {
        thread::sleep(Duration::from_millis(self.random.u64(milliseconds)));
    }
}

/// Returns true if the answer came before the service was whole again. It may rest on lost commits.
fn is_early(operation: &Operation, since: u64) -> bool {
    operation.answered.is_some_and(|answered| answered < since)
}

/// Returns true for the leaving of a student whose joining is lost. It changed nothing, and is acknowledged.
fn is_of_lost_student(operation: &Operation, present: &BTreeSet<String>) -> bool {
    let is_lost = |student: &String| !present.contains(&format!("add-{student}"));
    matches!(&operation.asked, Asked::Drop(student) if is_lost(student)) && !has_changed(operation)
}

/// Returns true if the answer reports a change.
fn has_changed(operation: &Operation) -> bool {
    let said = String::from_utf8_lossy(&operation.body);
    [r#""change":"added""#, r#""change":"dropped""#]
        .iter()
        .any(|change| said.contains(change))
}

fn is_present(operation: &Operation, present: &BTreeSet<String>) -> bool {
    operation.key().is_some_and(|key| present.contains(&key))
}

/// Returns the keys of all changes in the histories.
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

/// Checks the histories against the answers since then, and earlier answers against the named losses.
fn checked(operations: &[Operation], histories: &[History], known: &Known) -> Findings {
    let Known {
        since,
        ref named,
        forgotten,
    } = *known;
    let present = keys(histories);
    let mut findings = Findings::default();
    let by_key: BTreeMap<String, &Operation> = operations
        .iter()
        .filter_map(|operation| Some((operation.key()?, operation)))
        .collect();
    for (key, operation) in &by_key {
        let may_be_lost = is_early(operation, since) && !is_early(operation, forgotten);
        let is_lost = operation.is_acknowledged_change() && may_be_lost && !present.contains(key);
        if is_lost && !named.contains_key(key) && !is_of_lost_student(operation, &present) {
            findings.lost(format!(
                "{:?} was acknowledged, is lost, and is not named",
                operation.asked
            ));
        }
    }
    for (key, time) in named {
        let Some(operation) = by_key.get(key) else {
            findings.other(format!("{key} is named as lost, and nobody asked for it"));
            continue;
        };
        // A change that was not answered before the old server's end may be there, because it was executed again.
        if operation.invoked >= time.start && is_early(operation, time.end) && present.contains(key) {
            findings.other(format!("{key} is named as lost, and is there"));
        }
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
                // The change may have been made or not.
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
    format!("{url}?schema={SCHEMA}&lease=1s&connect_timeout=4")
}

fn addresses(services: &[Service]) -> Vec<SocketAddr> {
    services.iter().map(|service| service.address).collect()
}

/// Repeats `throng journal loss` until a server answers it.
fn losses(place: &str) -> anyhow::Result<Vec<Lost>> {
    let begun = Instant::now();
    loop {
        let output = program("registration")?
            .args(["journal", "loss", "--json", place])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            let found: Losses = serde_json::from_slice(&output.stdout).context("journal loss says something else")?;
            return Ok(found.losses);
        }
        ensure!(begun.elapsed() < PATIENCE, "journal loss: {}", said.trim());
        thread::sleep(PAUSE);
    }
}

/// Returns the losses that a service's log reports as errors.
fn errors(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let is_loss = |line: &&str| line.contains("ERROR") && line.contains(LOST);
    text.lines().filter(is_loss).map(str::to_owned).collect()
}

/// Returns the losses that a service reports, or none if it does not answer.
fn health(address: SocketAddr) -> Health {
    let asked =
        Connection::open(address, ANSWER_WAIT).and_then(|mut open| open.ask(&http_client::get("/health/ready")));
    let health = asked.map(|answer| serde_json::from_slice(&answer.body));
    health.map(Result::unwrap_or_default).unwrap_or_default()
}

/// Checks that a journal with a loss is not reported as sound again.
fn is_unsound(launch: &Launch, findings: &mut Findings) -> anyhow::Result<()> {
    let output = program("registration")?
        .args(["journal", "verify", &launch.place])
        .output()?;
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

    #[test]
    fn checker_finds_losses_without_a_name_and_names_without_a_loss() {
        let operation = |student: &str| Operation {
            section: 1,
            asked: Asked::Add(student.into()),
            invoked: 10,
            sent: 10,
            answered: Some(20),
            status: 200,
            body: br#"{"change":"added","taken":1}"#.to_vec(),
        };
        let operations = [operation("kept"), operation("gone")];
        let history = History {
            section: 1,
            events: vec![
                history::Event::new(1, "Opened", None),
                history::Event::new(2, "Added", Some("kept")),
            ],
            taken: 1,
            roster: BTreeSet::from(["kept".into()]),
        };
        let found = |named: &[(&str, u64)]| {
            let named = named
                .iter()
                .map(|(key, until)| ((*key).to_owned(), 0..*until))
                .collect();
            let known = Known {
                since: 50,
                named,
                forgotten: 0,
            };
            let findings = checked(&operations, std::slice::from_ref(&history), &known);
            (findings.lost, findings.other)
        };
        assert_eq!(found(&[("add-gone", 30)]), (0, 0));
        assert_eq!(found(&[("add-other", 30)]).0, 1);
        assert_eq!(found(&[("add-gone", 30), ("add-other", 30)]), (0, 1));
        assert_eq!(found(&[("add-gone", 30), ("add-kept", 30)]), (0, 1));
        // Answered after that server's end, so the key may be there again.
        assert_eq!(found(&[("add-gone", 30), ("add-kept", 15)]), (0, 0));
    }
}
