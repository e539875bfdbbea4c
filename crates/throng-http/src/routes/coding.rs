//! Answers of more than a kibibyte, for clients that accept compression, or ask whether they have changed. Others cost nothing.

use crate::{answer::ResponseBody, problem::Answered, request::headers};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use ring::digest::{Context, SHA256};
use std::{io::Write as _, mem};
use tokio::task::yield_now;

/// Smaller answers fit a packet as they are.
const BYTES_MIN: usize = 1 << 10;
/// The bytes of an answer that are hashed or compressed before others have their turn.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of its hash that a tag shows.
const TAG_BYTES: usize = 12;

/// Compresses an answer, or answers that the client has it, if the client asks for that.
///
/// # Errors
/// The problem that was passed in.
pub(super) async fn coded(
    answered: Answered<Response<ResponseBody>>,
    parts: &Parts,
) -> Answered<Response<ResponseBody>> {
    let mut response = answered?;
    let asked = &parts.headers;
    let takes_gzip = headers::takes_gzip(asked);
    // Other methods have had an effect, which 304 must not hide.
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let has_tag = is_read && !response.headers().contains_key(header::CACHE_CONTROL);
    if !(takes_gzip || has_tag && asked.contains_key(header::IF_NONE_MATCH)) {
        return Ok(response);
    }
    let is_plain = response.status() == StatusCode::OK && !response.headers().contains_key(header::CONTENT_ENCODING);
    let body = match response.body_mut() {
        ResponseBody::Whole(Some(bytes)) if is_plain && bytes.len() > BYTES_MIN => mem::take(bytes),
        _ => return Ok(response),
    };
    let vary = HeaderValue::from_static("accept-encoding");
    response.headers_mut().insert(header::VARY, vary);
    if has_tag {
        let tag = tag(&body).await;
        let is_known = headers::knows(asked, &tag);
        response.headers_mut().insert(header::ETAG, tag);
        let no_cache = HeaderValue::from_static("no-cache");
        response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().remove(header::CONTENT_TYPE);
            return Ok(response.map(|_| ResponseBody::Whole(None)));
        }
    }
    let compressed = if takes_gzip { compressed(&body).await } else { None };
    if compressed.is_some() {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    Ok(response.map(|_| ResponseBody::Whole(Some(compressed.unwrap_or(body)))))
}

/// Returns a weak tag: it is the same for the plain and the compressed answer.
async fn tag(body: &Bytes) -> HeaderValue {
    let mut hash = Context::new(&SHA256);
    for piece in body.chunks(PIECE_BYTES) {
        hash.update(piece);
        yield_now().await;
    }
    let hash = BASE64_URL_SAFE_NO_PAD.encode(&hash.finish().as_ref()[..TAG_BYTES]);
    HeaderValue::try_from(format!("W/\"{hash}\"")).unwrap_or(HeaderValue::from_static("W/\"\""))
}

/// The body in gzip, unless that is larger.
async fn compressed(body: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in body.chunks(PIECE_BYTES) {
        // Writing into memory cannot fail.
        encoder.write_all(piece).ok()?;
        yield_now().await;
    }
    let compressed = encoder.finish().ok()?;
    (compressed.len() < body.len()).then(|| compressed.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer;
    use http::Request;
    use throng_testing::block_on;

    #[test]
    fn only_reads_are_answered_by_304() {
        for (method, status) in [(Method::GET, 304), (Method::HEAD, 304), (Method::POST, 200)] {
            let request = Request::builder().method(&method).header(header::IF_NONE_MATCH, "*");
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let answered = block_on(coded(Ok(answer::json(vec![b'0'; 2 * BYTES_MIN])), &parts));
            assert_eq!(answered.unwrap().status(), status, "{method}");
        }
    }
}
