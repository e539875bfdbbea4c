//! A run: a service on a journal of its own, with load and one fault. At the end the history is checked.

use super::{
    attacks,
    check::{self, Findings},
    cluster::Member,
    disk::SmallDisk,
    history,
    kind::{Ground, Kind},
    load::{Load, Operation, PATIENCE, SECTIONS, seats},
    namespaces::Namespaces,
    network::Network,
    proxies::Proxies,
    restore::Backup,
    shim::Shim,
};
use anyhow::{Context as _, bail, ensure};
use clap::{ValueEnum as _, builder::PossibleValue};
use rustix::process::Signal;
use servers::{Postgres, PostgresOptions};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};
use throng_app::Durability;

use crate::{
    http_client::{self, ANSWER_WAIT, Connection},
    service::{Launch, Service, end_of, program},
};

/// The pause between two checks of a condition that the engine brings about by itself.
const PAUSE: Duration = Duration::from_millis(2);
/// The time after which the leases of ended nodes are over, even on a busy machine.
const LEASES: Duration = Duration::from_secs(15);
/// The memory limit of a service.
pub(super) const MEMORY_MEGABYTES: u64 = 64;
const DISK_MEGABYTES: u64 = 192;
/// The free bytes of a disk that is to be filled up. They are few, so that the service has reserved little when the disk is full, and much comes free
/// when there is room again.
const LEFT_BYTES: u64 = 56 << 20;
const POSTGRES_DISK_MEGABYTES: u64 = 320;
/// The used keys that are repeated.
const ASKED_AGAIN: usize = 200;
/// The used keys that are used for other commands.
const ASKED_OTHERWISE: usize = 20;

/// A section that nobody changes.
pub(super) const IDLE: &str = "idle";

/// The common settings of all runs.
pub(super) struct Setting<'a> {
    pub(super) scratch: &'a Path,
    pub(super) clients: u32,
    pub(super) durability: Durability,
    pub(super) seed: u64,
}

/// The definition of an outage, from a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outage {
    /// The outage ends when a change is acknowledged that was sent after this moment. The fault was over then.
    Since(u64),
    /// The outage is the longest time without an acknowledged change after this moment.
    Within(u64),
    /// The outage ends when each section has acknowledged a change that was sent after this moment.
    Each(u64),
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) acknowledged: u64,
    pub(super) reads: u64,
    pub(super) findings: Findings,
    pub(super) recovery: Option<Duration>,
}

pub(super) struct Run<'a> {
    pub(super) random: fastrand::Rng,
    pub(super) launch: Launch,
    /// The service; `None` while it is down.
    pub(super) service: Option<Service>,
    /// The nodes of a cluster. Then there is no single service.
    pub(super) members: Vec<Member>,
    pub(super) load: Load,
    pub(super) findings: Findings,
    pub(super) shim: Option<Shim>,
    pub(super) postgres: Option<&'a mut Postgres>,
    pub(super) backup: Option<Backup>,
    pub(super) disk: Option<&'a SmallDisk>,
    pub(super) network: Option<&'a Network>,
    pub(super) directory: PathBuf,
}

/// Makes a run of this kind.
pub(super) fn make(kind: Kind, setting: &Setting, postgres: Option<&mut Postgres>) -> anyhow::Result<Outcome> {
    let directory = setting.scratch.join(format!("{}-{}", kind.name(), setting.seed));
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let disk = match kind.ground() {
        Ground::SmallDisk => {
            let disk = SmallDisk::create(&directory, DISK_MEGABYTES)?;
            if kind != Kind::Power {
                disk.fill(LEFT_BYTES)?;
            }
            Some(disk)
        }
        Ground::SmallPostgres => Some(SmallDisk::create(&directory, POSTGRES_DISK_MEGABYTES)?),
        _ => None,
    };
    let network = match (kind.ground(), &postgres) {
        (Ground::Namespaces, _) => Some(Network::Namespaces(Namespaces::create()?)),
        (Ground::Proxies, Some(server)) => Some(Network::Proxies(Proxies::start(server.port())?)),
        _ => None,
    };
    // Dropped before the disk it stands on and the network it listens in.
    let mut own_server = match (&disk, &network, kind.ground()) {
        (Some(disk), _, Ground::SmallPostgres) => Some(small_server(disk, kind, &directory)?),
        (_, Some(Network::Namespaces(own)), _) => Some(Postgres::start(PostgresOptions {
            network: Some(own.of_database()),
            ..PostgresOptions::default()
        })?),
        _ => None,
    };
    let result = begin(
        kind,
        setting,
        &directory,
        (disk.as_ref(), network.as_ref()),
        own_server.as_mut().or(postgres),
    )
    .and_then(|run| run.finish(kind));
    drop(own_server);
    drop((disk, network));
    let is_clean = matches!(&result, Ok(outcome) if outcome.findings.is_clean());
    if is_clean {
        let _ = fs::remove_dir_all(&directory);
    }
    result.with_context(|| {
        format!(
            "{} with seed {}, kept in {}",
            kind.name(),
            setting.seed,
            directory.display()
        )
    })
}

fn small_server(disk: &SmallDisk, kind: Kind, directory: &Path) -> anyhow::Result<Postgres> {
    let small = [("max_wal_size", "'64MB'"), ("min_wal_size", "'32MB'")];
    let settings = small.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Postgres::start(PostgresOptions {
        settings: settings.to_vec(),
        directory: Some(disk.root.clone()),
        wal_directory: (kind == Kind::PgFull).then(|| directory.to_owned()),
        ..PostgresOptions::default()
    })?)
}

fn begin<'a>(
    kind: Kind,
    setting: &Setting,
    directory: &Path,
    (disk, network): (Option<&'a SmallDisk>, Option<&'a Network>),
    postgres: Option<&'a mut Postgres>,
) -> anyhow::Result<Run<'a>> {
    let schema = format!("run_{}_{}", kind.name().replace('-', "_"), setting.seed);
    let place = match (&postgres, &disk) {
        (Some(server), _) => format!("{}?schema={schema}&lease=1s", server.url("postgres")),
        (None, Some(disk)) => format!("file:{}", disk.root.join("data").display()),
        (None, None) => format!("file:{}", directory.join("data").display()),
    };
    let shim = match kind.ground() {
        Ground::Shim => Some(Shim::build(directory)?),
        _ => None,
    };
    let mut arguments = arguments(setting.durability);
    if matches!(kind, Kind::AttackConnections | Kind::Attacks) {
        arguments.extend([
            "--connections".into(),
            attacks::connections_max(setting.clients as usize).to_string(),
        ]);
    }
    let launch = Launch {
        app: "registration",
        place,
        arguments,
        environment: shim.as_ref().map_or_else(|| Ok(Vec::new()), Shim::environment)?,
        log: directory.join("service.log"),
        within: None,
    };
    let members = match (network, &postgres) {
        (Some(network), Some(server)) => Member::start_apart(&launch, directory, network, (server, &schema))?,
        _ if kind.ground() == Ground::Cluster => Member::start_all(&launch, directory)?,
        _ => Vec::new(),
    };
    let service = match members.is_empty() {
        true => Some(launch.start()?),
        false => None,
    };
    let address = match &service {
        Some(service) => service.address,
        None => Member::first_address(&members)?,
    };
    open_sections(address)?;
    // Names are longer if a disk is to be filled.
    let name_bytes = if disk.is_some() && kind != Kind::Power { 200 } else { 0 };
    let run = Run {
        random: fastrand::Rng::with_seed(setting.seed),
        load: Load::start(address, setting.clients, setting.seed, name_bytes)?,
        launch,
        service,
        members,
        findings: Findings::default(),
        shim,
        postgres,
        backup: None,
        disk,
        network,
        directory: directory.to_owned(),
    };
    if !run.members.is_empty() {
        run.tell_addresses();
    }
    Ok(run)
}

pub(super) fn arguments(durability: Durability) -> Vec<String> {
    let durability = durability.to_possible_value();
    let durability = durability.as_ref().map_or("fsync", PossibleValue::get_name);
    let memory = MEMORY_MEGABYTES.to_string();
    let arguments = ["--checkpoint", "1", "--memory", &memory, "--durability", durability];
    arguments.map(str::to_owned).to_vec()
}

pub(super) fn open_sections(address: SocketAddr) -> anyhow::Result<()> {
    let mut connection = Connection::open(address, ANSWER_WAIT)?;
    let idle = http_client::post(&format!("/api/section/{IDLE}/open"), None, r#"{"capacity":1}"#);
    connection.ask(&idle)?;
    for section in 0..SECTIONS {
        let body = serde_json::json!({ "capacity": seats(section) }).to_string();
        let answer = connection.ask(&http_client::post(
            &format!("/api/section/S{section}/open"),
            None,
            &body,
        ))?;
        ensure!(answer.status == 200, "opening a section was answered {}", answer.status);
    }
    Ok(())
}

impl Run<'_> {
    fn finish(mut self, kind: Kind) -> anyhow::Result<Outcome> {
        self.go_on(300..2_000);
        self.until("the load begins", |run| {
            run.load.shared.acknowledged.load(Ordering::Relaxed) > 0
        })?;
        let outage = self.fault(kind)?;
        self.open_what_is_lost()?;
        let (Outage::Since(moment) | Outage::Within(moment) | Outage::Each(moment)) = outage;
        self.until("it serves again", |run| run.load.shared.serves_since(moment))?;
        self.go_on(200..800);
        if !self.members.is_empty() {
            self.settle();
        }
        let reads = self.load.shared.reads.load(Ordering::Relaxed);
        let Self {
            load,
            service,
            members,
            launch,
            mut findings,
            mut random,
            backup,
            ..
        } = self;
        let operations = load.stop();
        let unanswered = operations
            .iter()
            .filter(|operation| operation.answered.is_none() && operation.key().is_some());
        for operation in unanswered {
            findings.other(format!("never answered: {:?}", operation.asked));
        }
        let service = match service {
            Some(service) => service,
            None => Member::end_all_but_one(members)?,
        };
        let mut again = check::check(&operations, &history::fetch(service.address)?);
        // The kill loses everything that was only in memory.
        service.kill();
        let service = launch.start()?;
        let histories = history::fetch(service.address)?;
        again.or(check::check(&operations, &histories));
        findings.add(again);
        if let Some(backup) = backup {
            findings.add(backup.check(&launch, &operations, &histories, &mut random)?);
        }
        ask_again(&operations, &service, random, &mut findings)?;
        service.end()?;
        verify(&launch, &mut findings)?;
        Ok(Outcome {
            acknowledged: operations
                .iter()
                .filter(|operation| operation.is_acknowledged_change())
                .count() as u64,
            reads,
            findings,
            recovery: recovery(outage, &operations),
        })
    }

    /// Opens the sections anew if even they are lost. The clients continue with them, and the checker reports the loss.
    fn open_what_is_lost(&self) -> anyhow::Result<()> {
        let Some(service) = &self.service else { return Ok(()) };
        let first = Connection::open(service.address, ANSWER_WAIT)?.ask(&http_client::get("/api/section/S0"));
        match first {
            Ok(answer) if answer.status == 404 => open_sections(service.address),
            _ => Ok(()),
        }
    }

    /// Lets the load continue for a random time in this range.
    pub(super) fn go_on(&mut self, milliseconds: std::ops::Range<u64>) {
        thread::sleep(Duration::from_millis(self.random.u64(milliseconds)));
    }

    pub(super) fn now(&self) -> u64 {
        self.load.shared.now()
    }

    /// Waits for a condition that must come true without a person.
    pub(super) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !holds(self) {
            if begun.elapsed() > PATIENCE {
                bail!(
                    "never came true in {} s: {what}; the service's log ends: {}",
                    PATIENCE.as_secs(),
                    end_of(&self.launch.log)
                );
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    pub(super) fn service(&self) -> anyhow::Result<&Service> {
        self.service.as_ref().context("the service runs")
    }

    pub(super) fn kill(&mut self) {
        if let Some(service) = self.service.take() {
            service.kill();
        }
    }

    /// Starts the service again and tells the clients its address.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let service = loop {
            match self.launch.start() {
                // A node could not release its lease. It runs out first.
                Err(error) if error.to_string().contains("serves this journal") && begun.elapsed() < LEASES => {
                    thread::sleep(PAUSE);
                }
                started => break started?,
            }
        };
        self.load.shared.set_addresses(&[service.address]);
        self.service = Some(service);
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.service()?.signal(signal);
        Ok(())
    }
}

/// Returns the duration of an outage.
pub(super) fn recovery(outage: Outage, operations: &[Operation]) -> Option<Duration> {
    let acknowledged = operations.iter().filter(|operation| operation.is_acknowledged_change());
    let nanos = match outage {
        Outage::Since(moment) => {
            let after = acknowledged.filter(|operation| operation.sent >= moment);
            after.filter_map(|operation| operation.answered).min()? - moment
        }
        Outage::Each(moment) => {
            let mut first = std::collections::BTreeMap::new();
            for operation in acknowledged.filter(|operation| operation.sent >= moment) {
                let answered = operation.answered.unwrap_or(u64::MAX);
                let earliest = first.entry(operation.section).or_insert(answered);
                *earliest = answered.min(*earliest);
            }
            first.into_values().max()? - moment
        }
        Outage::Within(moment) => {
            let mut times: Vec<u64> = acknowledged.filter_map(|operation| operation.answered).collect();
            times.sort_unstable();
            let pairs = times.windows(2).filter(|pair| pair[1] >= moment);
            pairs.map(|pair| pair[1] - pair[0].max(moment)).max()?
        }
    };
    Some(Duration::from_nanos(nanos))
}

/// Checks that a used key gets its first answer again, byte for byte, and that another command under this key is refused.
pub(super) fn ask_again(
    operations: &[Operation],
    service: &Service,
    mut random: fastrand::Rng,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let changes: Vec<&Operation> = operations
        .iter()
        .filter(|operation| operation.is_acknowledged_change())
        .collect();
    let mut connection = Connection::open(service.address, ANSWER_WAIT)?;
    for operation in random.choose_multiple(&changes, ASKED_AGAIN) {
        let answer = connection.ask(&operation.request())?;
        if (answer.status, &answer.body) != (operation.status, &operation.body) {
            let (then, now) = (
                String::from_utf8_lossy(&operation.body),
                String::from_utf8_lossy(&answer.body),
            );
            findings.other(format!(
                "{:?} was answered {then}, and again {} {now}",
                operation.asked, answer.status
            ));
        }
    }
    for operation in random.choose_multiple(&changes, ASKED_OTHERWISE) {
        let path = format!("/api/section/S{}/add", operation.section);
        let answer = connection.ask(&http_client::post(
            &path,
            operation.key().as_deref(),
            r#"{"student":"nobody"}"#,
        ))?;
        if answer.status != 422 {
            findings.other(format!(
                "another command under a used key was answered {}",
                answer.status
            ));
        }
    }
    Ok(())
}

/// Checks that `throng journal verify` finds the journal sound.
pub(super) fn verify(launch: &Launch, findings: &mut Findings) -> anyhow::Result<()> {
    if launch.arguments.iter().any(|argument| argument == "memory") {
        return Ok(());
    }
    let output = program("registration")?
        .args(["journal", "verify", &launch.place])
        .output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        findings.other(format!("journal verify: {}", String::from_utf8_lossy(&said).trim()));
    }
    Ok(())
}
