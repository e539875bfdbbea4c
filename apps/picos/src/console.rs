//! The console of pico-engine 1.x: the files in `public` of its package, if they are available.

use anyhow::Context as _;
use axum::{Router, http::header, response::IntoResponse, routing::get};
use std::{fs, path::Path};

const PAGE: &str = "index.html";
const FILES: [(&str, &str); 3] = [
    ("pico-engine-ui.js", "text/javascript; charset=utf-8"),
    ("pico-engine-ui.css", "text/css; charset=utf-8"),
    ("favicon.ico", "image/x-icon"),
];

/// Returns the console's routes: its page at `/`, and its files.
///
/// # Errors
///
/// A file is missing.
pub fn routes(directory: &Path) -> anyhow::Result<Router> {
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read(&path).with_context(|| format!("the console's file {} cannot be read", path.display()))
    };
    let page = read(PAGE)?;
    let page = move || {
        let page = page.clone();
        async move { answer("text/html; charset=utf-8", page) }
    };
    let mut routes = Router::new().route("/", get(page));
    for (name, kind) in FILES {
        let file = read(name)?;
        let file = move || {
            let file = file.clone();
            async move { answer(kind, file) }
        };
        routes = routes.route(&format!("/{name}"), get(file));
    }
    Ok(routes)
}

fn answer(kind: &'static str, file: Vec<u8>) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, file)
}
