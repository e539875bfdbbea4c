//! A request as bytes, formatted once and sent many times.

use std::fmt::Write as _;
use std::sync::Arc;

/// A whole HTTP/1.1 request as it is sent. Clones share the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    bytes: Arc<[u8]>,
}

impl Request {
    /// Starts a request. `path` begins with `/`, and `host` is the `Host` header.
    pub fn build(method: &str, host: &str, path: &str) -> RequestBuilder {
        let mut head = String::with_capacity(128);
        let _ = write!(head, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
        RequestBuilder {
            head,
            body: Vec::new(),
            has_body: matches!(method, "POST" | "PUT" | "PATCH"),
        }
    }

    /// Returns a `GET` of a path without further headers.
    pub fn get(host: &str, path: &str) -> Self {
        Request::build("GET", host, path).finish()
    }

    /// Returns a request of these bytes, which must be a whole one.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Request { bytes: bytes.into() }
    }

    /// Returns the bytes that are sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Collects headers and body of a [`Request`].
#[derive(Debug, Clone)]
pub struct RequestBuilder {
    head: String,
    body: Vec<u8>,
    has_body: bool,
}

impl RequestBuilder {
    /// Adds a header. `Host` and `Content-Length` are added automatically.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    /// Sets the body. Its `Content-Length` is added automatically.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.has_body = true;
        self
    }

    /// Sets a JSON body and its content type.
    pub fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body.as_bytes())
    }

    /// Returns the bytes of the whole request, for arenas that hold many.
    pub fn into_bytes(mut self) -> Vec<u8> {
        if self.has_body {
            let _ = write!(self.head, "Content-Length: {}\r\n", self.body.len());
        }
        self.head.push_str("\r\n");
        let mut bytes = self.head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Returns the finished request.
    pub fn finish(self) -> Request {
        Request::from_bytes(self.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_announces_the_length_of_its_body() {
        let request = Request::build("POST", "a:1", "/x").json("{}").finish();
        assert_eq!(
            std::str::from_utf8(request.bytes()).unwrap(),
            "POST /x HTTP/1.1\r\nHost: a:1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        );
    }

    #[test]
    fn a_get_has_no_length() {
        assert_eq!(Request::get("a", "/").bytes(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}
