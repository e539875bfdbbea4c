//! The command `token`: makes a token for a caller.

use anyhow::{Context as _, anyhow};
use clap::Args;
use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, process::ExitCode};
use throng_http::Role;

/// The caller that a new token stands for, and the file that keeps it.
#[derive(Debug, Args)]
pub struct TokenArguments {
    /// The caller's name, as the service's entities see it.
    name: String,
    /// The file of `serve --tokens` to add it to; a running service reads it within a second. Without it the line for that file is written to
    /// standard error.
    #[arg(long, value_name = "FILE", env = "THRONG_TOKENS")]
    tokens: Option<PathBuf>,
    /// A role in administration (metrics, viewer, operator, owner): the token is for administration alone.
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// The file of `serve --admin-tokens` to add it to.
    #[arg(long, value_name = "FILE", env = "THRONG_ADMIN_TOKENS")]
    admin_tokens: Option<PathBuf>,
    /// The time at which it expires, such as 2030-01-31T00:00:00Z; by default never.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<jiff::Timestamp>,
}

/// Parses a point in time with its zone.
fn instant(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse()
        .map_err(|_| "write a date, a time and a zone, as 2030-01-31T00:00:00Z".into())
}

impl TokenArguments {
    /// Makes a token. It goes to standard output alone; the line for the file holds its hash.
    ///
    /// # Errors
    /// The name is not valid, or the file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (token, line) = throng_http::make_token(&self.name, self.until).map_err(|why| anyhow!(why))?;
        if self.until.is_some_and(|until| until <= jiff::Timestamp::now()) {
            eprintln!("warning: this token's time is over already: nobody is let in by it");
        }
        let (line, file) = match self.role {
            Some(role) => (format!("{role} {line}"), &self.admin_tokens),
            None => (line, &self.tokens),
        };
        match file {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_cannot_be_read_is_answered_with_an_example() {
        assert!(instant("2030-01-31T00:00:00Z").is_ok() && instant("2030-01-31T00:00:00+01:00").is_ok());
        for wrong in ["2027-01-01", "tomorrow", ""] {
            assert!(instant(wrong).unwrap_err().contains("2030-01-31T00:00:00Z"), "{wrong}");
        }
    }
}
