//! Parses requests. An error names the invalid part.

use axum::{
    body::Bytes,
    extract::{FromRequestParts, rejection::BytesRejection},
    http::{HeaderValue, StatusCode, header, request::Parts},
};
use serde::Deserialize;
use throng_http::Problem;

use crate::show::ShowId;

/// A proof that the request declares its body as JSON.
pub(super) struct IsJson;

impl<S: Send + Sync> FromRequestParts<S> for IsJson {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if found.is_some_and(is_json) {
            return Ok(Self);
        }
        Err(Problem::new(
            "unsupported-media-type",
            415,
            "Not JSON",
            "The body must be JSON: send Content-Type: application/json.",
        )
        .at_field("Content-Type"))
    }
}

fn is_json(media_type: &[u8]) -> bool {
    let end = media_type.iter().position(|byte| *byte == b';');
    media_type[..end.unwrap_or(media_type.len())]
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

pub(super) fn show_id(text: &str, field: &'static str) -> Result<ShowId, Problem> {
    ShowId::of_any_case(text).map_err(|error| Problem::malformed(error.to_string()).at_field(field))
}

pub(super) fn seat(text: &str) -> Result<i32, Problem> {
    text.parse().map_err(|why| {
        Problem::malformed(format!(
            "The seat's number cannot be read: {why}; it is a whole number from 0."
        ))
        .at_field("seatNumber")
    })
}

/// Parses the body as JSON.
pub(super) fn body<'a, T: Deserialize<'a>>(body: &'a Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    match body {
        Ok(bytes) => serde_json::from_slice(bytes).map_err(|why| Problem::malformed(format!("The body: {why}"))),
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(Problem::new(
            "too-large",
            413,
            "Too large",
            "The body is larger than its limit. Nothing was done.",
        )),
        Err(other) => Err(Problem::malformed(other.body_text())),
    }
}
