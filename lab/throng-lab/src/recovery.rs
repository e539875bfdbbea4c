//! Starting from the journal after a crash.

use anyhow::{Context as _, ensure};
use clap::Args;
use registration::section::{Look, Section};
use serde::Serialize;
use std::{
    io::{BufRead as _, BufReader},
    process::{ExitCode, Stdio},
    time::Instant,
};
use throng::Options;

use super::{Common, fill, table::Table, yardstick};
use crate::units::count;

/// The measurement of recovery.
#[derive(Debug, Args)]
pub(super) struct RecoveryArguments {
    #[command(flatten)]
    common: Common,
    /// Events after the last checkpoint.
    #[arg(long, default_value_t = 1_000_000)]
    events: usize,
}

#[derive(Debug, Serialize)]
struct Figures {
    events: usize,
    journal_bytes: u64,
    recovery_s: f64,
    first_read_ms: f64,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &RecoveryArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let data = scratch.0.join("journal");
    let mut child = yardstick("fill")?
        .arg("--data")
        .arg(&data)
        .args(["--events", &arguments.events.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process that fills the journal")?;
    let output = child
        .stdout
        .take()
        .context("the process that fills the journal has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    // `kill -9` is the worst case.
    child.kill()?;
    child.wait()?;
    ensure!(
        line.trim() == "filled",
        "the process that fills the journal ended early"
    );

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(async {
        let begun = Instant::now();
        let (engine, _) = fill::engine(&data, Options::default()).await?;
        let recovery_s = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        engine.entity::<Section>("S0").read(Look {}).await?;
        let first_read_ms = begun.elapsed().as_secs_f64() * 1e3;
        let mut taken = 0;
        for section in 0..1_000 {
            taken += engine
                .entity::<Section>(format!("S{section}"))
                .read(Look {})
                .await?
                .taken as usize;
        }
        ensure!(
            taken == arguments.events,
            "{} events were acknowledged, {taken} are there",
            arguments.events
        );
        let journal_bytes = engine.health().journal_bytes.unwrap_or(0);
        engine.stop().await;
        Ok(Figures {
            events: arguments.events,
            journal_bytes,
            recovery_s,
            first_read_ms,
        })
    })?;
    arguments.common.print(&serde_json::json!({ "recovery": figures }), || {
        let mut table = Table::new([
            "events after the checkpoint",
            "journal MB",
            "recovery s",
            "first read ms",
        ]);
        table.row([
            count(figures.events as u64),
            format!("{:.0}", figures.journal_bytes as f64 / 1e6),
            format!("{:.2}", figures.recovery_s),
            format!("{:.2}", figures.first_read_ms),
        ]);
        table.text()
    });
    Ok(ExitCode::SUCCESS)
}
