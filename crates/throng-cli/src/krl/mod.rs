//! `throng krl`: rulesets checked, put into canonical form, and tried out.

mod test;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use throng_krl::{Program, compile, format, parse};

/// The subcommands for rulesets, which need no engine.
#[derive(Debug, Args)]
pub(crate) struct KrlArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compile rulesets and report errors and warnings, with line and column.
    Check {
        /// Files of one ruleset each.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Format rulesets: blanks, indentation and empty lines.
    Format {
        /// Files of one ruleset each, rewritten in place unless `--check` is given.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Change nothing, but fail if a source is not in canonical form.
        #[arg(long)]
        check: bool,
    },
    /// Run rulesets in a pico in memory by the script beside each (`hello.test` for `hello.krl`).
    Test {
        /// Files of one ruleset each; the steps stand beside it, in a file that ends in `.test`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Runs the command.
///
/// # Errors
///
/// A file cannot be read or written, or has a fault.
pub(crate) fn run(arguments: &KrlArguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Check { files } => each(files, check),
        Command::Format { files, check } => each(files, |file| format_file(file, *check)),
        Command::Test { files } => each(files, test::run),
    }
}

/// Runs the action for every file, and fails at the end if it failed for any.
fn each(files: &[PathBuf], action: impl Fn(&Path) -> Result<()>) -> Result<ExitCode> {
    let mut failed = 0;
    for file in files {
        if let Err(error) = action(file) {
            failed += 1;
            eprintln!("{error:#}");
        }
    }
    match failed {
        0 => Ok(ExitCode::SUCCESS),
        failed => bail!("{failed} of {} rulesets failed", files.len()),
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Compiles the ruleset of a file. Every line of an error begins with the file's name.
fn load(file: &Path) -> Result<Program> {
    let source = read(file)?;
    let name = file.display();
    let ruleset = parse(&source).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    compile(&ruleset).map_err(|error| {
        let lines = error
            .diagnostics
            .iter()
            .map(|diagnostic| format!("{name}: {diagnostic}"));
        anyhow::anyhow!(lines.collect::<Vec<_>>().join("\n"))
    })
}

fn check(file: &Path) -> Result<()> {
    let program = load(file)?;
    for warning in program.warnings() {
        println!("{}: warning: {warning}", file.display());
    }
    println!("{}: the ruleset {} is sound", file.display(), program.rid());
    Ok(())
}

fn format_file(file: &Path, only_check: bool) -> Result<()> {
    let source = read(file)?;
    let canonical = format(&source).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    if canonical == source {
        return Ok(());
    }
    if only_check {
        bail!(
            "{} is not in canonical form: `throng krl format` would change it",
            file.display()
        );
    }
    fs::write(file, canonical).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}: put into canonical form", file.display());
    Ok(())
}
