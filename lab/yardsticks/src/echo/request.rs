//! Parses bytes to a request without I/O. When more bytes have arrived, it parses again from the start of the request.

use httparse::{EMPTY_HEADER, Header, Status};

/// The most header fields of a request.
pub const HEADERS_MAX: usize = 64;
/// The most bytes of request line and header together.
pub const HEADER_BYTES_MAX: usize = 16 << 10;
/// The most bytes of a body.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A complete request, borrowed from the bytes read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    /// True if the connection stays open after the answer.
    pub(crate) keep_alive: bool,
    /// The bytes from the start of the request to the start of the next one.
    pub(crate) bytes: usize,
}

/// The result of parsing the available bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The start of a request. More bytes are needed.
    Partial,
    /// A complete request. More may follow it.
    Whole(Request<'a>),
    /// This server does not accept the request. The next request has no known start, so the connection must be closed.
    Refused(Refusal),
}

/// The reason why bytes are not a request that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    LengthRequired,
    HeaderTooLarge,
    BodyTooLarge,
}

pub(crate) fn parse(input: &[u8]) -> Parsed<'_> {
    let mut fields = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let head_bytes = match head.parse(input) {
        Ok(Status::Complete(bytes)) if bytes <= HEADER_BYTES_MAX => bytes,
        Ok(Status::Partial) if input.len() <= HEADER_BYTES_MAX => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(Refusal::HeaderTooLarge),
        Err(_) => return Parsed::Refused(Refusal::Malformed),
    };
    let (Some(method), Some(path), Some(minor_version)) = (head.method, head.path, head.version) else {
        return Parsed::Refused(Refusal::Malformed);
    };
    let framing = match Framing::of(head.headers, minor_version) {
        Ok(framing) => framing,
        Err(refusal) => return Parsed::Refused(refusal),
    };
    let bytes = head_bytes + framing.body_bytes;
    match input.get(head_bytes..bytes) {
        None => Parsed::Partial,
        Some(body) => Parsed::Whole(Request {
            method,
            path,
            body,
            keep_alive: framing.keep_alive,
            bytes,
        }),
    }
}

/// The header's information on the end of the request and of the connection.
struct Framing {
    body_bytes: usize,
    keep_alive: bool,
}

impl Framing {
    fn of(fields: &[Header<'_>], minor_version: u8) -> Result<Self, Refusal> {
        let mut body_bytes = None;
        let mut keep_alive = minor_version == 1;
        for field in fields {
            if field.name.eq_ignore_ascii_case("content-length") {
                let length = content_length(field.value)?;
                if body_bytes.replace(length).is_some_and(|earlier| earlier != length) {
                    return Err(Refusal::Malformed);
                }
            } else if field.name.eq_ignore_ascii_case("connection") {
                keep_alive = match field.value {
                    value if value.eq_ignore_ascii_case(b"close") => false,
                    value if value.eq_ignore_ascii_case(b"keep-alive") => true,
                    _ => keep_alive,
                };
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(Refusal::LengthRequired);
            }
        }
        Ok(Self {
            body_bytes: body_bytes.unwrap_or(0),
            keep_alive,
        })
    }
}

/// Parses a length by RFC 9110 §8.6: digits only, no sign.
fn content_length(value: &[u8]) -> Result<usize, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::Malformed);
    }
    let length = value.iter().fold(0_usize, |length, digit| {
        length.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    });
    if length > BODY_BYTES_MAX {
        Err(Refusal::BodyTooLarge)
    } else {
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADD: &[u8] = b"POST /api/section/S1/add HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"student\":\"7\"}";

    fn whole(input: &[u8]) -> Request<'_> {
        match parse(input) {
            Parsed::Whole(request) => request,
            other => panic!("expected a whole request, got {other:?}"),
        }
    }

    #[test]
    fn a_request_is_split_into_method_path_and_body() {
        let request = whole(ADD);
        assert_eq!((request.method, request.path), ("POST", "/api/section/S1/add"));
        assert_eq!(request.body, br#"{"student":"7"}"#);
        assert_eq!((request.keep_alive, request.bytes), (true, ADD.len()));
    }

    #[test]
    fn every_prefix_of_a_request_is_partial() {
        for length in 0..ADD.len() {
            assert_eq!(parse(&ADD[..length]), Parsed::Partial, "{length} bytes");
        }
    }

    #[test]
    fn a_second_request_is_left_for_the_next_turn() {
        let input = [ADD, b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(whole(&input).bytes, ADD.len());
        assert_eq!(whole(&input[ADD.len()..]).method, "GET");
    }

    #[test]
    fn connection_field_and_version_decide_on_keep_alive() {
        assert!(whole(b"GET / HTTP/1.1\r\n\r\n").keep_alive);
        assert!(!whole(b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keep_alive);
        assert!(!whole(b"GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(whole(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").keep_alive);
    }

    #[test]
    fn unframable_requests_are_refused() {
        let refused = |input: &[u8], refusal| assert_eq!(parse(input), Parsed::Refused(refusal));
        refused(b"\x00\x01\x02", Refusal::Malformed);
        refused(b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", Refusal::Malformed);
        refused(
            b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            Refusal::Malformed,
        );
        refused(
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            Refusal::LengthRequired,
        );
        refused(
            b"POST / HTTP/1.1\r\ncontent-length: 1048577\r\n\r\n",
            Refusal::BodyTooLarge,
        );
        refused(
            b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
            Refusal::BodyTooLarge,
        );
    }

    #[test]
    fn headers_end_at_their_limits() {
        let request = |fields: usize, padding: usize| {
            format!(
                "GET / HTTP/1.1\r\n{}p: {}\r\n\r\n",
                "a: b\r\n".repeat(fields),
                "x".repeat(padding)
            )
        };
        whole(request(HEADERS_MAX - 1, 1).as_bytes());
        assert_eq!(
            parse(request(HEADERS_MAX, 1).as_bytes()),
            Parsed::Refused(Refusal::HeaderTooLarge)
        );

        let around = request(0, 0).len();
        whole(request(0, HEADER_BYTES_MAX - around).as_bytes());
        let above = request(0, HEADER_BYTES_MAX - around + 1);
        assert_eq!(parse(above.as_bytes()), Parsed::Refused(Refusal::HeaderTooLarge));
        let endless = format!("GET / HTTP/1.1\r\np: {}", "x".repeat(HEADER_BYTES_MAX));
        assert_eq!(parse(endless.as_bytes()), Parsed::Refused(Refusal::HeaderTooLarge));
    }

    proptest! {
        #[test]
        fn any_body_comes_back_byte_for_byte(body in proptest::collection::vec(any::<u8>(), 0..2000), after in ".{0,40}") {
            let head = format!("PUT /x HTTP/1.1\r\nhost: y\r\ncontent-length: {}\r\n\r\n", body.len());
            let input = [head.as_bytes(), &body, after.as_bytes()].concat();
            let request = whole(&input);
            prop_assert_eq!(request.body, &body[..]);
            prop_assert_eq!(request.bytes, head.len() + body.len());
        }

        #[test]
        fn no_bytes_make_it_panic(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Parsed::Whole(request) = parse(&input) {
                prop_assert!(request.bytes <= input.len());
            }
        }
    }
}
