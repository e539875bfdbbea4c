//! The page on which students search, join and drop sections: `/student`.
//!
//! The walk starts at `/api/owner-eci` and goes down from the owner to registration, to the collection of the sections, and to a section. Each of
//! them gives it an anonymous channel to the next.

use axum::{Router, http::header, response::IntoResponse, routing::get};

/// The page's content security policy. Only the service's own scripts and styles are loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'";

/// Returns the routes of `/student` with its script and style. All of them are part of the program.
pub fn routes() -> Router {
    let file = |kind: &'static str, text: &'static str| get(move || async move { answer(kind, text) });
    Router::new()
        .route(
            "/student",
            file("text/html; charset=utf-8", include_str!("../page/student.html")),
        )
        .route(
            "/student.js",
            file("text/javascript; charset=utf-8", include_str!("../page/student.js")),
        )
        .route(
            "/student.css",
            file("text/css; charset=utf-8", include_str!("../page/student.css")),
        )
}

fn answer(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}
