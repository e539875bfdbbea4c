//! The command `token`: lets somebody in.

use anyhow::{Context as _, anyhow};
use clap::Args;
use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, process::ExitCode};

/// Whom a new token stands for, and where it is kept.
#[derive(Debug, Args)]
pub struct TokenArguments {
    /// The caller's name, as the service's entities see it.
    name: String,
    /// The file of `serve --tokens` to add it to; a running service takes it within a second. Without it the line for that file is
    /// shown on standard error.
    #[arg(long, value_name = "FILE", env = "THRONG_TOKENS")]
    tokens: Option<PathBuf>,
    /// Until when it is taken, such as 2030-01-31T00:00:00Z; for good, unless said.
    #[arg(long, value_name = "TIME")]
    until: Option<jiff::Timestamp>,
}

impl TokenArguments {
    /// Makes a token: it alone goes to standard output, and is nowhere kept.
    ///
    /// # Errors
    /// The name is none, or the file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (token, line) = throng_http::make_token(&self.name, self.until).map_err(|why| anyhow!(why))?;
        match &self.tokens {
            None => eprintln!("{line}"),
            Some(file) => {
                let mut tokens = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .mode(0o600)
                    .open(file)
                    .with_context(|| format!("cannot open {}", file.display()))?;
                let written = tokens.write_all(format!("{line}\n").as_bytes());
                written.with_context(|| format!("cannot write to {}", file.display()))?;
            }
        }
        println!("{token}");
        Ok(ExitCode::SUCCESS)
    }
}
