//! Runs random rulesets on two pico engines, pico-engine 1.x and this one, and compares their answers.
//!
//! Both engines already run on this machine and may load `file:` URLs below one directory. All requests go over HTTP, as those of clients do:
//!
//! ```text
//! cargo run -p krl-differential -- --original http://localhost:3000 --engine http://localhost:8080 --directory /tmp/rulesets
//! ```
//!
//! - `--expressions`: functions of one expression each.
//! - `--selects`: rules with a random event expression.
//! - `--sequences`: rulesets with variables, loops, guards and raised events.
//!
//! If both engines fail, only the words of the error may differ. These cases are counted and, with `--words`, printed. The same `--seed` makes the
//! same rulesets. The exit code is 1 if an outcome differs.

mod engine;
mod generate;
mod run;

use clap::Parser;
use std::{path::PathBuf, process::ExitCode};

/// Random rulesets run on pico-engine and on this engine.
#[derive(Debug, Parser)]
#[command(name = "krl-differential")]
struct Arguments {
    /// The URL of pico-engine, as http://localhost:3000.
    #[arg(long)]
    original: String,
    /// The URL of this engine, as http://localhost:8080.
    #[arg(long)]
    engine: String,
    /// A directory that both may load rulesets from; the rulesets stay in it.
    #[arg(long)]
    directory: PathBuf,
    /// The seed of the rulesets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of expressions.
    #[arg(long, default_value_t = 2_000)]
    expressions: usize,
    /// The number of event expressions, each with 30 events.
    #[arg(long, default_value_t = 100)]
    selects: usize,
    /// The number of rulesets that take 30 events each.
    #[arg(long, default_value_t = 50)]
    sequences: usize,
    /// Also prints the cases where only the words of an error differ.
    #[arg(long)]
    words: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut run = run::Run::new(&arguments)?;
    let counts = [
        ("expressions", run.expressions(arguments.expressions)?),
        ("events of event expressions", run.events("select", arguments.selects)?),
        ("steps of sequences", run.events("sequence", arguments.sequences)?),
    ];
    let mut differing = 0;
    for (what, counted) in counts {
        differing += counted.differing;
        let (asked, in_words) = (counted.asked, counted.in_words);
        println!(
            "{asked} {what}: {} differ, {in_words} more in the words of an error",
            counted.differing
        );
    }
    Ok(if differing == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
