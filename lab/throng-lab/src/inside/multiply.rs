//! Entities that multiply. The engine stops them, and other entities hardly notice.

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::json;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use throng::Options;
use throng_app::{
    AccessLogArguments, App, Durability, JournalLocation, LimitArguments, OnLoss, SecurityArguments, Service, Settings,
    TraceArguments,
};
use throng_cli::client::Client;

use super::player::{self, Play, Player};
use crate::{
    http_client::{self, ANSWER_WAIT, Connection},
    pico_requests::{self, event},
};

/// The time for which the other entities are measured beforehand.
const BEFORE: Duration = Duration::from_secs(5);
/// The time after which an entity counts as never stopped.
const PATIENCE: Duration = Duration::from_secs(120);
/// The period of one client's commands to other entities.
const EVERY: Duration = Duration::from_millis(2);

const RULESET: &str = r#"ruleset bench_multiply {
  rule twice {
    select when bench twice
    every {
      event:send({ "eci": event:attrs{"to"}, "domain": "bench", "type": "twice", "attrs": { "to": meta:eci } })
      event:send({ "eci": event:attrs{"to"}, "domain": "bench", "type": "twice", "attrs": { "to": meta:eci } })
    }
  }
}"#;

/// The kind of multiplication.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sort {
    Messages,
    Pair,
    Timers,
    Pico,
    TwoPicos,
}

impl Sort {
    pub(super) const ALL: [Self; 5] = [Self::Messages, Self::Pair, Self::Timers, Self::Pico, Self::TwoPicos];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Pair => "pair",
            Self::Timers => "timers",
            Self::Pico => "pico",
            Self::TwoPicos => "two-picos",
        }
    }

    fn is_pico(self) -> bool {
        matches!(self, Self::Pico | Self::TwoPicos)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MultiplyRow {
    pub(super) sort: &'static str,
    /// The time from its first command to its quarantine; `None` if it was not stopped.
    pub(super) stopped_s: Option<f64>,
    pub(super) commits: u64,
    pub(super) journal_mb: f64,
    /// The latency of a command to another entity that is alone on the service.
    pub(super) p99_before_ms: f64,
    /// The latency of such a command while the other entity multiplies, up to its quarantine.
    pub(super) p99_ms: f64,
    pub(super) longest_ms: f64,
}

pub(super) fn measure(sort: Sort, scratch: &Path) -> anyhow::Result<MultiplyRow> {
    let rulesets = scratch.join("rulesets");
    fs::create_dir_all(&rulesets)?;
    fs::write(rulesets.join("bench_multiply.krl"), RULESET)?;
    let app = match sort.is_pico() {
        true => picos::with(picos::Settings {
            files: Some(rulesets.clone()),
            ..picos::Settings::default()
        }),
        false => registration::app().engine(player::with_players),
    };
    let service = start(app, scratch)?;
    let client = Client::new(service.address, 1)?;
    let asked = Asked::prepare(sort, &client, &rulesets)?;
    let before = waits(service.address, &asked.others, |since| since >= BEFORE)?;
    let (commits, bytes) = (
        service.engine.metrics().commits(),
        service.engine.metrics().commit_bytes(),
    );
    let begun = Instant::now();
    asked.begin(sort, &service, &client)?;
    let is_over = AtomicBool::new(false);
    let (stopped, meanwhile) = thread::scope(|scope| {
        let others = scope.spawn(|| waits(service.address, &asked.others, |_| is_over.load(Ordering::Relaxed)));
        let stopped = until_stopped(&service, begun);
        is_over.store(true, Ordering::Relaxed);
        let meanwhile = others
            .join()
            .map_err(|_| anyhow::anyhow!("the others' client panicked"));
        anyhow::Ok((stopped?, meanwhile??))
    })?;
    // Work in flight ends within this time.
    thread::sleep(Duration::from_secs(1));
    let metrics = service.engine.metrics();
    let line = MultiplyRow {
        sort: sort.name(),
        stopped_s: stopped.map(|after| after.as_secs_f64()),
        commits: metrics.commits() - commits,
        journal_mb: (metrics.commit_bytes() - bytes) as f64 / 1e6,
        p99_before_ms: percentile(&before, 99),
        p99_ms: percentile(&meanwhile, 99),
        longest_ms: percentile(&meanwhile, 100),
    };
    service.stop();
    Ok(line)
}

fn start(app: App, scratch: &Path) -> anyhow::Result<Service> {
    let settings = Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        place: JournalLocation::Directory(scratch.join("journal")),
        durability: Durability::Fsync,
        sync_delay: Duration::ZERO,
        accept_loss: None,
        as_primary: false,
        calls: None,
        on_loss: OnLoss::Stop,
        archive: None,
        loops: Some(1),
        limits: LimitArguments::default(),
        security: SecurityArguments::default(),
        access_log: AccessLogArguments::default(),
        traces: TraceArguments::default(),
        cluster: None,
        release: 0,
        drain_grace: Duration::ZERO,
        engine: Options::default(),
    };
    Service::start(app, &settings)
}

/// The requests to the entity that multiplies and to the others.
struct Asked {
    /// The channels of the picos that multiply.
    channels: Vec<String>,
    /// A request to another entity.
    others: Vec<u8>,
}

impl Asked {
    fn prepare(sort: Sort, client: &Client, rulesets: &Path) -> anyhow::Result<Self> {
        if !sort.is_pico() {
            let mut connection = Connection::open(client.address(), ANSWER_WAIT)?;
            let opened = connection.ask(&http_client::post(
                "/api/section/A/open",
                None,
                r#"{"capacity":4000000}"#,
            ))?;
            ensure!(opened.status == 200, "opening a section was answered {}", opened.status);
            return Ok(Self {
                channels: Vec::new(),
                others: http_client::post("/api/section/A/add", None, r#"{"student":"ann"}"#),
            });
        }
        let root = pico_requests::root(client)?;
        let url = format!("file://{}/bench_multiply.krl", rulesets.canonicalize()?.display());
        let mut channels = Vec::new();
        for name in ["one", "two"] {
            let child = event(&root, "wrangler", "new_child_request", &json!({ "name": name }));
            pico_requests::ask(client, &child)?;
        }
        let console = pico_requests::console(client)?;
        let shown = pico_requests::ask(client, &pico_requests::query(&console, pico_requests::UI, "box"))?;
        for child in shown["children"].as_array().context("the root has no children")? {
            let child = child.as_str().context("a child's channel is a text")?;
            let own = pico_requests::own_channel(client, child)?;
            let install = event(&own, "wrangler", "install_ruleset_request", &json!({ "url": url }));
            pico_requests::ask(client, &install)?;
            channels.push(own);
        }
        let others = http_client::post(&format!("/c/{console}/event-wait/engine_ui/box"), None, r#"{"x":1}"#);
        Ok(Self { channels, others })
    }

    fn begin(&self, sort: Sort, service: &Service, client: &Client) -> anyhow::Result<()> {
        let play = |first: &str, play| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(service.engine.entity::<Player>(first).ask(play))?;
            anyhow::Ok(())
        };
        match sort {
            Sort::Messages => play("bad", Play::Divide { other: "bad".into() }),
            Sort::Pair => play("bad", Play::Divide { other: "worse".into() }),
            Sort::Timers => play("bad", Play::Alarm {}),
            Sort::Pico | Sort::TwoPicos => {
                let (own, other) = match sort {
                    Sort::Pico => (&self.channels[0], &self.channels[0]),
                    _ => (&self.channels[0], &self.channels[1]),
                };
                pico_requests::ask(client, &event(own, "bench", "twice", &json!({ "to": other })))?;
                Ok(())
            }
        }
    }
}

/// Returns the time when the engine has stopped an entity, or `None` if it does not.
fn until_stopped(service: &Service, begun: Instant) -> anyhow::Result<Option<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    while begun.elapsed() < PATIENCE {
        if !runtime.block_on(service.engine.quarantined(1))?.is_empty() {
            return Ok(Some(begun.elapsed()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// Repeats a request until `is_over`, and returns the sorted milliseconds of the answers.
fn waits(address: SocketAddr, request: &[u8], is_over: impl Fn(Duration) -> bool) -> anyhow::Result<Vec<f64>> {
    let mut connection = Connection::open(address, ANSWER_WAIT)?;
    let mut waits = Vec::new();
    let begun = Instant::now();
    while waits.is_empty() || !is_over(begun.elapsed()) {
        let asked = Instant::now();
        // A refusal is an answer, too. It comes at once and is counted like any other.
        connection.ask(request)?;
        waits.push(asked.elapsed().as_secs_f64() * 1e3);
        thread::sleep(EVERY.saturating_sub(asked.elapsed()));
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}
