//! The command `check`: reads a journal with this program before a roll-out, and tells what it does not understand.

#[cfg(feature = "s3")]
use crate::objects::Part;
use anyhow::Context as _;
use clap::Args;
use std::process::ExitCode;
use throng::journal::{Commit, Error};
#[cfg(feature = "postgres")]
use throng_postgres::tools::HistoryPart;

use crate::{
    App,
    place::{JournalLocation, LocationArguments},
};

/// The arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    #[command(flatten)]
    place: LocationArguments,
    /// Decide recorded commands again (messages, timers, and commands of clients where the kind keeps them), each on its entity's state of that time,
    /// and report whose outcome changes.
    #[arg(long)]
    what_if: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

impl CheckArguments {
    /// Reads the whole journal with this program, changes nothing, and says what it does not understand; also beside a running service.
    ///
    /// # Errors
    /// The journal cannot be opened or read. Differences are no error; they show in the exit code.
    pub fn run(&self, app: App) -> anyhow::Result<ExitCode> {
        let defaults = app.read_defaults()?;
        let place = self.place.place_or(app.name(), defaults.journal.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .context("cannot start a runtime")?;
        let mut checker = app.into_builder().checker();
        if self.what_if {
            checker = checker.what_if();
        }
        // Nothing has to be awaited: the read models are in memory.
        let mut commit = |commit: &Commit| -> Result<(), Error> {
            runtime.block_on(checker.commit(commit));
            Ok(())
        };
        match &place {
            JournalLocation::Memory => anyhow::bail!("what is in memory is gone: name a directory or a database"),
            JournalLocation::Directory(directory) => {
                throng_log::tools::for_each_commit(&throng_log::Options::default(), directory, &mut commit)?;
            }
            #[cfg(feature = "postgres")]
            JournalLocation::Postgres(options) => throng_postgres::tools::walk(options, &mut |seen| match seen {
                HistoryPart::Commit(found) => commit(found),
                HistoryPart::Damage(damage) => Err(damage),
                HistoryPart::Writer { .. } => Ok(()),
            })?,
            #[cfg(feature = "s3")]
            JournalLocation::Objects(location) => crate::objects::walk(location, &mut |part| match part {
                Part::Commit(found) => commit(found),
                Part::Writer => Ok(()),
            })?,
        }
        let report = checker.finish();
        match self.json {
            true => println!(
                "{}",
                serde_json::to_string(&report).context("cannot write the result as JSON")?
            ),
            false => println!("{report}"),
        }
        Ok(match report.is_sound() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}
