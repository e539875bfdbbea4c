//! Answers in the dialects of the clients.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::Error;

use super::{body::BodyError, path::PathError};
use crate::{no_answer::NoAnswer, ride::Refused};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The dialect of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The dialect of the interface's definition: messages are JSON, `{"message":text}`.
    Definition,
    /// The dialect of the original's server: messages are plain text, and every content type is JSON.
    Original,
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct ResponseMsg {
    /// The fault, in words.
    message: String,
}

/// A failure, independent of the dialect.
pub(crate) enum Failure {
    /// A failure of the service, in words.
    Said(StatusCode, String),
    /// A failure of the engine, as a problem detail.
    Problem(Box<throng_http::Problem>),
}

impl Failure {
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::Said(StatusCode::BAD_REQUEST, text.into())
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::Said(StatusCode::NOT_FOUND, text.into())
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Unknown => Self::not_found("Invalid path or parameters supplied"),
            PathError::Day => Self::bad("Invalid day value"),
            PathError::Number(refused) => Self::bad(refused.to_string()),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<Error<Refused>> for Failure {
    fn from(error: Error<Refused>) -> Self {
        match error {
            Error::Rejected(refused @ Refused::Invalid { .. }) => Self::bad(refused.to_string()),
            other => Self::Problem(Box::new(other.into())),
        }
    }
}

impl From<NoAnswer> for Failure {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::NotFound => Self::not_found("Data not found"),
            NoAnswer::Failed(problem) => Self::Problem(problem),
        }
    }
}

impl Dialect {
    /// Answers 201 with a text.
    pub(super) fn created(self, text: &'static str) -> Response {
        let media_type = match self {
            Self::Definition => TEXT,
            Self::Original => JSON,
        };
        (StatusCode::CREATED, [(header::CONTENT_TYPE, media_type)], text).into_response()
    }

    pub(super) fn failed(self, failure: Failure) -> Response {
        let (status, message) = match failure {
            Failure::Said(status, message) => (status, message),
            Failure::Problem(problem) => return problem.into_response(),
        };
        match self {
            Self::Definition => (status, axum::Json(ResponseMsg { message })).into_response(),
            Self::Original => (status, [(header::CONTENT_TYPE, JSON)], message).into_response(),
        }
    }
}
