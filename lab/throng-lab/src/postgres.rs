//! The journal on PostgreSQL against the same events inserted one by one, and the table `events` that follows it.

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use servers::{Postgres, PostgresOptions as ServerOptions};
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use throng::journal::{
    Address, Checkpoint, CommitBuilder, CommitNo, Journal, Position, RecordKind, ShardId, ShardSet, Stamp, Store,
    WriterId,
};
use throng_postgres::{PostgresJournal, PostgresOptions, PostgresStore, begin_anew, open_postgres};
use tokio::task::JoinHandle;

use super::{median, table::Table};
use crate::units::count;

const MARK: &str = "a throng-lab: the next one replaces it";
const SCHEMA: &str = "throng_bench";
const ENTITIES: u64 = 5_000;
/// The number of events that are inserted one by one. They are slow, and this many show the rate.
const SINGLES: u32 = 5_000;

/// The measurement of PostgreSQL.
#[derive(Debug, Args)]
pub(super) struct PostgresArguments {
    /// The database. Without it, a private server is started for the measurement. The schema throng_bench is used, unless the URL names another.
    #[arg(long, value_name = "postgres://…")]
    url: Option<String>,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Commits a round.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    commits: u32,
    /// Events a commit.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    events: u32,
    /// Bytes of an event's content, as JSON.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    event_bytes: u32,
    /// Events a second while the table `events` is filled at the same time.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    rate: u32,
    /// Seconds of this load.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    server: String,
    /// The events a second over one connection, with several in a commit.
    journal_events_per_s: f64,
    /// The same events with a row and a commit for each.
    single_events_per_s: f64,
    ratio: f64,
    /// The rate of a checkpoint of a backlog, with the table `events`.
    checkpoint_events_per_s: f64,
    /// The events a second under load at a fixed rate.
    rate_events_per_s: f64,
    /// The most events that were not in the table yet.
    backlog_events_max: u64,
    /// The time of the last checkpoint, of what was left after the load.
    last_checkpoint_s: f64,
    kept_up: bool,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &PostgresArguments) -> anyhow::Result<ExitCode> {
    let private = match arguments.url {
        Some(_) => None,
        None => Some(Postgres::start(ServerOptions::default())?),
    };
    let url = match (&arguments.url, &private) {
        (Some(url), _) if url.contains("schema=") => url.clone(),
        (Some(url), _) => format!("{url}{}schema={SCHEMA}", if url.contains('?') { '&' } else { '?' }),
        (None, Some(server)) => format!("{}?schema={SCHEMA}", server.url("postgres")),
        (None, None) => unreachable!("a server was started"),
    };
    let options: PostgresOptions = url.parse()?;
    begin_anew(&options, MARK)?;
    let opened = open_postgres(options.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(async {
        let writer = opened.journal.open("bench").await?.writer;
        let writing = Writing::new(opened.journal.clone(), writer, arguments);
        measure(arguments, &url, writing, opened.store.clone()).await
    })?;
    drop(opened);
    begin_anew(&options, MARK)?;
    print(arguments, &figures);
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    arguments: &PostgresArguments,
    url: &str,
    mut writing: Writing,
    store: Arc<PostgresStore>,
) -> anyhow::Result<Figures> {
    let plain = Plain::connect(url).await?;
    writing.commits(10).await?;
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let took = writing.commits(arguments.commits).await?;
        let journal = f64::from(arguments.commits) * f64::from(arguments.events) / took.as_secs_f64();
        let single = f64::from(SINGLES) / plain.singles(arguments.event_bytes).await?.as_secs_f64();
        rounds.push((journal, single));
    }
    let backlog = writing.number * u64::from(arguments.events);
    let begun = Instant::now();
    advance(&store, writing.position()).await?;
    let checkpoint_events_per_s = backlog as f64 / begun.elapsed().as_secs_f64();
    let behind = keep_up(arguments, &mut writing, &store).await?;
    Ok(Figures {
        server: plain.end().await?,
        journal_events_per_s: median(rounds.iter().map(|(journal, _)| *journal)),
        single_events_per_s: median(rounds.iter().map(|(_, single)| *single)),
        ratio: median(rounds.iter().map(|(journal, single)| journal / single)),
        checkpoint_events_per_s,
        rate_events_per_s: behind.rate,
        backlog_events_max: behind.max,
        last_checkpoint_s: behind.last.as_secs_f64(),
        // With a checkpoint a second, the backlog holds what arrives during one and until the next has ended.
        kept_up: behind.max <= 3 * u64::from(arguments.rate) && behind.rate >= 0.98 * f64::from(arguments.rate),
    })
}

async fn advance(store: &Arc<PostgresStore>, upto: Position) -> anyhow::Result<()> {
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto,
        ..Checkpoint::default()
    };
    store.advance(checkpoint).await.context("a checkpoint failed")
}

/// The lag of the table behind the journal.
struct Behind {
    rate: f64,
    max: u64,
    last: Duration,
}

/// Appends at a fixed rate, with a checkpoint a second beside it.
async fn keep_up(
    arguments: &PostgresArguments,
    writing: &mut Writing,
    store: &Arc<PostgresStore>,
) -> anyhow::Result<Behind> {
    let events = u64::from(arguments.events);
    let every = Duration::from_secs_f64(f64::from(arguments.events) / f64::from(arguments.rate));
    let commits = u64::from(arguments.rate) * u64::from(arguments.seconds) / events;
    let (begun, first) = (Instant::now(), writing.number);
    let (mut covered, mut due) = (writing.number, begun);
    let mut running: Option<(u64, JoinHandle<anyhow::Result<()>>)> = None;
    let mut max = 0;
    let mut next = begun + Duration::from_secs(1);
    for _ in 0..commits {
        tokio::time::sleep_until(due.into()).await;
        due += every;
        writing.commit().await?;
        if let Some((upto, task)) = running.take_if(|(_, task)| task.is_finished()) {
            task.await??;
            covered = upto;
        }
        if running.is_none() && Instant::now() >= next {
            let (store, upto) = (store.clone(), writing.position());
            running = Some((writing.number, tokio::spawn(async move { advance(&store, upto).await })));
            next = Instant::now() + Duration::from_secs(1);
        }
        max = max.max((writing.number - covered) * events);
    }
    let rate = ((writing.number - first) * events) as f64 / begun.elapsed().as_secs_f64();
    let ended = Instant::now();
    if let Some((_, task)) = running {
        task.await??;
    }
    advance(store, writing.position()).await?;
    Ok(Behind {
        rate,
        max,
        last: ended.elapsed(),
    })
}

/// Returns a JSON object of this many bytes.
fn content(bytes: u32) -> Vec<u8> {
    let wrapping = r#"{"seat":""}"#.len();
    let text = "x".repeat((bytes as usize).saturating_sub(wrapping));
    format!(r#"{{"seat":"{text}"}}"#).into_bytes()
}

struct Writing {
    journal: Arc<PostgresJournal>,
    writer: WriterId,
    number: u64,
    builder: CommitBuilder,
    addresses: Vec<Address>,
    event: u64,
    events: u32,
    body: Vec<u8>,
}

impl Writing {
    fn new(journal: Arc<PostgresJournal>, writer: WriterId, arguments: &PostgresArguments) -> Self {
        Self {
            journal,
            writer,
            number: 0,
            builder: CommitBuilder::default(),
            addresses: (0..ENTITIES)
                .map(|number| Address::new("show", format!("show-{number}")))
                .collect(),
            event: 0,
            events: arguments.events,
            body: content(arguments.event_bytes),
        }
    }

    fn position(&self) -> Position {
        Position::new(self.writer, CommitNo(self.number))
    }

    /// Writes commits one after the other, and returns the time of finishing and appending them. Gathering the records is the engine's work, not the
    /// journal's.
    async fn commits(&mut self, count: u32) -> anyhow::Result<Duration> {
        let mut took = Duration::ZERO;
        for _ in 0..count {
            took += self.commit().await?;
        }
        Ok(took)
    }

    async fn commit(&mut self) -> anyhow::Result<Duration> {
        for _ in 0..self.events {
            let entity = self.event % ENTITIES;
            let (address, seq) = (&self.addresses[entity as usize], self.event / ENTITIES + 1);
            let shard = ShardId((entity % 256) as u16);
            self.builder
                .push(RecordKind::Event, shard, address, seq, "SeatReserved", 1, &self.body);
            self.event += 1;
        }
        let begun = Instant::now();
        self.number += 1;
        let commit = self.builder.finish(Stamp::after_synced(
            self.writer,
            CommitNo(self.number),
            1_700_000_000_000_000 + self.number.cast_signed() * 1_000,
        ));
        let appended = self.journal.append(commit).landed().await;
        let took = begun.elapsed();
        appended.result?;
        self.builder.recycle(appended.buffer);
        Ok(took)
    }
}

/// The same events as most applications write them: a row and a commit for each.
struct Plain {
    client: tokio_postgres::Client,
    version: String,
}

impl Plain {
    async fn connect(url: &str) -> anyhow::Result<Self> {
        let base = url.split('?').next().unwrap_or(url);
        let (client, connection) = tokio_postgres::connect(base, tokio_postgres::NoTls)
            .await
            .context("the rival's connection, without TLS, failed")?;
        tokio::spawn(connection);
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS throng_bench_singles (kind text, id text, seq bigint, type text, payload bytea, PRIMARY KEY (kind, id, seq))",
            )
            .await?;
        let row = client
            .query_one("SELECT current_setting('server_version')", &[])
            .await?;
        let version = format!("PostgreSQL {}", row.get::<_, &str>(0));
        Ok(Self { client, version })
    }

    async fn singles(&self, event_bytes: u32) -> anyhow::Result<Duration> {
        self.client.batch_execute("TRUNCATE throng_bench_singles").await?;
        let insert = self
            .client
            .prepare("INSERT INTO throng_bench_singles (kind, id, seq, type, payload) VALUES ('show', $1, $2, 'SeatReserved', $3)")
            .await?;
        let body = content(event_bytes);
        let ids: Vec<String> = (0..ENTITIES).map(|number| format!("show-{number}")).collect();
        let begun = Instant::now();
        for event in 0..u64::from(SINGLES) {
            let (id, seq) = (&ids[(event % ENTITIES) as usize], (event / ENTITIES + 1).cast_signed());
            let inserted = self.client.execute(&insert, &[id, &seq, &body]).await?;
            ensure!(inserted == 1, "a row was not inserted");
        }
        Ok(begun.elapsed())
    }

    /// Removes its table.
    async fn end(self) -> anyhow::Result<String> {
        self.client.batch_execute("DROP TABLE throng_bench_singles").await?;
        Ok(self.version)
    }
}

fn print(arguments: &PostgresArguments, figures: &Figures) {
    use std::io::Write as _;
    let text = if arguments.json {
        serde_json::json!({ "postgres": figures }).to_string() + "\n"
    } else {
        let rate = |rate: f64| count(rate.round() as u64);
        let mut table = Table::new(["", "events/s", "ratio"]);
        let single = "a row and a commit each".to_string();
        table.row([single, rate(figures.single_events_per_s), "1".into()]);
        let journal = format!("journal, commits of {}", count(u64::from(arguments.events)));
        table.row([
            journal,
            rate(figures.journal_events_per_s),
            format!("{:.0}", figures.ratio),
        ]);
        let checkpoint = "checkpoint, with the table events".to_string();
        table.row([checkpoint, rate(figures.checkpoint_events_per_s), String::new()]);
        format!(
            "\n  {}\n{}\n  under {} events/s for {} s the table events was behind by {} events at most, and {} up\n  the rest \
             took {:.2} s after the end\n\n",
            figures.server,
            table.text(),
            rate(figures.rate_events_per_s),
            arguments.seconds,
            count(figures.backlog_events_max),
            if figures.kept_up { "kept" } else { "did NOT keep" },
            figures.last_checkpoint_s,
        )
    };
    // A closed reader (`| head`) is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::content;

    #[test]
    fn an_events_content_has_the_bytes_asked_for_and_is_json() {
        for bytes in [11, 100, 1000] {
            let body = content(bytes);
            assert_eq!(body.len(), bytes as usize);
            assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        }
    }
}
