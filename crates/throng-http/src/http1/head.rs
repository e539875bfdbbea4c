//! The head of a request, without I/O: can the fast path answer it?

use crate::{caller::Sender, request::rules};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{mem::MaybeUninit, ops::Range};

/// The most header fields of a plain request: as many as [`Head::telling`] has bits for.
const FIELDS_MAX: usize = 48;

/// The memory for the header fields of a head while it is examined.
pub(super) struct Room<'a> {
    fields: [MaybeUninit<httparse::Header<'a>>; FIELDS_MAX],
    /// A host that needs no check, because an earlier request of the connection had it.
    known_host: Option<&'a [u8]>,
}

impl<'a> Room<'a> {
    pub(super) fn new(known_host: Option<&'a [u8]>) -> Self {
        Self {
            fields: [const { MaybeUninit::uninit() }; FIELDS_MAX],
            known_host,
        }
    }
}

/// The request at the beginning of the received bytes.
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
    pub(super) path: &'a str,
    fields: &'room [httparse::Header<'a>],
    /// The range of the body among received and future bytes.
    pub(super) body: Range<usize>,
    /// True if the client asks for the end of the connection.
    pub(super) closes: bool,
    pub(super) sender: Sender<'a>,
    /// A bit for each field that may matter to a command.
    telling: u64,
}

impl<'a> Head<'a, '_> {
    /// Returns the header fields as received.
    pub(super) fn fields(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }

    /// Returns the header fields that may matter to a command: all but those that every client sends.
    pub(super) fn telling(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (at, (name, value)) in self.fields().enumerate() {
            if self.telling & (1 << at) != 0
                && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
                && let Ok(value) = HeaderValue::from_bytes(value)
            {
                headers.append(name, value);
            }
        }
        headers
    }
}

/// Reads a head. Anything not clearly for the fast path is odd, so that only one place judges what is wrong with a request.
pub(super) fn parse<'a, 'room>(
    bytes: &'a [u8],
    room: &'room mut Room<'a>,
    head_bytes_max: usize,
    body_bytes_max: usize,
) -> Parsed<'a, 'room> {
    let mut request = httparse::Request::new(&mut []);
    let head_bytes = match request.parse_with_uninit_headers(bytes, &mut room.fields) {
        Ok(httparse::Status::Complete(length)) if length <= head_bytes_max => length,
        Ok(httparse::Status::Partial) if bytes.len() < head_bytes_max => return Parsed::Partial,
        _ => return Parsed::Odd,
    };
    let (Some(method), Some(target), Some(1)) = (request.method, request.path, request.version) else {
        return Parsed::Odd;
    };
    let path = rules::path_of(target).filter(|path| path.starts_with('/'));
    let Some(path) = path.filter(|_| !matches!(method, "CONNECT" | "HEAD")) else {
        return Parsed::Odd;
    };
    let mut head = Head {
        method,
        target,
        path,
        fields: request.headers,
        body: head_bytes..head_bytes,
        closes: false,
        sender: Sender::default(),
        telling: 0,
    };
    match head.read(body_bytes_max, room.known_host) {
        Some(()) => Parsed::Plain(head),
        None => Parsed::Odd,
    }
}

impl Head<'_, '_> {
    /// Reads its fields; `None` if the length of the body, the connection's end, or the host is not clear.
    fn read(&mut self, body_bytes_max: usize, known_host: Option<&[u8]>) -> Option<()> {
        let (mut length, mut has_type) = (None, false);
        let fields = self.fields;
        for (at, &httparse::Header { name, value }) in fields.iter().enumerate() {
            // The length is compared first: most names need no other comparison.
            let is_usual = match name.len() {
                2 if is(name, b"te") => return None,
                4 if is(name, b"host") => {
                    let is_host = known_host == Some(value) || rules::is_host(value);
                    if self.sender.host.replace(value).is_some() || !is_host {
                        return None;
                    }
                    true
                }
                6 if is(name, b"expect") => return None,
                6 if is(name, b"accept") => {
                    if is_stream(value) {
                        return None;
                    }
                    true
                }
                6 if is(name, b"origin") => {
                    if self.sender.origin.replace(value).is_some() {
                        return None;
                    }
                    false
                }
                7 if is(name, b"upgrade") => return None,
                10 if is(name, b"connection") => {
                    if value.eq_ignore_ascii_case(b"close") {
                        self.closes = true;
                    } else if !value.eq_ignore_ascii_case(b"keep-alive") {
                        return None;
                    }
                    true
                }
                10 => is(name, b"user-agent"),
                12 if is(name, b"content-type") => {
                    if std::mem::replace(&mut has_type, true) {
                        return None;
                    }
                    self.sender.is_json = value == b"application/json";
                    self.sender.is_json
                }
                13 if is(name, b"authorization") => {
                    if self.sender.authorization.replace(value).is_some() {
                        return None;
                    }
                    true
                }
                14 if is(name, b"content-length") => {
                    let given = usize::try_from(rules::number(value)?).ok();
                    let given = given.filter(|given| *given <= body_bytes_max)?;
                    if length.replace(given).is_some() {
                        return None;
                    }
                    true
                }
                15 => is(name, b"accept-encoding") || is(name, b"accept-language"),
                17 if is(name, b"transfer-encoding") => return None,
                _ => false,
            };
            self.telling |= u64::from(!is_usual) << at;
        }
        self.body.end += length.unwrap_or(0);
        self.sender.host.map(drop)
    }
}

/// True if a field has this name, given in lower case. There is no branch for each byte, because this runs for every field.
fn is<const LENGTH: usize>(name: &str, own: &[u8; LENGTH]) -> bool {
    <&[u8; LENGTH]>::try_from(name.as_bytes()).is_ok_and(|name| {
        // Among the bytes that a name may have, only letters differ by this bit.
        let differs = |so_far: u8, (byte, own): (&u8, &u8)| so_far | ((byte | 0x20) ^ own);
        name.iter().zip(own).fold(0, differs) == 0
    })
}

/// True if a live stream is requested, whose client's leaving is noticed by reading ahead.
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
        match parse(bytes.as_bytes(), &mut Room::new(None), HEAD_MAX, BODY_MAX) {
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
    fn a_partial_head_is_partial_and_a_whole_one_knows_its_body() {
        let request =
            "PATCH /shows/1/seats/2 HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\nconnection: keep-alive\r\n\r\n";
        for length in 0..request.len() {
            assert!(
                matches!(
                    parse(&request.as_bytes()[..length], &mut Room::new(None), HEAD_MAX, BODY_MAX),
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
            "content-type: application/json\r\ncontent-type: text/plain",
            "origin: http://a\r\norigin: http://b",
            "authorization: Bearer a\r\nAuthorization: Bearer b",
            "no colon",
            "bad name: x",
        ] {
            let request = format!("POST /x HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n");
            assert!(
                matches!(
                    parse(request.as_bytes(), &mut Room::new(None), HEAD_MAX, BODY_MAX),
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
                    parse(request.as_bytes(), &mut Room::new(None), HEAD_MAX, BODY_MAX),
                    Parsed::Odd
                ),
                "{line}"
            );
        }
    }

    #[test]
    fn host_is_looked_at_unless_it_is_the_known_one() {
        let is_plain = |known: Option<&[u8]>, host: &str| {
            let request = format!("GET /x HTTP/1.1\r\nhost: {host}\r\n\r\n");
            let mut room = Room::new(known);
            matches!(
                parse(request.as_bytes(), &mut room, HEAD_MAX, BODY_MAX),
                Parsed::Plain(_)
            )
        };
        assert!(is_plain(None, "a:1") && !is_plain(None, "a/b"));
        assert!(is_plain(Some(b"a"), "a:1") && !is_plain(Some(b"a"), "a/b"));
        assert!(is_plain(Some(b"a/b"), "a/b"), "it was looked at before");
    }

    #[test]
    fn optional_headers_reach_the_command() {
        let request = "POST /api/a/b/c HTTP/1.1\r\nHOST: x\r\nUser-Agent: y\r\nAccept: */*\r\naccept-encoding: z\r\n\
                       Content-Type: application/json\r\nAuthorization: one\r\nIdempotency-Key: k\r\n\
                       x-trace: t\r\n\r\n";
        let mut room = Room::new(None);
        let Parsed::Plain(head) = parse(request.as_bytes(), &mut room, HEAD_MAX, BODY_MAX) else {
            panic!("it is plain");
        };
        let Sender {
            host,
            origin,
            authorization,
            is_json,
            ..
        } = head.sender;
        assert_eq!((host, origin), (Some(&b"x"[..]), None));
        assert_eq!((authorization, is_json), (Some(&b"one"[..]), true));
        let told = head.telling();
        let mut told: Vec<_> = told
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        told.sort_unstable();
        let expected: [(&str, &[u8]); 2] = [("idempotency-key", b"k"), ("x-trace", b"t")];
        assert_eq!(told, expected);
        let page = "POST /api/a/b/c HTTP/1.1\r\nhost: x\r\nOrigin: o\r\ncontent-type: text/plain\r\n\r\n";
        let mut room = Room::new(None);
        let Parsed::Plain(head) = parse(page.as_bytes(), &mut room, HEAD_MAX, BODY_MAX) else {
            panic!("it is plain");
        };
        assert_eq!((head.sender.origin, head.sender.is_json), (Some(&b"o"[..]), false));
        assert_eq!(head.telling().len(), 2);
    }

    #[test]
    fn a_head_over_the_limit_is_odd_whether_it_is_complete_or_not() {
        let long = format!("GET /x HTTP/1.1\r\nhost: x\r\nname: {}", "v".repeat(200));
        assert!(matches!(
            parse(long.as_bytes(), &mut Room::new(None), 100, BODY_MAX),
            Parsed::Odd
        ));
        assert!(matches!(
            parse(
                format!("{long}\r\n\r\n").as_bytes(),
                &mut Room::new(None),
                100,
                BODY_MAX
            ),
            Parsed::Odd
        ));
        let many = "a: b\r\n".repeat(FIELDS_MAX + 1);
        assert!(matches!(
            parse(
                format!("GET /x HTTP/1.1\r\nhost: x\r\n{many}\r\n").as_bytes(),
                &mut Room::new(None),
                HEAD_MAX,
                BODY_MAX
            ),
            Parsed::Odd
        ));
    }
}
