//! `throng-lab day`: a registration day on several nodes, or through picos.

mod nodes;
mod picos;

use clap::Args;
use registration::reference::Expected;
use std::process::ExitCode;
use throng_cli::demo::DemoArguments;

/// The options of the replay.
#[derive(Debug, Args)]
pub(crate) struct DayArguments {
    /// Replay through picos, one for each section. Their rules are rulesets in KRL, and all requests go through their parent.
    #[arg(long, required_unless_present = "nodes", conflicts_with_all = ["unordered", "journal", "html", "json"])]
    picos: bool,
    /// Replay on this many nodes, processes of their own that share a private PostgreSQL (or the one of --journal). Each request goes to a node
    /// chosen at random. Meanwhile one node is killed and started again, and another one is drained.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=8), conflicts_with_all = ["picos", "unordered", "html", "json"])]
    nodes: Option<u16>,
    #[command(flatten)]
    demo: DemoArguments,
}

impl DayArguments {
    /// Replays the day. The exit code says whether every roster is as expected.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        throng_app::cli::start_logging("error");
        let (trace, name) = self.demo.trace()?;
        let expected = Expected::of(&trace);
        self.demo.say(&format!("\n{name}\n"));
        match self.nodes {
            Some(nodes) => nodes::run(&self.demo, nodes, &trace, &expected),
            None => picos::run(&self.demo, &trace, &expected),
        }
    }
}
