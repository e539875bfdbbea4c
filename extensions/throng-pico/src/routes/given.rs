//! Attributes and arguments from the query string and the body. The body takes precedence.

use super::{answer, query_string};
use crate::Picos;
use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
    response::Response,
};
use throng::journal::byte_order_mark;
use throng_http::{Problem, extract::check_encoding};
use throng_krl::Value;

/// The arguments of a request for an event or a query: a map.
pub(super) struct RequestArguments {
    pub(super) value: Value,
}

impl FromRequest<Picos> for RequestArguments {
    type Rejection = Response;

    async fn from_request(request: Request, picos: &Picos) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let mut value = Value::map::<&str>([]);
        merge(
            &mut value,
            query_string::of_query(parts.uri.query().unwrap_or_default().as_bytes()),
        );
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), &()).await;
        let malformed = |why: String| answer::problem(&format!("TypeError: {why}"), &Problem::malformed(why.clone()));
        let bytes = bytes.map_err(|rejection| malformed(rejection.body_text()))?;
        if !bytes.is_empty() {
            check_encoding(&parts.headers)
                .map_err(|problem| answer::problem(&format!("TypeError: {}", problem.detail()), &problem))?;
            merge_body(&mut value, &parts.headers, &bytes).map_err(malformed)?;
        }
        if picos.settings().headers {
            set(&mut value, "_headers", headers(&parts.headers));
        }
        Ok(Self { value })
    }
}

fn set(map: &mut Value, name: &str, value: Value) {
    map.set_at_path(&[name.into()], value);
}

fn merge(map: &mut Value, pairs: Vec<(String, Value)>) {
    for (name, value) in pairs {
        set(map, &name, value);
    }
}

/// Merges a body into the map. A body of an unknown type is ignored, as in the original.
fn merge_body(map: &mut Value, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        merge(map, query_string::of_form(body));
        return Ok(());
    }
    let is_json = matches!(
        kind.as_str(),
        "application/json" | "application/octet-stream" | "application/ssi-agent-wire"
    );
    if !is_json {
        return Ok(());
    }
    let given: Value = serde_json::from_slice(body).map_err(|error| {
        let why = byte_order_mark(body).map_or_else(|| error.to_string(), str::to_owned);
        format!("the body is no JSON: {why}")
    })?;
    let Some(entries) = given.as_map() else {
        return Err(format!("attributes are a map, found {}", given.type_name()));
    };
    for (name, value) in entries {
        set(map, name, value.clone());
    }
    Ok(())
}

fn headers(headers: &HeaderMap) -> Value {
    Value::map(
        headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), Value::from(value.to_str().ok()?)))),
    )
}
