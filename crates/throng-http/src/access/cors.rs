//! Cross-origin resource sharing: which pages of other origins a browser lets send requests.

use crate::{answer::ResponseBody, connection::AcceptedBy, guard::Names};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

/// The methods that a page of an allowed origin may use.
pub(crate) const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// For how long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// Response headers that such a page may read besides the standard ones.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("retry-after, www-authenticate, location, read-model-behind, throng-owner");

/// True for a browser's question whether its page may send a request.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers that it may.
pub(crate) fn preflight(headers: &HeaderMap, origin: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(None));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    allow(&mut response, origin);
    response
}

/// Lets a page of this origin read the answer.
pub(crate) fn allow(response: &mut Response<ResponseBody>, origin: HeaderValue) {
    let answer = response.headers_mut();
    for (name, value) in fields(origin) {
        match name {
            header::VARY => _ = answer.append(name, value),
            _ => _ = answer.insert(name, value),
        }
    }
}

/// The header fields that let a page of this origin read the answer.
pub(crate) fn fields(origin: HeaderValue) -> [(HeaderName, HeaderValue); 3] {
    [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED),
        (header::VARY, HeaderValue::from_static("origin")),
    ]
}

/// Returns the origin in the head of an HTTP/1 request, as far as it has arrived, if pages of that origin may use this listener.
pub(crate) fn allowed_in(head: &[u8], names: &Names, accepted_by: AcceptedBy) -> Option<HeaderValue> {
    if names.origins.is_empty() || accepted_by.is_admin {
        return None;
    }
    let lines = head.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii);
    let origin = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon]
            .eq_ignore_ascii_case(b"origin")
            .then(|| line[colon + 1..].trim_ascii())
    })?;
    HeaderValue::from_bytes(origin)
        .ok()
        .filter(|_| names.is_allowed(origin))
}
