//! Parses answers as their bytes arrive. It has no socket and no clock.

use crate::{ErrorKind, ResponseParts};

const HEAD_BYTES_MAX: usize = 64 * 1024;
pub(crate) const BODY_KEPT_BYTES_MAX: usize = 1024 * 1024;
const HEADERS_MAX: usize = 96;

/// Parses the answers of one connection, one after another.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    stage: Stage,
    head: Vec<u8>,
    body: Vec<u8>,
    status: u16,
    keep_alive: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Head,
    Fixed {
        left: u64,
    },
    ToClose,
    ChunkSize {
        size: u64,
        digits: u8,
    },
    /// The rest of a size line: the extension and the line end.
    ChunkLine {
        size: u64,
    },
    ChunkData {
        left: u64,
    },
    ChunkEnd,
    /// The trailers after the last chunk. `blank` is true while the line has nothing but a line end.
    Trailer {
        blank: bool,
    },
}

/// The result of feeding bytes.
#[derive(Debug)]
pub(crate) enum Fed<'a> {
    /// All bytes were taken, and more are needed.
    More,
    /// An answer is complete after `used` of the bytes. Call [`Parser::reset`] after using it.
    Done {
        used: usize,
        answer: ResponseParts<'a>,
        keep_alive: bool,
    },
    /// The bytes do not parse, so the connection is unusable.
    Broken(ErrorKind),
}

struct Head {
    bytes: usize,
    status: u16,
    keep_alive: bool,
    stage: Stage,
}

impl Parser {
    /// Returns true while nothing of an answer has arrived.
    pub(crate) fn is_fresh(&self) -> bool {
        self.stage == Stage::Head && self.head.is_empty()
    }

    /// Prepares for the next answer.
    pub(crate) fn reset(&mut self) {
        self.stage = Stage::Head;
        self.head.clear();
        self.body.clear();
    }

    /// Parses the next bytes. `no_body` is true for the answer to a `HEAD` request.
    pub(crate) fn feed<'a>(&'a mut self, data: &'a [u8], no_body: bool) -> Fed<'a> {
        let mut used = 0;
        while self.stage == Stage::Head {
            let buffered = self.head.len();
            let parsed = if buffered == 0 {
                parse_head(&data[used..], no_body)
            } else {
                self.head.extend_from_slice(&data[used..]);
                parse_head(&self.head, no_body)
            };
            match parsed {
                Err(kind) => return Fed::Broken(kind),
                Ok(None) => {
                    if buffered == 0 {
                        self.head.extend_from_slice(&data[used..]);
                    }
                    return if self.head.len() > HEAD_BYTES_MAX {
                        Fed::Broken(ErrorKind::TooLarge)
                    } else {
                        Fed::More
                    };
                }
                Ok(Some(head)) => {
                    let begin = used;
                    used += head.bytes - buffered;
                    if (100..200).contains(&head.status) && head.status != 101 {
                        self.head.clear();
                        continue; // an interim answer: the real one follows
                    }
                    if let Stage::Fixed { left } = head.stage
                        && buffered == 0
                        && left <= (data.len() - used) as u64
                    {
                        let end = used + left as usize;
                        let answer = ResponseParts {
                            status: head.status,
                            head: &data[begin..used],
                            body: &data[used..end],
                        };
                        return Fed::Done {
                            used: end,
                            answer,
                            keep_alive: head.keep_alive,
                        };
                    }
                    if buffered == 0 {
                        self.head.extend_from_slice(&data[begin..used]);
                    } else {
                        self.head.truncate(head.bytes);
                    }
                    self.status = head.status;
                    self.keep_alive = head.keep_alive;
                    self.stage = head.stage;
                }
            }
        }
        match self.take_body(&data[used..]) {
            Ok(None) => Fed::More,
            Ok(Some(taken)) => Fed::Done {
                used: used + taken,
                answer: self.answer(),
                keep_alive: self.keep_alive,
            },
            Err(kind) => Fed::Broken(kind),
        }
    }

    /// The peer has closed: the answer that ends there, if that is how its length is told.
    pub(crate) fn closed(&self) -> Option<ResponseParts<'_>> {
        (self.stage == Stage::ToClose).then(|| self.answer())
    }

    fn answer(&self) -> ResponseParts<'_> {
        ResponseParts {
            status: self.status,
            head: &self.head,
            body: &self.body,
        }
    }

    fn keep(&mut self, data: &[u8]) {
        let room = BODY_KEPT_BYTES_MAX - self.body.len();
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }

    /// Returns the number of bytes of `data` that end the body, or `None` if it goes on.
    fn take_body(&mut self, data: &[u8]) -> Result<Option<usize>, ErrorKind> {
        let mut at = 0;
        loop {
            match self.stage {
                Stage::Head => return Ok(None),
                Stage::ToClose => {
                    self.keep(&data[at..]);
                    return Ok(None);
                }
                Stage::Fixed { left } | Stage::ChunkData { left } => {
                    let take = left.min((data.len() - at) as u64) as usize;
                    self.keep(&data[at..at + take]);
                    at += take;
                    let left = left - take as u64;
                    let fixed = matches!(self.stage, Stage::Fixed { .. });
                    match (left, fixed) {
                        (0, true) => return Ok(Some(at)),
                        (0, false) => self.stage = Stage::ChunkEnd,
                        (_, true) => self.stage = Stage::Fixed { left },
                        (_, false) => self.stage = Stage::ChunkData { left },
                    }
                }
                _ => {}
            }
            let Some(&byte) = data.get(at) else { return Ok(None) };
            match self.stage {
                Stage::ChunkSize { size, digits } => match (byte as char).to_digit(16) {
                    Some(digit) if digits < 15 => {
                        self.stage = Stage::ChunkSize {
                            size: size * 16 + u64::from(digit),
                            digits: digits + 1,
                        };
                        at += 1;
                    }
                    None if digits > 0 => self.stage = Stage::ChunkLine { size },
                    _ => return Err(ErrorKind::Garbage),
                },
                Stage::ChunkLine { size } => {
                    at += 1;
                    if byte == b'\n' {
                        self.stage = if size == 0 {
                            Stage::Trailer { blank: true }
                        } else {
                            Stage::ChunkData { left: size }
                        };
                    }
                }
                Stage::ChunkEnd => {
                    at += 1;
                    match byte {
                        b'\r' => {}
                        b'\n' => self.stage = Stage::ChunkSize { size: 0, digits: 0 },
                        _ => return Err(ErrorKind::Garbage),
                    }
                }
                Stage::Trailer { blank } => {
                    at += 1;
                    match byte {
                        b'\n' if blank => return Ok(Some(at)),
                        b'\n' => self.stage = Stage::Trailer { blank: true },
                        b'\r' => {}
                        _ => self.stage = Stage::Trailer { blank: false },
                    }
                }
                _ => return Ok(None),
            }
        }
    }
}

/// Returns the head at the start of `data`, if it is complete.
fn parse_head(data: &[u8], no_body: bool) -> Result<Option<Head>, ErrorKind> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, data, &mut headers);
    let bytes = match parsed {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ErrorKind::TooLarge),
        Err(_) => return Err(ErrorKind::Garbage),
    };
    let status = response.code.unwrap_or(0);
    let mut keep_alive = response.version == Some(1);
    let mut length = None;
    let mut chunked = false;
    for header in response.headers.iter() {
        // The length is compared first. Nearly every header is skipped by that alone.
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let found = length_of(header.value)?;
                if length.is_some_and(|length| length != found) {
                    return Err(ErrorKind::Lengths);
                }
                length = Some(found);
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                chunked = header.value.to_ascii_lowercase().ends_with(b"chunked");
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                if header.value.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if header.value.eq_ignore_ascii_case(b"keep-alive") {
                    keep_alive = true;
                }
            }
            _ => {}
        }
    }
    if chunked && length.is_some() {
        return Err(ErrorKind::Lengths);
    }
    let stage = if no_body || status < 200 || status == 204 || status == 304 {
        Stage::Fixed { left: 0 }
    } else if chunked {
        Stage::ChunkSize { size: 0, digits: 0 }
    } else if let Some(left) = length {
        Stage::Fixed { left }
    } else {
        keep_alive = false;
        Stage::ToClose
    };
    Ok(Some(Head {
        bytes,
        status,
        keep_alive,
        stage,
    }))
}

/// Returns the value of `Content-Length`: a number, or the same number in a list.
fn length_of(value: &[u8]) -> Result<u64, ErrorKind> {
    let mut length = None;
    for part in value.split(|byte| *byte == b',') {
        let text = std::str::from_utf8(part.trim_ascii()).map_err(|_| ErrorKind::Garbage)?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ErrorKind::Garbage);
        }
        let found = text.parse::<u64>().map_err(|_| ErrorKind::Garbage)?;
        if length.is_some_and(|length| length != found) {
            return Err(ErrorKind::Lengths);
        }
        length = Some(found);
    }
    length.ok_or(ErrorKind::Garbage)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status and body of every answer in `data`, which is fed in pieces of `piece` bytes.
    fn all(data: &[u8], piece: usize) -> Result<Vec<(u16, String)>, ErrorKind> {
        let mut parser = Parser::default();
        let mut answers = Vec::new();
        for mut part in data.chunks(piece) {
            while !part.is_empty() {
                let used = match parser.feed(part, false) {
                    Fed::More => part.len(),
                    Fed::Broken(kind) => return Err(kind),
                    Fed::Done { used, answer, .. } => {
                        answers.push((answer.status, String::from_utf8(answer.body.to_vec()).unwrap()));
                        parser.reset();
                        used
                    }
                };
                part = &part[used..];
            }
        }
        Ok(answers)
    }

    #[test]
    fn answers_are_the_same_however_their_bytes_are_cut() {
        let data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let expected = vec![
            (200, "hello".to_string()),
            (201, "abc0123456789abcdef".to_string()),
            (204, String::new()),
            (404, String::new()),
        ];
        for piece in 1..data.len() {
            assert_eq!(all(data, piece), Ok(expected.clone()), "in pieces of {piece}");
        }
    }

    #[test]
    fn bytes_that_are_not_http_are_garbage() {
        for data in [
            &b"\x16\x03\x01 not http at all"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        ] {
            assert_eq!(all(data, data.len()), Err(ErrorKind::Garbage));
        }
    }

    #[test]
    fn lengths_that_differ_are_no_length() {
        for fields in [
            "Content-Length: 2\r\nContent-Length: 3",
            "Content-Length: 2, 3",
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
        ] {
            let data = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nabc");
            assert_eq!(all(data.as_bytes(), data.len()), Err(ErrorKind::Lengths), "{fields}");
        }
        let data = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2, 2\r\n\r\nab";
        assert_eq!(all(data, data.len()), Ok(vec![(200, "ab".to_string())]));
        let data = b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab";
        assert_eq!(all(data, data.len()), Err(ErrorKind::Garbage));
    }

    #[test]
    fn an_endless_head_is_given_up() {
        let mut data = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
        data.resize(HEAD_BYTES_MAX + 100, b'a');
        assert_eq!(all(&data, 1000), Err(ErrorKind::TooLarge));
    }

    #[test]
    fn an_answer_without_length_ends_with_the_connection() {
        let mut parser = Parser::default();
        assert!(matches!(
            parser.feed(b"HTTP/1.1 200 OK\r\n\r\npartial", false),
            Fed::More
        ));
        assert_eq!(
            parser.closed().map(|answer| answer.body.to_vec()),
            Some(b"partial".to_vec())
        );
    }

    #[test]
    fn an_answer_to_head_has_no_body_whatever_it_announces() {
        let mut parser = Parser::default();
        let fed = parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", true);
        assert!(matches!(fed, Fed::Done { used: 39, .. }), "{fed:?}");
    }

    #[test]
    fn no_bytes_whatever_make_it_panic_or_take_more_than_there_are() {
        use rand::rngs::SmallRng;
        use rand::{RngExt as _, SeedableRng as _};
        let mut random = SmallRng::seed_from_u64(11);
        let good =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Something--: 7\r\n\r\n3;x\r\nabc\r\nfffffff\r\n";
        for _ in 0..20_000 {
            let mut data = good.to_vec();
            for _ in 0..random.random_range(1..6) {
                let place = random.random_range(0..data.len());
                data[place] = random.random();
            }
            let mut parser = Parser::default();
            for part in data.chunks(random.random_range(1..=data.len())) {
                match parser.feed(part, false) {
                    Fed::More => {}
                    Fed::Done { used, .. } => {
                        assert!(used <= part.len());
                        break;
                    }
                    Fed::Broken(_) => break,
                }
            }
        }
    }
}
