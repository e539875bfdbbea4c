//! An engine of picos as a program: `picos serve`.
//!
//! The engine has one pico from its first start on, the root. Ask `/api/ui-context` for a channel to it, send it events, make children, install rulesets.
//! [`Settings::from_environment`] lists its settings. Besides the picos it serves a [page](student) for the students of its example, the registration
//! of a university.

pub mod console;
pub mod student;

use std::sync::{Arc, OnceLock};
use throng::Engine;
use throng_app::App;
use throng_pico::Picos;

pub use throng_pico::Settings;

/// The rulesets of a university's registration, by file name. Each loads the rulesets of the picos below it from its own directory. The first one is
/// enough for sections alone; the last one adds registration and its owner above them.
pub const REGISTRATION: [(&str, &str); 4] = [
    (
        "app_section_collection.krl",
        include_str!("../rulesets/app_section_collection.krl"),
    ),
    ("app_section.krl", include_str!("../rulesets/app_section.krl")),
    ("app_registration.krl", include_str!("../rulesets/app_registration.krl")),
    (
        "app_registration_owner.krl",
        include_str!("../rulesets/app_registration_owner.krl"),
    ),
];

/// The environment variable with the directory of the [console]'s built files. If it is unset, no console is served.
pub const CONSOLE: &str = "THRONG_PICOS_CONSOLE";

/// Returns the service with its kinds, routes and documentation, with the settings of the environment.
#[must_use]
pub fn app() -> App {
    let settings = Settings::from_environment(|name| std::env::var(name).ok());
    let console = std::env::var_os(CONSOLE).map(|directory| console::routes(directory.as_ref()));
    let console = console.and_then(|routes| {
        let missing = |error: &anyhow::Error| eprintln!("note: there is no console: {error:#}");
        routes.inspect_err(missing).ok()
    });
    build(settings, student::routes().merge(console.unwrap_or_default()))
}

/// Returns the service with these settings.
#[must_use]
pub fn with(settings: Settings) -> App {
    build(settings, student::routes())
}

/// Returns the service with these settings, and these routes beside those of the picos.
fn build(settings: Settings, beside: axum::Router) -> App {
    // One for the engine, shared by the routes and the worker. Whichever runs first makes it.
    let made: Arc<OnceLock<Picos>> = Arc::default();
    let picos = move |engine: &Engine| {
        made.get_or_init(|| Picos::new(engine.clone(), settings.clone()))
            .clone()
    };
    let of_routes = picos.clone();
    App::new("picos")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(throng_pico::kinds)
        .routes(move |engine| throng_pico::routes(of_routes(&engine)).merge(beside))
        .describe(throng_pico::describe())
        .gateway(throng_pico::gateway)
        .background(move |engine| Ok(picos(engine).work()?))
}
