//! An engine of picos as a program: `picos serve`, or `picos serve`.
//!
//! It has one pico from its first start on, the root. Ask `/api/ui-context` for a channel to it, send it events, make children,
//! install rulesets. What it can be told stands in [`Settings::from_environment`]. Beside the picos it serves a [page](student) for the students of
//! its example, the registration of a university.

pub mod console;
pub mod student;

use std::sync::{Arc, OnceLock};
use throng::Engine;
use throng_app::App;
use throng_pico::Picos;

pub use throng_pico::Settings;

/// The rulesets of a university's registration, by file name. Each finds those of the picos below it beside itself: sections alone begin with the
/// first, with registration and its owner above them with the last.
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

/// The environment variable that names a directory with the built files of a [console]; unset, none is served.
pub const CONSOLE: &str = "THRONG_PICOS_CONSOLE";

/// The service: its kinds, its routes, its documentation; as the environment says.
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

/// The service with these settings.
#[must_use]
pub fn with(settings: Settings) -> App {
    build(settings, student::routes())
}

/// The service with these settings, and with these routes beside those of the picos.
fn build(settings: Settings, beside: axum::Router) -> App {
    // The engine's, for the routes and for what works beside them: made by whoever needs it first.
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
