//! The head of a request, without I/O: is it one of the plain ones the lane answers?

use crate::request::rules;
use std::{mem::MaybeUninit, ops::Range, str::from_utf8};

/// Header fields of a plain request at most.
const FIELDS_MAX: usize = 48;

/// Where the header fields of a head are kept while it is looked at.
pub(super) struct Room<'a>([MaybeUninit<httparse::Header<'a>>; FIELDS_MAX]);

impl Room<'_> {
    pub(super) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; FIELDS_MAX])
    }
}

/// What stands at the beginning of the bytes that have come.
pub(super) enum Parsed<'a, 'room> {
    /// The beginning of a head.
    Partial,
    /// A plain request, as far as its head says.
    Plain(Head<'a, 'room>),
    /// Something else: HTTP/2, an upgrade, a chunked or very large body, or no HTTP at all.
    Odd,
}

/// The head of a plain HTTP/1.1 request.
pub(super) struct Head<'a, 'room> {
    pub(super) method: &'a str,
    /// Path and query, as they came.
    pub(super) target: &'a str,
    fields: &'room [httparse::Header<'a>],
    /// The body, among the bytes that have come or will.
    pub(super) body: Range<usize>,
    /// The client asks for the end of the connection.
    pub(super) closes: bool,
}

impl<'a> Head<'a, '_> {
    pub(super) fn path(&self) -> &'a str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }

    /// The header fields, as they came.
    pub(super) fn fields(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }
}

/// Reads a head. What is not plainly one of the lane's is odd, so that one place judges all that is wrong with a request.
pub(super) fn parse<'a, 'room>(
    bytes: &'a [u8],
    room: &'room mut Room<'a>,
    head_bytes_max: usize,
    body_bytes_max: usize,
) -> Parsed<'a, 'room> {
    let mut request = httparse::Request::new(&mut []);
    let head_bytes = match request.parse_with_uninit_headers(bytes, &mut room.0) {
        Ok(httparse::Status::Complete(length)) if length <= head_bytes_max => length,
        Ok(httparse::Status::Partial) if bytes.len() < head_bytes_max => return Parsed::Partial,
        _ => return Parsed::Odd,
    };
    let (Some(method), Some(target), Some(1)) = (request.method, request.path, request.version) else {
        return Parsed::Odd;
    };
    if !target.starts_with('/') || !rules::is_target(target) || matches!(method, "CONNECT" | "HEAD") {
        return Parsed::Odd;
    }
    let mut head = Head {
        method,
        target,
        fields: request.headers,
        body: head_bytes..head_bytes,
        closes: false,
    };
    match framing(&head, body_bytes_max) {
        Some((length, closes)) => {
            head.body.end += length;
            head.closes = closes;
            Parsed::Plain(head)
        }
        None => Parsed::Odd,
    }
}

/// The length of the body and whether the connection ends after it; `None` if that, or the host, is not plainly said.
fn framing(head: &Head<'_, '_>, body_bytes_max: usize) -> Option<(usize, bool)> {
    let (mut length, mut closes, mut hosts) = (None, false, 0);
    for (name, value) in head.fields() {
        // By length first: most names need no comparison.
        match name.len() {
            2 if name.eq_ignore_ascii_case("te") => return None,
            4 if name.eq_ignore_ascii_case("host") => {
                hosts += 1;
                if !rules::is_host(value) {
                    return None;
                }
            }
            6 if name.eq_ignore_ascii_case("expect") => return None,
            6 if name.eq_ignore_ascii_case("accept") && is_stream(value) => return None,
            7 if name.eq_ignore_ascii_case("upgrade") => return None,
            10 if name.eq_ignore_ascii_case("connection") => {
                if value.eq_ignore_ascii_case(b"close") {
                    closes = true;
                } else if !value.eq_ignore_ascii_case(b"keep-alive") {
                    return None;
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let text = from_utf8(value).ok()?;
                if length.is_some() || text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                length = Some(text.parse().ok().filter(|length| *length <= body_bytes_max)?);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => return None,
            _ => {}
        }
    }
    (hosts == 1).then_some((length.unwrap_or(0), closes))
}

/// A live stream is asked for: its end is noticed by who reads ahead.
fn is_stream(accept: &[u8]) -> bool {
    const MEDIA: &[u8] = b"text/event-stream";
    accept.windows(MEDIA.len()).any(|part| part.eq_ignore_ascii_case(MEDIA))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_MAX: usize = 16 << 10;
    const BODY_MAX: usize = 64 << 10;

    fn plain(bytes: &str) -> Option<(String, String, Range<usize>, bool)> {
        match parse(bytes.as_bytes(), &mut Room::new(), HEAD_MAX, BODY_MAX) {
            Parsed::Plain(head) => Some((head.method.into(), head.target.into(), head.body, head.closes)),
            _ => None,
        }
    }

    #[test]
    fn a_plain_request_has_a_body_of_a_known_length_or_none() {
        let request = "POST /api/a/b/c HTTP/1.1\r\nhost: x\r\nContent-Length: 2\r\n\r\n{}";
        let body = request.len() - 2..request.len();
        assert_eq!(plain(request), Some(("POST".into(), "/api/a/b/c".into(), body, false)));
        let request = "GET /x?y=1 HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n";
        assert_eq!(
            plain(request),
            Some(("GET".into(), "/x?y=1".into(), request.len()..request.len(), true))
        );
    }

    #[test]
    fn every_beginning_of_a_head_is_partial_and_the_body_is_known_before_it_is_here() {
        let request =
            "PATCH /shows/1/seats/2 HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\nconnection: keep-alive\r\n\r\n";
        for length in 0..request.len() {
            assert!(
                matches!(
                    parse(&request.as_bytes()[..length], &mut Room::new(), HEAD_MAX, BODY_MAX),
                    Parsed::Partial
                ),
                "{length}"
            );
        }
        assert_eq!(
            plain(request).map(|plain| plain.2),
            Some(request.len()..request.len() + 20)
        );
    }

    #[test]
    fn whatever_needs_more_than_a_length_is_odd() {
        for fields in [
            "transfer-encoding: chunked",
            "Transfer-Encoding: chunked\r\ncontent-length: 2",
            "content-length: 2\r\ncontent-length: 2",
            "content-length: +2",
            "content-length: 2, 2",
            "content-length:",
            "content-length: 65537",
            "content-length: 99999999999999999999999",
            "expect: 100-continue",
            "upgrade: websocket\r\nconnection: upgrade",
            "connection: keep-alive, upgrade",
            "te: trailers",
            "accept: text/html, Text/Event-Stream;q=0.9",
            "no colon",
            "bad name: x",
        ] {
            let request = format!("POST /x HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n");
            assert!(
                matches!(
                    parse(request.as_bytes(), &mut Room::new(), HEAD_MAX, BODY_MAX),
                    Parsed::Odd
                ),
                "{fields}"
            );
        }
        for line in [
            "GET /x HTTP/1.0",
            "GET http://there/x HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "CONNECT /x HTTP/1.1",
            "HEAD /x HTTP/1.1",
            "PRI * HTTP/2.0",
            "\u{1}\u{2}",
            "GET /x",
        ] {
            let request = format!("{line}\r\nhost: x\r\n\r\n");
            assert!(
                matches!(
                    parse(request.as_bytes(), &mut Room::new(), HEAD_MAX, BODY_MAX),
                    Parsed::Odd
                ),
                "{line}"
            );
        }
    }

    #[test]
    fn a_head_over_the_limit_is_odd_whether_it_is_complete_or_not() {
        let long = format!("GET /x HTTP/1.1\r\nhost: x\r\nname: {}", "v".repeat(200));
        assert!(matches!(
            parse(long.as_bytes(), &mut Room::new(), 100, BODY_MAX),
            Parsed::Odd
        ));
        assert!(matches!(
            parse(format!("{long}\r\n\r\n").as_bytes(), &mut Room::new(), 100, BODY_MAX),
            Parsed::Odd
        ));
        let many = "a: b\r\n".repeat(FIELDS_MAX + 1);
        assert!(matches!(
            parse(
                format!("GET /x HTTP/1.1\r\nhost: x\r\n{many}\r\n").as_bytes(),
                &mut Room::new(),
                HEAD_MAX,
                BODY_MAX
            ),
            Parsed::Odd
        ));
    }
}
