//! `throng journal quarantine`, `release` and `drop-messages`: operator actions on a journal that no service uses, so that a service can
//! start which one entity keeps from starting. They do what `/admin/quarantine`, `/admin/release` and `/admin/messages/drop` do.

use crate::{App, history::on_engine};
use clap::Args;
use serde::Serialize;
use std::fmt;
use throng::{Engine, OperatorDecision, Options};

/// An entity, and why something is done with it.
#[derive(Debug, Args)]
pub(crate) struct DecidedArguments {
    /// The journal: a data directory, or postgres://….
    #[arg(value_name = "PLACE")]
    place: String,
    /// The kind in the entity's routes.
    #[arg(value_name = "KIND")]
    kind: String,
    /// The id in the entity's routes.
    #[arg(value_name = "ID")]
    id: String,
    /// The reason, in a sentence: the journal keeps it.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
    /// The person who decides it: the journal keeps the name, too.
    #[arg(long, value_name = "NAME", default_value = "journal tool")]
    by: String,
}

/// The result of the action.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decided {
    /// True if this quarantined it; false if an operator had done so before.
    Quarantined(bool),
    /// True if this released it; false if it was not quarantined.
    Released(bool),
    /// The number of dropped messages.
    Dropped(u64),
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quarantined(true) => f.write_str("it is quarantined: it has no turn until it is released"),
            Self::Quarantined(false) => f.write_str("it was quarantined before"),
            Self::Released(true) => f.write_str("it is released"),
            Self::Released(false) => f.write_str("it was not quarantined"),
            Self::Dropped(messages) => write!(f, "{messages} messages that waited for it were dropped"),
        }
    }
}

impl DecidedArguments {
    fn by(&self) -> OperatorDecision<'_> {
        OperatorDecision::new(self.by.as_str(), self.reason.as_str())
    }

    fn on_engine(&self, app: App, work: impl AsyncFn(&Engine) -> anyhow::Result<Decided>) -> anyhow::Result<Decided> {
        on_engine(&self.place, app, Options::default(), None, work)
    }

    pub(crate) fn quarantine(&self, app: App) -> anyhow::Result<Decided> {
        self.on_engine(app, async |engine| {
            let quarantined = engine.quarantine(&self.kind, &self.id, self.by()).await;
            quarantined.map(Decided::Quarantined).map_err(told)
        })
    }

    pub(crate) fn release(&self, app: App) -> anyhow::Result<Decided> {
        self.on_engine(app, async |engine| {
            let released = engine.release(&self.kind, &self.id, self.by()).await;
            released.map(Decided::Released).map_err(told)
        })
    }

    pub(crate) fn drop_messages(&self, app: App) -> anyhow::Result<Decided> {
        self.on_engine(app, async |engine| {
            let dropped = engine.drop_messages(&self.kind, &self.id, self.by()).await;
            dropped.map(Decided::Dropped).map_err(told)
        })
    }
}

fn told(error: impl fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}
