//! `throng load compare`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use crate::Report;
use crate::comparison::{Repetition, differences};
use crate::report::html;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// A saved run (--json).
    a: PathBuf,
    /// Another one, compared with the first.
    b: PathBuf,
    /// Write both as one self-contained page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the differences as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let found = differences(&Repetition::of_seconds(&a), &Repetition::of_seconds(&b), false);
    let mut sentences: Vec<String> = found.iter().map(|difference| difference.sentence("A", "B")).collect();
    sentences.push(
        "The spread is that of the seconds within each run; only repeated runs show what differs between runs.".into(),
    );
    let names: BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    for name in names {
        if a.settings.get(name) == b.settings.get(name) {
            continue;
        }
        let shown = |report: &Report| report.settings.get(name).cloned().unwrap_or_else(|| "none".into());
        sentences.push(format!(
            "The runs differ in their settings: {name} was {} for A and {} for B.",
            shown(&a),
            shown(&b)
        ));
    }
    if a.machine != b.machine {
        sentences.push("The runs were made on different machines or versions.".into());
    }
    let sides = [html::Side::single("A", &a), html::Side::single("B", &b)];
    if let Some(path) = &args.html {
        let page = html::several("Comparison", &sides, &sentences);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let shown = if args.json {
        serde_json::json!({ "format": 1, "kind": "comparison", "differences": found, "sentences": sentences })
            .to_string()
            + "\n"
    } else {
        super::head2head::text("Comparison", &sides, &sentences)
    };
    super::common::show(&shown);
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    Ok(Report::from_json(&text, &name)?)
}
