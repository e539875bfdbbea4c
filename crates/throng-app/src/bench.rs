//! The command `bench`: a load plan against the service, on a fresh journal.

use anyhow::{Context as _, ensure};
use clap::{Args, Parser, ValueEnum as _};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
};
use throng_load::cli::LoadArgs;

use crate::Durability;

/// The arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The load plan, a TOML file; it needs no target, that is the service.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The directory of the journal, on the disk to be measured; it is removed at the end.
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// The failures that an acknowledged command survives.
    #[arg(long, value_enum, default_value = "fsync")]
    durability: Durability,
    /// More for the load generator, after `--`: what `throng load run` takes, for example -- --html report.html.
    #[arg(last = true, value_name = "ARGUMENTS")]
    load: Vec<String>,
}

/// The load generator's own arguments.
#[derive(Parser)]
struct Load {
    #[command(flatten)]
    arguments: LoadArgs,
}

impl BenchArguments {
    /// Serves in a separate process, so that the service and the load do not share threads, and runs the plan.
    pub(crate) fn run(&self, name: &str) -> anyhow::Result<ExitCode> {
        let journal = Scratch::create(self.data.join(format!("{name}-bench-{}", std::process::id())))?;
        let service = Service::start(&journal, self.durability)?;
        let plan = self.plan.display().to_string();
        let pid = service.0.id().to_string();
        let words = ["bench", "run", &plan, "--target", &service.1, "--pid", &pid];
        let words = words.into_iter().chain(self.load.iter().map(String::as_str));
        Ok(throng_load::cli::run(Load::parse_from(words).arguments))
    }
}

/// A running service and its URL. Dropping this ends the service.
struct Service(Child, String);

impl Service {
    fn start(journal: &Scratch, durability: Durability) -> anyhow::Result<Self> {
        let durability = durability.to_possible_value().context("the durability has no name")?;
        let child = Command::new(std::env::current_exe().context("cannot find this program's own file")?)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--durability",
                durability.get_name(),
                "--data",
            ])
            .arg(&journal.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the service")?;
        let mut service = Self(child, String::new());
        let output = service.0.stdout.take().context("the service has no output")?;
        BufReader::new(output).read_line(&mut service.1)?;
        service.1.truncate(service.1.trim_end().len());
        ensure!(!service.1.is_empty(), "the service did not start; see above");
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Its journal is removed, so nothing has to be finished. Both calls fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn create(path: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&path).with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("note: {} could not be removed: {error}", self.0.display());
        }
    }
}
