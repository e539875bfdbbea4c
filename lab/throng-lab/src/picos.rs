//! Many picos: the rate of making them over HTTP, the memory of each, the latency of an event, and the time of the next start.

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::ExitCode,
    time::Duration,
};
use throng::Options;
use throng_app::{
    AccessLogArguments, Durability, JournalLocation, LimitArguments, OnLoss, SecurityArguments, Service, Settings,
    TraceArguments,
};
use throng_load::Report;

use super::{Common, entities::resident_bytes, table::Table};
use throng_cli::client::Client;

use crate::{
    pico_requests::{UI, all, ask, console, event, own_channel, query, root},
    units::count,
};

/// The number of children that each parent gets.
const SIBLINGS: usize = 1_000;
/// The number of events to random picos.
const EVENTS: usize = 20_000;
/// The connections for making picos, and those for events: few, so that events do not wait for each other.
const CONNECTIONS: (usize, usize) = (64, 4);
/// The number of picos after which no more channels are asked for.
const KNOWN: usize = 100_000;

/// The number of requests that are prepared at a time. Their memory counts as the process's, too.
const AT_A_TIME: usize = 20_000;

/// A ruleset whose pico makes a child at each event, with the rulesets named in it.
const MAKER: &str = r#"ruleset bench_maker {
  rule make {
    select when bench make
    ctx:newPico(rulesets=event:attr("urls").map(function(url) { {"url": url, "config": {}} }))
  }
}"#;
const RULESETS: [(&str, &str); 2] = [
    (
        "bench_counter",
        r#"ruleset bench_counter {
  meta { shares count }
  global { count = function() { ent:count.defaultsTo(0) } }
  rule count { select when engine_ui box always { ent:count := ent:count.defaultsTo(0) + 1 } }
}"#,
    ),
    (
        "bench_pair",
        r#"ruleset bench_pair {
  rule pair { select when bench first then bench second send_directive("pair") }
}"#,
    ),
];

/// The measurement of picos.
#[derive(Debug, Args)]
pub(super) struct PicosArguments {
    #[command(flatten)]
    common: Common,
    /// Picos that are made, each with four channels and two rulesets.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    picos: u64,
    /// The failures that an acknowledged event survives: fsync (power loss) or os (the end of the process).
    #[arg(long, value_enum, default_value = "fsync")]
    durability: Durability,
}

#[derive(Debug, Serialize)]
struct Figures {
    picos: usize,
    created_per_s: f64,
    /// The growth of the process for an idle pico.
    bytes_each: f64,
    /// The growth of the engine's own count for it.
    counted_bytes_each: f64,
    event_p50_ms: f64,
    event_p99_ms: f64,
    start_s: f64,
}

pub(super) fn run(arguments: &PicosArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let figures = measure(&scratch.0, arguments)?;
    arguments.common.print(&json!({ "picos": figures }), || text(&figures));
    Ok(ExitCode::SUCCESS)
}

fn measure(scratch: &Path, arguments: &PicosArguments) -> anyhow::Result<Figures> {
    let picos = usize::try_from(arguments.picos)?;
    let urls = write_rulesets(scratch)?;
    let service = start(scratch, arguments)?;
    let client = Client::new(service.address, CONNECTIONS.0)?;
    let parents = parents(&client, picos.div_ceil(SIBLINGS), &urls)?;
    let make: Vec<_> = parents.iter().map(|(_, own)| own.as_str()).collect();
    let before = (resident_bytes()?, counted_bytes(&service)?);
    let made = create(&client, &make, picos, &urls[1..])?;
    let idle = idle_bytes(&service, before)?;
    let consoles = consoles(&client, &parents)?;
    let events = at_random(&Client::new(service.address, CONNECTIONS.1)?, &consoles)?;
    service.stop();
    let service = start(scratch, arguments)?;
    let start_s = service.recovery.as_secs_f64();
    service.stop();
    let at = |quantile| events.response.value_at_quantile(quantile) as f64 / 1e6;
    Ok(Figures {
        picos,
        created_per_s: picos as f64 / made.as_secs_f64(),
        bytes_each: idle.0 as f64 / picos as f64,
        counted_bytes_each: idle.1 as f64 / picos as f64,
        event_p50_ms: at(0.5),
        event_p99_ms: at(0.99),
        start_s,
    })
}

/// Writes the rulesets and returns their URLs, the maker's first.
fn write_rulesets(scratch: &Path) -> anyhow::Result<Vec<String>> {
    let folder = scratch.join("rulesets");
    fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let written = [("bench_maker", MAKER)].into_iter().chain(RULESETS);
    let write = written.map(|(name, source)| {
        let path = folder.join(format!("{name}.krl"));
        fs::write(&path, source)?;
        Ok(format!("file://{}", path.display()))
    });
    write.collect()
}

fn start(scratch: &Path, arguments: &PicosArguments) -> anyhow::Result<Service> {
    let app = picos::with(picos::Settings {
        files: Some(scratch.join("rulesets")),
        ..picos::Settings::default()
    });
    let settings = Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        place: JournalLocation::Directory(scratch.join("journal")),
        durability: arguments.durability,
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
        engine: Options {
            memory_bytes_max: 8 << 30,
            checkpoint_every: Duration::from_secs(2),
            ..Options::default()
        },
    };
    Service::start(app, &settings)
}

/// Makes the picos that make others. Returns the console channel and the own channel of each.
fn parents(client: &Client, count: usize, urls: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let root = root(client)?;
    let install = json!({ "url": urls[0] });
    ask(client, &event(&root, "wrangler", "install_ruleset_request", &install))?;
    create(client, &[&root], count, &urls[..1])?;
    let consoles = children(client, &console(client)?)?;
    let own = |console: String| Ok((own_channel(client, &console)?, console));
    let found: anyhow::Result<Vec<(String, String)>> = consoles.into_iter().map(own).collect();
    Ok(found?.into_iter().map(|(own, console)| (console, own)).collect())
}

/// Makes picos with these rulesets, with an event for each, and returns the time. `by` are the channels of their parents, in turn.
fn create(client: &Client, by: &[&str], picos: usize, urls: &[String]) -> anyhow::Result<Duration> {
    let attributes = json!({ "urls": urls });
    let mut took = Duration::ZERO;
    let mut made = 0;
    while made < picos {
        let end = picos.min(made + AT_A_TIME);
        let requests = (made..end).map(|at| {
            let make = event(by[at % by.len()], "bench", "make", &attributes);
            (at.to_le_bytes().to_vec(), None, make)
        });
        took += all(client, "creating", requests, 0.0, |_, _| Ok(()))?.elapsed();
        made = end;
    }
    Ok(took)
}

/// Returns the children's channels for the console.
fn children(client: &Client, console: &str) -> anyhow::Result<Vec<String>> {
    let shown = ask(client, &query(console, UI, "box"))?;
    let children = shown["children"].as_array().context("the pico has no children")?;
    let ecis = children.iter().filter_map(|eci| eci.as_str().map(str::to_owned));
    Ok(ecis.collect())
}

fn consoles(client: &Client, parents: &[(String, String)]) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for (console, _) in parents {
        all.extend(children(client, console)?);
        if all.len() >= KNOWN {
            break;
        }
    }
    Ok(all)
}

/// Sends events to picos in a scattered order.
fn at_random(client: &Client, consoles: &[String]) -> anyhow::Result<Report> {
    let requests = (0..EVENTS).map(|at| {
        // The picos are far apart. Multiplication by an odd prime visits each one once.
        let eci = &consoles[at.wrapping_mul(7_368_787) % consoles.len()];
        let moved = event(eci, "engine_ui", "box", &json!({ "x": at }));
        (at.to_le_bytes().to_vec(), None, moved)
    });
    all(client, "asking", requests, 0.0, |_, _| Ok(()))
}

/// Returns the growth of the process and of the engine's own count, once nothing waits for a checkpoint.
fn idle_bytes(service: &Service, before: (u64, u64)) -> anyhow::Result<(u64, u64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(service.engine.checkpoint())?;
    let counted = counted_bytes(service)?;
    Ok((
        resident_bytes()?.saturating_sub(before.0),
        counted.saturating_sub(before.1),
    ))
}

/// Returns the engine's own count of the bytes of its entities.
fn counted_bytes(service: &Service) -> anyhow::Result<u64> {
    let mut text = String::new();
    service.engine.metrics().encode(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("throng_entity_bytes "));
    let value: f64 = line.context("the engine counts no memory")?.trim().parse()?;
    Ok(value as u64)
}

fn text(figures: &Figures) -> String {
    let mut table = Table::new([
        "picos",
        "created/s",
        "bytes each idle",
        "counted",
        "event p50 ms",
        "p99",
        "start s",
    ]);
    table.row([
        count(figures.picos as u64),
        count(figures.created_per_s as u64),
        format!("{:.0}", figures.bytes_each),
        format!("{:.0}", figures.counted_bytes_each),
        format!("{:.2}", figures.event_p50_ms),
        format!("{:.2}", figures.event_p99_ms),
        format!("{:.2}", figures.start_s),
    ]);
    table.text()
}
