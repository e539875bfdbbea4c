//! Converts the bytes of an HTTP/1.1 request from a source to a request of HTTP/2.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};

use crate::ErrorKind;

const HEADERS_MAX: usize = 96;

/// Converts requests and remembers the last one, so that a constant request is parsed once.
#[derive(Debug, Default)]
pub(crate) struct Translator {
    bytes: Vec<u8>,
    last: Option<(Request<()>, Bytes)>,
}

impl Translator {
    pub(super) fn translate(&mut self, bytes: &[u8], tls: bool) -> Result<(Request<()>, Bytes), ErrorKind> {
        if let Some(last) = &self.last
            && self.bytes == bytes
        {
            return Ok(last.clone());
        }
        let translated = translate(bytes, tls).ok_or(ErrorKind::Protocol)?;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        Ok(self.last.insert(translated).clone())
    }
}

fn translate(bytes: &[u8], tls: bool) -> Option<(Request<()>, Bytes)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = parsed.parse(bytes).ok()? else {
        return None;
    };
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    let mut authority: &[u8] = b"";
    for header in parsed.headers.iter() {
        if header.name.eq_ignore_ascii_case("host") {
            authority = header.value;
        } else if !is_of_the_connection(header.name) {
            let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            request
                .headers_mut()
                .append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
    }
    *request.uri_mut() = Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(authority)
        .path_and_query(parsed.path?)
        .build()
        .ok()?;
    Some((request, Bytes::copy_from_slice(&bytes[length..])))
}

/// Returns true for headers of an HTTP/1.1 connection, which HTTP/2 forbids (RFC 9113, 8.2.2).
fn is_of_the_connection(name: &str) -> bool {
    [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ]
    .iter()
    .any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_becomes_authority_and_connection_headers_are_dropped() {
        let request = crate::Request::build("POST", "a.example:8080", "/x?y=z")
            .header("Connection", "close")
            .header("X-One", "two")
            .body("hello");
        let (request, body) = translate(&request.into_bytes(), true).unwrap();
        assert_eq!(request.uri(), "https://a.example:8080/x?y=z");
        assert_eq!(request.method(), "POST");
        let headers: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        assert_eq!(headers, [("x-one", &b"two"[..]), ("content-length", b"5")]);
        assert_eq!(body, "hello");
    }

    #[test]
    fn a_request_is_translated_anew_when_its_bytes_change() {
        let mut translator = Translator::default();
        for path in ["/a", "/b", "/b", "/c"] {
            let bytes = crate::Request::build("GET", "h", path).into_bytes();
            assert_eq!(translator.translate(&bytes, false).unwrap().0.uri().path(), path);
        }
    }

    #[test]
    fn a_malformed_request_is_an_error() {
        let mut translator = Translator::default();
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x00\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert!(translator.translate(bytes, false).is_err(), "{bytes:?}");
        }
    }
}
