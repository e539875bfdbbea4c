//! The apps the binary can serve.

use throng::{Builder, Engine};

/// An app: its entities and its own routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: &'static str,
    pub(crate) kinds: fn(Builder) -> Builder,
    pub(crate) routes: fn(Engine) -> axum::Router,
}

/// University registration.
pub(crate) static REGISTRATION: App = App {
    name: "registration",
    kinds: registration::kinds,
    routes: registration::routes,
};

static APPS: &[&App] = &[&REGISTRATION];

/// An app by its name, for the command line.
pub(crate) fn find(name: &str) -> Result<&'static App, String> {
    APPS.iter().copied().find(|app| app.name == name).ok_or_else(|| {
        let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
        format!("there is no such app; there are: {}", names.join(", "))
    })
}
