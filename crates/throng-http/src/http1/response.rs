//! The bytes of a response.

use crate::answer::OWNER;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// The framing of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// The number of bytes.
    Length(usize),
    /// Chunks, because the length is not known yet.
    Chunked,
    /// None, and no word of it: 1xx, 204, 304.
    Nothing,
}

/// Writes a reply (200), with the URL of its entity's owner if clients get it.
pub(super) fn reply(output: &mut Vec<u8>, body: &[u8], owner: Option<&HeaderValue>, date: &[u8], closes: bool) {
    output.reserve(192 + body.len());
    output.extend_from_slice(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\ncontent-length: ",
    );
    number(output, body.len());
    if let Some(owner) = owner {
        field(output, &OWNER, owner);
    }
    end(output, date, closes);
    output.extend_from_slice(body);
}

fn field(output: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(name.as_str().as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value.as_bytes());
}

/// Writes the head of any response. The fast path itself writes the fields about the framing, the connection and the date.
pub(super) fn head(
    output: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
    date: &[u8],
    closes: bool,
) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    for (name, value) in headers {
        if matches!(
            *name,
            header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::CONNECTION | header::DATE
        ) {
            continue;
        }
        field(output, name, value);
    }
    match framing {
        Framing::Length(length) => {
            output.extend_from_slice(b"\r\ncontent-length: ");
            number(output, length);
        }
        Framing::Chunked => output.extend_from_slice(b"\r\ntransfer-encoding: chunked"),
        Framing::Nothing => {}
    }
    end(output, date, closes);
}

/// Writes one chunk of a body. An empty chunk would end the body, and is left out.
pub(super) fn chunk(output: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    output.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

/// The end of a body in chunks.
pub(super) fn last_chunk(output: &mut Vec<u8>) {
    output.extend_from_slice(b"0\r\n\r\n");
}

fn end(output: &mut Vec<u8>, date: &[u8], closes: bool) {
    output.extend_from_slice(b"\r\ndate: ");
    output.extend_from_slice(date);
    output.extend_from_slice(if closes {
        b"\r\nconnection: close\r\n\r\n"
    } else {
        b"\r\n\r\n"
    });
}

fn number(output: &mut Vec<u8>, mut value: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    output.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut output = Vec::new();
        write(&mut output);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_reply_is_json_of_a_known_length() {
        let body = br#"{"taken":1}"#;
        assert_eq!(
            text(|output| reply(output, body, None, DATE, false)),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n\
             content-length: 11\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{\"taken\":1}"
        );
    }

    #[test]
    fn a_response_says_once_how_its_body_comes() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("7"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive"));
        headers.insert("x-app", HeaderValue::from_static("1"));
        let of = |framing, closes| text(|output| head(output, StatusCode::ACCEPTED, &headers, framing, DATE, closes));
        assert_eq!(
            of(Framing::Length(3), true),
            "HTTP/1.1 202 Accepted\r\nx-app: 1\r\ncontent-length: 3\r\n\
             date: Sun, 06 Nov 1994 08:49:37 GMT\r\nconnection: close\r\n\r\n"
        );
        assert!(of(Framing::Chunked, false).contains("\r\ntransfer-encoding: chunked\r\ndate"));
        assert!(of(Framing::Nothing, false).contains("x-app: 1\r\ndate"));
    }

    #[test]
    fn chunk_lengths_are_hexadecimal_and_no_chunk_is_empty() {
        assert_eq!(
            text(|output| chunk(output, &[b'x'; 26])),
            format!("1a\r\n{}\r\n", "x".repeat(26))
        );
        assert_eq!(text(|output| chunk(output, b"")), "");
        assert_eq!(text(last_chunk), "0\r\n\r\n");
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 9, 10, 1_234_567_890, usize::MAX] {
            assert_eq!(text(|output| number(output, value)), value.to_string());
        }
    }
}
