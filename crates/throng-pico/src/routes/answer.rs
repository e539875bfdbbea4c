//! Answers as clients of the pico-engine know them, and problems with status codes of their own.

use crate::{
    Picos,
    outside::Failure,
    pico::{PicoRejection, Ran},
};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use throng::model::Error;
use throng_http::Problem;
use throng_krl::Value;

/// A value as JSON.
pub(super) struct Answer(pub(super) Value);

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        Json(self.0).into_response()
    }
}

/// A value as text.
pub(super) fn text(kind: &'static str, value: &Value) -> Response {
    let text = value.text().into_owned();
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Why an event or a query was not handled.
pub(super) fn refused(picos: &Picos, failure: Failure) -> Response {
    let said = match &failure {
        // The id of a pico that never was, or is no more.
        Error::Unknown { .. } | Error::Ended { .. } => "Error: ECI not found".to_owned(),
        Error::Rejected(PicoRejection::Failed { error }) => error.to_string(),
        other => format!("Error: {other}"),
    };
    let gone = |status| {
        Problem::new(
            "eci-not-found",
            status,
            "ECI not found",
            "There is no pico with this channel.",
        )
    };
    let problem_of = match failure {
        Error::Unknown { .. } => gone(404),
        Error::Ended { .. } => gone(410),
        Error::Rejected(PicoRejection::Failed { error }) => {
            Problem::new("ruleset-failed", 500, "A ruleset failed", error)
        }
        other => Problem::from(other),
    };
    problem(picos, &said, problem_of)
}

/// An event that failed: nothing of it is left but its entry in the log.
pub(super) fn failed(picos: &Picos, ran: &Ran, error: &str) -> Response {
    if picos.settings().compat {
        return Json(json!({ "error": error })).into_response();
    }
    let directive = json!({
        "type": "directive", "name": "error", "options": { "error": error }, "meta": { "txnId": ran.eid },
    });
    let body = json!({
        "type": "/problems/ruleset-failed",
        "title": "A ruleset failed",
        "status": 500,
        "detail": error,
        "eid": ran.eid,
        "directives": [directive],
    });
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::INTERNAL_SERVER_ERROR, kind, body.to_string()).into_response()
}

/// A problem; for clients of the original as they know it.
pub(super) fn problem(picos: &Picos, said: &str, problem: Problem) -> Response {
    match picos.settings().compat {
        true => Json(json!({ "error": said })).into_response(),
        false => problem.into_response(),
    }
}

/// What directives say of the answer itself: cookies, and where to go.
pub(super) fn orders(directives: &[Value]) -> (Vec<String>, Option<String>) {
    let option = |name: &str, option: &str| -> Vec<String> {
        let named = directives
            .iter()
            .filter(|one| one.child("name").and_then(Value::as_str) == Some(name));
        let options = named.filter_map(|one| one.child("options")?.child(option)?.as_str().map(str::to_owned));
        options.collect()
    };
    (
        option("_cookie", "cookie"),
        option("_redirect", "url").into_iter().next(),
    )
}

pub(super) fn redirect(location: &str) -> Response {
    match HeaderValue::from_str(location) {
        Ok(location) => (StatusCode::FOUND, [(header::LOCATION, location)]).into_response(),
        Err(_) => StatusCode::FOUND.into_response(),
    }
}

pub(super) fn set_cookies(response: &mut Response, cookies: &[String]) {
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
}
