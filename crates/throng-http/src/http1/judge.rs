//! Examines requests that the fast path does not answer: finds what is wrong, or how far the request extends.

use super::chunks::Chunks;
use crate::{
    limits::{HEADER_BYTES_MIN, Limits},
    problem::Problem,
    request::rules,
};

/// The preface of an HTTP/2 connection (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The most header fields of a request, on any path.
const FIELDS_MAX: usize = 100;

/// The verdict on the received bytes, as far as the head allows one.
pub(crate) enum Judged {
    /// An HTTP/2 connection begins.
    Http2,
    /// The end of the request is unknown: everything that arrives belongs to it, and the connection ends.
    Unreadable,
    /// The request is answered with this problem, and the connection ends.
    Wrong(Box<Problem>),
    Request(Extent),
}

/// The extent of a request among the bytes that arrive.
#[derive(Debug)]
pub(crate) enum Extent {
    /// The number of bytes still to come.
    Bytes(u64),
    /// The bytes still to come of the head, and then a body in chunks.
    Chunked(u64, Chunks),
    /// All that comes.
    All,
}

impl Extent {
    /// Returns how many of these bytes belong to the request, and counts them.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::All => bytes.len(),
            Self::Bytes(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                taken
            }
            Self::Chunked(head, chunks) => {
                let of_head = bytes.len().min(usize::try_from(*head).unwrap_or(usize::MAX));
                *head -= of_head as u64;
                match chunks.take(&bytes[of_head..]) {
                    Some(of_body) => of_head + of_body,
                    // The reader of the chunks finds the error too, and ends the connection.
                    None => {
                        *self = Self::All;
                        bytes.len()
                    }
                }
            }
        }
    }

    /// True if all of the request has arrived.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::All => false,
            Self::Bytes(left) => *left == 0,
            Self::Chunked(head, chunks) => *head == 0 && chunks.is_over(),
        }
    }
}

/// Judges the request at the beginning of these bytes.
pub(crate) fn judge(bytes: &[u8], limits: &Limits) -> Judged {
    if bytes.starts_with(PREFACE) {
        return Judged::Http2;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= limits.header_bytes_max.max(HEADER_BYTES_MIN) => head,
        _ => return Judged::Unreadable,
    };
    let (Some(target), Some(version)) = (request.path, request.version) else {
        return Judged::Unreadable;
    };
    if rules::path_of(target).is_none() {
        let detail = "The request's target holds a character that has to be percent-encoded there, or a fragment (#). Nothing was done.";
        return Judged::Wrong(Problem::malformed(detail).boxed());
    }
    let found = host(request.headers, version).and_then(|()| extent(request.headers, version, head, limits));
    found.map_or_else(Judged::Wrong, Judged::Request)
}

/// RFC 9112 §3.2.
fn host(fields: &[httparse::Header<'_>], version: u8) -> Result<(), Box<Problem>> {
    let mut hosts = named(fields, "host");
    let wrong = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => "is given more than once",
        (None, None) if version > 0 => "is missing",
        (Some(host), None) if !rules::is_host(host) => "is no host",
        _ => return Ok(()),
    };
    let detail = format!(
        "The header Host {wrong}; expected one, a name or an address with or without a port. Nothing was done."
    );
    Err(Problem::malformed(detail).at_field("Host").boxed())
}

/// Determines the extent by RFC 9112 §6, without its tolerance for older clients.
fn extent(fields: &[httparse::Header<'_>], version: u8, head: usize, limits: &Limits) -> Result<Extent, Box<Problem>> {
    let wrong = |field: &str, detail: &str| {
        let detail = format!("{detail} Nothing was done.");
        Err(Problem::malformed(detail).at_field(field).boxed())
    };
    let mut length = None;
    for value in named(fields, "content-length") {
        let Some(found) = rules::number(value) else {
            return wrong("Content-Length", "The header Content-Length is not a number of bytes.");
        };
        if length.is_some_and(|length| length != found) {
            return wrong(
                "Content-Length",
                "The header Content-Length is given twice, and differs.",
            );
        }
        length = Some(found);
    }
    let mut codings = named(fields, "transfer-encoding");
    if let Some(coding) = codings.next() {
        let is_chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
        return match (is_chunked, length) {
            (true, None) if version > 0 => Ok(Extent::Chunked(head as u64, Chunks::default())),
            (true, None) => wrong("Transfer-Encoding", "HTTP/1.0 knows no Transfer-Encoding."),
            (true, Some(_)) => wrong("Content-Length", "A body in chunks has no Content-Length."),
            (false, _) => wrong(
                "Transfer-Encoding",
                "A body may be coded as chunked, once, and in no other way.",
            ),
        };
    }
    match length.unwrap_or(0).checked_add(head as u64) {
        Some(length) if length <= i64::MAX as u64 => Ok(Extent::Bytes(length)),
        _ => Err(Problem::body_too_large(length, limits.body_bytes_max).boxed()),
    }
}

fn named<'a>(fields: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let fields = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    fields.map(|field| field.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent_of(text: &str) -> Option<Extent> {
        match judge(text.as_bytes(), &Limits::default()) {
            Judged::Request(extent) => Some(extent),
            _ => None,
        }
    }

    #[test]
    fn a_request_of_known_length_ends_at_its_last_byte() {
        let request = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n12345GET";
        let mut extent = extent_of(request).unwrap();
        let mut taken = 0;
        for piece in request.as_bytes().chunks(7) {
            taken += extent.take(piece);
        }
        assert!(extent.is_over());
        assert_eq!(&request[taken..], "GET");
    }

    #[test]
    fn a_chunked_body_ends_at_its_last_chunk_in_any_pieces() {
        let request = "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                       5;name=\"v\"\r\n12345\r\n0a\r\n1234567890\r\n0\r\nTrailer: x\r\n\r\nGET";
        for length in 1..request.len() {
            let mut extent = extent_of(request).unwrap();
            let taken: usize = request.as_bytes().chunks(length).map(|piece| extent.take(piece)).sum();
            assert!(extent.is_over(), "{length}");
            assert_eq!(&request[taken..], "GET", "{length}");
        }
    }

    #[test]
    fn a_malformed_request_has_no_end() {
        for text in [
            "GET /a HTTP/1.1\r\nhost",
            "\u{1}",
            "GET /a HTTP/9.9\r\n\r\n",
            "GET /a b HTTP/1.1\r\n\r\n",
        ] {
            assert!(
                matches!(judge(text.as_bytes(), &Limits::default()), Judged::Unreadable),
                "{text}"
            );
        }
        assert!(matches!(judge(PREFACE, &Limits::default()), Judged::Http2));
    }
}
