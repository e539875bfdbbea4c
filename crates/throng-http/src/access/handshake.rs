//! WebSocket handshakes: checks and accepts the request to open one.

use crate::{
    answer::ResponseBody,
    caller::{Caller, ShownCredentials},
    connection::Connection,
    guard::BEARER,
    problem::Problem,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header, request::Parts};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The subprotocol's name.
pub(crate) const PROTOCOL: &str = "throng.v1";

/// Accepts the request to open a WebSocket. The connection becomes one once the answer has been sent.
pub(crate) fn accept(connection: &Connection, parts: &Parts) -> Result<Response<ResponseBody>, Box<Problem>> {
    if connection.accepted_by().is_admin {
        return Err(Problem::only_administration().boxed());
    }
    let response = accept_as(PROTOCOL, parts)?;
    let caller: Option<&Caller> = parts.extensions.get();
    connection.becomes_socket(caller.cloned(), ShownCredentials::of(&parts.headers, caller));
    Ok(response)
}

/// Answers the request to open a socket that speaks this.
pub(crate) fn accept_as(protocol: &'static str, parts: &Parts) -> Result<Response<ResponseBody>, Box<Problem>> {
    let headers = &parts.headers;
    let key = asks(parts)?;
    let offered = protocols(headers);
    if !offered.is_empty() && !offered.contains(&protocol) {
        let detail = format!(
            "The subprotocols offered are {}; this service speaks {protocol}.",
            offered.join(", ")
        );
        return Err(Problem::malformed(detail).at_field("Sec-WebSocket-Protocol").boxed());
    }
    let mut response = Response::new(ResponseBody::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accepts) = HeaderValue::try_from(derive_accept_key(key.as_bytes())) {
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, accepts);
    }
    if !offered.is_empty() {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

/// Returns the client's key, if the request is a WebSocket handshake (RFC 6455 §4.2.1).
fn asks(parts: &Parts) -> Result<&HeaderValue, Box<Problem>> {
    let headers = &parts.headers;
    let is_upgrade = parts.version == Version::HTTP_11
        && parts.method == Method::GET
        && has_token(headers, header::CONNECTION, "upgrade")
        && has_token(headers, header::UPGRADE, "websocket");
    if !is_upgrade {
        return Err(Problem::upgrade_required("This route is a WebSocket: open it as one, over HTTP/1.1.").boxed());
    }
    if headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        return Err(Problem::upgrade_required("This service speaks version 13 of the WebSocket protocol.").boxed());
    }
    headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|key| key.len() == 24)
        .ok_or_else(|| {
            Problem::malformed("The header Sec-WebSocket-Key is missing or is not 16 bytes in base64.")
                .at_field("Sec-WebSocket-Key")
                .boxed()
        })
}

fn values(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let texts = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

fn has_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    values(headers, name).any(|value| value.eq_ignore_ascii_case(token))
}

/// Returns the offered subprotocols, without a token among them.
fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let offered = values(headers, header::SEC_WEBSOCKET_PROTOCOL);
    offered.filter(|offered| !offered.starts_with(BEARER)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        let fields = fields.iter().cloned();
        fields
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn tokens_are_found_in_lists_in_any_case() {
        let headers = with(&[(header::CONNECTION, "keep-alive, Upgrade")]);
        assert!(has_token(&headers, header::CONNECTION, "upgrade"));
        assert!(!has_token(&headers, header::CONNECTION, "close"));
    }
}
