//! `/console`: the page. Its files are built by `console/` and are part of the binary, compressed once.

use crate::{
    answer::{self, ResponseBody},
    problem::{Answered, Problem},
    request::headers,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use ring::digest::{SHA256, digest};
use std::{io::Write as _, sync::LazyLock};

/// Files that the build of `console/` writes.
const FILES: [(&str, &[u8]); 4] = [
    ("index.html", include_bytes!("../../console/index.html")),
    ("console.js", include_bytes!("../../console/console.js")),
    ("console.css", include_bytes!("../../console/console.css")),
    ("icons.svg", include_bytes!("../../console/icons.svg")),
];

/// Allows only this server's own files.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// A file with its headers, compressed once.
struct Page {
    name: &'static str,
    media: HeaderValue,
    tag: HeaderValue,
    plain: Bytes,
    compressed: Bytes,
}

static PAGES: LazyLock<Vec<Page>> =
    LazyLock::new(|| FILES.iter().map(|(name, bytes)| Page::new(name, bytes)).collect());

impl Page {
    fn new(name: &'static str, plain: &'static [u8]) -> Self {
        let hash = digest(&SHA256, plain);
        let tag = format!("\"{}\"", BASE64_URL_SAFE_NO_PAD.encode(&hash.as_ref()[..12]));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let compressed = encoder.write_all(plain).and_then(|()| encoder.finish());
        Self {
            name,
            media: HeaderValue::from_static(media(name)),
            tag: HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\"")),
            plain: Bytes::from_static(plain),
            compressed: compressed.map_or(Bytes::from_static(plain), Bytes::from),
        }
    }
}

fn media(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// True for the path of the console's page or one of its files.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}

/// Answers a path of the page. It holds no data.
pub(crate) fn answer(parts: &Parts) -> Answered<Response<ResponseBody>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Problem::method_not_allowed(&parts.method, "GET, HEAD").boxed());
    }
    let path = parts.uri.path();
    if path == "/console" {
        // The files are named relative to this path.
        let mut response = Response::new(ResponseBody::Whole(None));
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        let location = HeaderValue::from_static("/console/");
        response.headers_mut().insert(header::LOCATION, location);
        return Ok(response);
    }
    let name = match path.strip_prefix("/console/") {
        Some("") => "index.html",
        Some(name) => name,
        None => return Err(Problem::unknown_route(path).boxed()),
    };
    let Some(page) = PAGES.iter().find(|page| page.name == name) else {
        return Err(Problem::unknown_route(path).boxed());
    };
    Ok(sent(page, parts))
}

fn sent(page: &Page, parts: &Parts) -> Response<ResponseBody> {
    let is_known = headers::knows(&parts.headers, &page.tag);
    let takes_gzip = headers::takes_gzip(&parts.headers);
    let body = if takes_gzip { &page.compressed } else { &page.plain };
    let mut response = answer::bytes(body.clone(), page.media.clone());
    if is_known {
        response = Response::new(ResponseBody::Whole(None));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    if takes_gzip && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::ETAG, page.tag.clone());
    // Requested again each time, and answered with 304: a new program has new files.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
