//! The apps that can be measured.

use clap::Args;
use std::{ffi::OsString, fmt::Write as _, process::ExitCode};
use throng_app::App;

use crate::long;

/// An app and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) name: &'static str,
    pub(crate) app: fn() -> App,
}

const APPS: &[Served] = &[
    Served {
        name: "registration",
        app: registration::app,
    },
    Served {
        name: "bank",
        app: bank::app,
    },
    Served {
        name: "shows",
        app: shows::app,
    },
    Served {
        name: "skiers",
        app: skiers::app,
    },
    Served {
        name: "picos",
        app: picos::app,
    },
    Served {
        name: "primes",
        app: primes::app,
    },
    Served {
        name: "preferences",
        app: preferences::app,
    },
    Served {
        name: "tickets",
        app: tickets::app,
    },
    Served {
        name: "long",
        app: long::tickets::app,
    },
];

/// Finds an app by its name, for the command line.
pub(crate) fn find(name: &str) -> Result<Served, String> {
    let found = APPS.iter().copied().find(|app| app.name == name);
    found.ok_or_else(|| format!("there is no such app; there are: {}", names()))
}

/// Returns the names of all apps.
pub(crate) fn names() -> String {
    let mut names = String::new();
    for Served { name, .. } in APPS {
        let comma = if names.is_empty() { "" } else { ", " };
        let _ = write!(names, "{comma}{name}");
    }
    names
}

/// The app, and the arguments of its program.
#[derive(Debug, Args)]
pub(crate) struct AppArguments {
    #[arg(value_name = "NAME", value_parser = find)]
    app: Served,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl AppArguments {
    /// Runs the app's own program with these arguments.
    pub(crate) fn run(&self) -> ExitCode {
        let name = OsString::from(self.app.name);
        (self.app.app)().run_with([name].into_iter().chain(self.arguments.iter().cloned()))
    }
}
