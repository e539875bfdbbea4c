//! An engine of picos as a program: `picos serve`, or `throng serve --app picos`.
//!
//! It has one pico from its first start on, the root. Ask `/api/ui-context` for a channel to it, send it events, make children,
//! install rulesets. What it can be told stands in [`Settings::from_environment`].

use std::sync::{Arc, OnceLock};
use throng::Engine;
use throng_app::App;
use throng_pico::Picos;

pub use throng_pico::Settings;

/// The rulesets of a university's sections, by file name: what is installed first is the collection, which finds the other beside it.
pub const SECTIONS: [(&str, &str); 2] = [
    (
        "app_section_collection.krl",
        include_str!("../rulesets/app_section_collection.krl"),
    ),
    ("app_section.krl", include_str!("../rulesets/app_section.krl")),
];

/// The service: its kinds, its routes, its documentation; as the environment says.
#[must_use]
pub fn app() -> App {
    with(Settings::from_environment(|name| std::env::var(name).ok()))
}

/// The service with these settings.
#[must_use]
pub fn with(settings: Settings) -> App {
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
        .routes(move |engine| throng_pico::routes(of_routes(&engine)))
        .describe(throng_pico::describe())
        .gateway(throng_pico::gateway)
        .beside(move |engine| Ok(picos(engine).work()?))
}
