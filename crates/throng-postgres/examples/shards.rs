//! Measures what the number of shards costs: on the embedded log, and on a private PostgreSQL with its directory of nodes.
//!
//! ```text
//! cargo run --release -p throng-postgres --example shards -- SHARDS ENTITIES
//! ```
//!
//! The output is one JSON object. Two numbers of shards are compared by alternating runs on a machine that does nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use servers::{Postgres, PostgresOptions as ServerOptions};
use std::{
    collections::BTreeMap,
    error::Error,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use throng::{Engine, Options, model};
use throng_journal::{Directory as _, FEATURES, Join, Journal, NodeState, ShardSet, Store};
use throng_postgres::{PostgresDirectory, PostgresOptions, open_postgres};

/// A journal and the store on it.
type Place = (Arc<dyn Journal>, Arc<dyn Store>);
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Tasks that ask at the same time.
const TASKS: usize = 512;
/// Commands that are timed after the fill.
const COMMANDS: usize = 200_000;
/// Looks of the directory, of which the median counts.
const LOOKS: usize = 101;

#[derive(Default, Serialize, Deserialize)]
struct Counter {
    hits: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Command {
    Hit,
    /// Hits another one by a message: who has sent how many is counted for each pair of shards.
    Send {
        to: String,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum CounterEvent {
    Hit,
}
impl model::Event for CounterEvent {}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("a counter never says no")]
struct Never;
impl model::Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl model::Entity for Counter {
    const KIND: &'static str = "counter";
    type Id = String;
    type Command = Command;
    type Event = CounterEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut model::Turn<'_, Self>) -> Result<model::CommandAnswer<Self>, Never> {
        match command {
            Command::Hit => turn.emit(CounterEvent::Hit),
            Command::Send { to } => turn.send::<Self>(to, Command::Hit),
        }
        Ok(model::CommandAnswer::after(|counter: &Counter| counter.hits))
    }

    fn evolve(&mut self, _: &CounterEvent) {
        self.hits += 1;
    }
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Memory of this process that is in use (proc(5), `statm`, second field in pages).
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or_default() * 4_096
}

async fn start(shards: u16, journal: Arc<dyn Journal>, store: Arc<dyn Store>) -> Outcome<Engine> {
    let options = Options {
        memory_bytes_max: 4 << 30,
        deadline: Duration::from_mins(1),
        ..Options::default()
    };
    let builder = Engine::builder().with::<Counter>().shards(shards).options(options);
    Ok(builder.start_shared(journal, store).await?)
}

/// An entity far from the one before it: multiplied by an odd prime, each is visited once.
fn entity(number: usize, entities: usize) -> String {
    (number.wrapping_mul(7_368_787) % entities).to_string()
}

/// Asks the entities in turn, so many times in all; commands a second.
async fn ask(
    engine: &Engine,
    entities: usize,
    commands: usize,
    command: impl Fn(usize) -> Command + Clone + Send + 'static,
) -> Outcome<f64> {
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (engine, command) = (engine.clone(), command.clone());
        tasks.spawn(async move {
            for number in (task..commands).step_by(TASKS) {
                let id = entity(number, entities);
                loop {
                    match engine.entity::<Counter>(id.as_str()).ask(command(number)).await {
                        Err(model::Error::Overloaded { retry_after }) => tokio::time::sleep(retry_after).await,
                        told => break told.map(drop)?,
                    }
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(commands as f64 / seconds(begun))
}

/// The system rows by their first letter: how many, and the bytes of their keys and values.
async fn rows(store: &dyn Store) -> Outcome<BTreeMap<char, (u64, usize)>> {
    let mut found: BTreeMap<char, (u64, usize)> = BTreeMap::new();
    let mut count = |key: &[u8], value: &[u8]| {
        let (rows, bytes) = found.entry(char::from(key[0])).or_default();
        *rows += 1;
        *bytes += key.len() + value.len();
    };
    store.system_scan(b"", b"", usize::MAX, &mut count).await?;
    Ok(found)
}

/// Fills a journal, then measures commands, a checkpoint, and the next start.
async fn measure(
    open: impl Fn() -> Result<Place, throng_journal::Error>,
    shards: u16,
    entities: usize,
) -> Outcome<Value> {
    let (journal, store) = open()?;
    let engine = start(shards, journal, store.clone()).await?;
    let filled_per_s = ask(&engine, entities, entities, |_| Command::Hit).await?;
    engine.checkpoint().await?;
    let commands = COMMANDS.min(entities);
    let commands_per_s = ask(&engine, entities, commands, |_| Command::Hit).await?;
    // The receiver stands apart from the sender by another step each time.
    let send = move |number: usize| Command::Send {
        to: entity(number.wrapping_mul(3), entities),
    };
    let messages_per_s = ask(&engine, entities, commands, send).await?;
    let begun = Instant::now();
    engine.checkpoint().await?;
    let checkpoint_s = seconds(begun);
    let rows = rows(&*store).await?;
    engine.stop().await;
    drop((engine, store));

    let before = resident_bytes();
    let (journal, store) = loop {
        match open() {
            Ok(opened) => break opened,
            // The engine that has ended holds it a moment longer.
            Err(throng_journal::Error::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => return Err(error.into()),
        }
    };
    let begun = Instant::now();
    let covers = store.covers(&ShardSet::first(shards)).await?.len();
    let covers_ms = seconds(begun) * 1e3;
    let begun = Instant::now();
    let engine = start(shards, journal, store).await?;
    let start_s = seconds(begun);
    engine.entity::<Counter>("0").ask(Command::Hit).await?;
    let first_answer_s = seconds(begun);
    let started_bytes = resident_bytes().saturating_sub(before);
    engine.stop().await;
    Ok(json!({
        "filled_per_s": filled_per_s, "commands_per_s": commands_per_s, "messages_per_s": messages_per_s, "checkpoint_s": checkpoint_s, "rows": rows,
        "covers": covers, "covers_ms": covers_ms, "start_s": start_s, "first_answer_s": first_answer_s, "started_bytes": started_bytes,
    }))
}

/// Times the claims of a node: it takes all, looks, gives half of them away.
async fn claims(directory: &PostgresDirectory, shards: u16) -> Outcome<Value> {
    let join = |name: &str| Join {
        name: name.into(),
        features: FEATURES,
        shards,
        ..Join::default()
    };
    let (one, other) = (directory.join(join("a")).await?, directory.join(join("b")).await?);
    let (all, half) = (ShardSet::first(shards), ShardSet::first(shards / 2));
    directory.beat(other, NodeState::Serving).await?;
    let begun = Instant::now();
    directory.take(one, &all).await?;
    let take_ms = seconds(begun) * 1e3;
    let mut looks = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let begun = Instant::now();
        directory.beat(one, NodeState::Serving).await?;
        looks.push(seconds(begun) * 1e3);
    }
    looks.sort_by(f64::total_cmp);
    let begun = Instant::now();
    directory.give(one, other, &half).await?;
    let give_half_ms = seconds(begun) * 1e3;
    for node in [one, other] {
        directory.leave(node).await?;
    }
    Ok(json!({"take_ms": take_ms, "beat_p50_ms": looks[LOOKS / 2], "give_half_ms": give_half_ms}))
}

async fn run(shards: u16, entities: usize, scratch: &Path, server: &Postgres) -> Outcome<Value> {
    let log_options = || throng_log::Options {
        durability: throng_journal::Durability::Os,
        ..throng_log::Options::default()
    };
    let embedded = || -> Result<Place, throng_journal::Error> {
        let (log, store) = throng_log::open_embedded(scratch, log_options())?;
        Ok((log, store))
    };
    let options = |schema| -> Outcome<PostgresOptions> {
        let url = format!("{}?schema={schema}&lease=0", server.url("postgres"));
        Ok(url.parse()?)
    };
    let opened = open_postgres(options("claims")?)?;
    let claims = claims(&opened.directory, shards).await?;
    drop(opened);
    let options = options("entities")?;
    let postgres = || -> Result<Place, throng_journal::Error> {
        let opened = open_postgres(options.clone())?;
        Ok((opened.journal, opened.store))
    };
    Ok(json!({
        "shards": shards, "entities": entities, "embedded": measure(embedded, shards, entities).await?,
        "postgres": measure(postgres, shards, entities).await?, "claims": claims,
        "shards_column_bytes": ShardSet::first(shards).bytes().len(),
    }))
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(shards), Some(entities), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("give the number of shards and that of entities, as `256 1000000`".into());
    };
    let (shards, entities): (u16, usize) = (shards.parse()?, entities.parse()?);
    if shards < 2 || entities == 0 {
        return Err("two shards and one entity are the least".into());
    }
    let scratch = tempfile::tempdir()?;
    let server = Postgres::start(ServerOptions::default())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let figures = runtime.block_on(run(shards, entities, scratch.path(), &server))?;
    println!("{figures}");
    Ok(())
}
