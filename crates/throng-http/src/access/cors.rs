//! Cross-origin resource sharing: what a browser is told about pages of other origins that may ask.

use crate::answer::Answer;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

/// What such a page may ask with.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// For how long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// What such a page may read beside the usual.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after, www-authenticate, location");

/// A browser asks whether its page may ask.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// That it may.
pub(crate) fn preflight(headers: &HeaderMap, origin: HeaderValue) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(None));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    allow(&mut response, origin);
    response
}

/// Lets a page of this origin read the answer.
pub(crate) fn allow(response: &mut Response<Answer>, origin: HeaderValue) {
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    answer.append(header::VARY, HeaderValue::from_static("origin"));
}
