//! The apps the binary can serve.

use throng::{Builder, Engine};
use throng_http::Described;

/// An app: its entities and its own routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: &'static str,
    pub(crate) kinds: fn(Builder) -> Builder,
    pub(crate) routes: fn(Engine) -> axum::Router,
    /// What they take and give, where the app says.
    pub(crate) describe: fn() -> Option<Described>,
    /// Whether it has projections: their rows need a place.
    pub(crate) has_projections: bool,
    /// What variables of its own say.
    pub(crate) environment: fn() -> anyhow::Result<Environment>,
}

/// What is not said on the command line, from variables of an app's own.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// Where the journal stands.
    pub(crate) journal: Option<String>,
    pub(crate) projections: Option<bool>,
}

fn no_variables() -> anyhow::Result<Environment> {
    Ok(Environment::default())
}

/// University registration.
pub(crate) static REGISTRATION: App = App {
    name: "registration",
    kinds: registration::kinds,
    routes: registration::routes,
    describe: || Some(registration::describe()),
    has_projections: false,
    environment: no_variables,
};

/// Seat reservations.
static SHOWS: App = App {
    name: "shows",
    kinds: shows::kinds,
    routes: shows::routes,
    describe: || Some(shows::describe()),
    has_projections: true,
    environment: || {
        let said = shows::environment(|name| std::env::var(name).ok())?;
        Ok(Environment {
            journal: said.journal,
            projections: said.projections,
        })
    },
};

/// The first n primes: no state, only the gateway.
static PRIMES: App = App {
    name: "primes",
    kinds: primes::kinds,
    routes: primes::routes,
    describe: || None,
    has_projections: false,
    environment: no_variables,
};

/// What users do, and what they might like.
static PREFERENCES: App = App {
    name: "preferences",
    kinds: preferences::kinds,
    routes: preferences::routes,
    describe: || Some(preferences::describe()),
    has_projections: false,
    environment: no_variables,
};

static APPS: &[&App] = &[&REGISTRATION, &SHOWS, &PRIMES, &PREFERENCES];

/// An app by its name, for the command line.
pub(crate) fn find(name: &str) -> Result<&'static App, String> {
    APPS.iter().copied().find(|app| app.name == name).ok_or_else(|| {
        let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
        format!("there is no such app; there are: {}", names.join(", "))
    })
}
