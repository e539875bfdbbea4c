//! Answers in the form of pico-engine, and problems with their own status codes.

use crate::{
    outside::Failure,
    pico::{PicoRejection, Ran},
};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value as Json, json};
use throng::model::Error;
use throng_http::Problem;
use throng_krl::Value;

/// A value as JSON.
pub(super) struct JsonAnswer(pub(super) Value);

impl IntoResponse for JsonAnswer {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/json")];
        (kind, self.0.to_json()).into_response()
    }
}

/// The rights of a page made by a ruleset: forms and links, but no scripts and no origin. Otherwise the page's author would have the rights of its
/// viewer.
const PAGE_POLICY: &str = "sandbox allow-forms";

/// Answers with a value as text.
pub(super) fn text(value: &Value) -> Response {
    as_text("text/plain; charset=utf-8", value)
}

/// Answers with a value as an HTML page.
pub(super) fn page(value: &Value) -> Response {
    let policy = [(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
    (policy, as_text("text/html; charset=utf-8", value)).into_response()
}

fn as_text(kind: &'static str, value: &Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, value.text().into_owned()).into_response()
}

/// Answers with the reason why an event or a query was not handled.
pub(super) fn refused(failure: Failure) -> Response {
    let said = match &failure {
        // The pico never existed, or has ended.
        Error::Unknown { .. } | Error::Ended { .. } => "Error: ECI not found".to_owned(),
        Error::Rejected(PicoRejection::Failed { error }) => throng_krl::without_location(error).to_owned(),
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
    problem(&said, &problem_of)
}

/// Answers for an event that failed. Only its entry in the log is left.
pub(super) fn failed(ran: &Ran, error: &str) -> Response {
    let said = throng_krl::without_location(error);
    let directive = json!({
        "type": "directive", "name": "error", "options": { "error": said }, "meta": { "txnId": ran.eid },
    });
    let problem = Problem::new("ruleset-failed", 500, "A ruleset failed", error);
    answer_problem(
        said,
        &problem,
        [("eid", json!(ran.eid)), ("directives", json!([directive]))],
    )
}

/// Answers with a problem. Its `error` is the text of pico-engine 1.x, the only field that the clients of that read.
pub(super) fn problem(said: &str, problem: &Problem) -> Response {
    answer_problem(said, problem, [])
}

fn answer_problem<const MORE: usize>(said: &str, problem: &Problem, more: [(&str, Json); MORE]) -> Response {
    let mut body = serde_json::to_value(problem).unwrap_or_default();
    if let Some(members) = body.as_object_mut() {
        members.insert("error".into(), said.into());
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    let (mut parts, _) = problem.clone().into_response().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body.to_string().into())
}

/// Returns the cookies, and the page to redirect to, that directives ask for.
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
        option("_redirect", "url")
            .into_iter()
            .find(|location| is_page(location)),
    )
}

/// True if a URL is relative or has the scheme `http` or `https`. A `javascript:` URL would run in the page that follows it.
fn is_page(url: &str) -> bool {
    let is_relative = |colon| url[..colon].contains(['/', '?', '#']);
    match url.find(':') {
        Some(colon) if !is_relative(colon) => {
            url[..colon].eq_ignore_ascii_case("http") || url[..colon].eq_ignore_ascii_case("https")
        }
        _ => true,
    }
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
