//! Converts a request to the bytes of its answer. It does no I/O.

use super::request::{Refusal, Request};
use serde::Serialize;
use serde_json::value::RawValue;

/// The answer to a request.
#[derive(Serialize)]
struct Echo<'a> {
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
}

/// Writes answers one after another, and keeps its scratch space between them.
#[derive(Default)]
pub(crate) struct AnswerWriter {
    body: Vec<u8>,
}

impl AnswerWriter {
    /// Appends the answer to `output`: the echo, or 400 if the body is not JSON.
    pub(crate) fn answer(&mut self, request: &Request<'_>, output: &mut Vec<u8>) {
        let body = match request.body {
            [] => None,
            bytes => match serde_json::from_slice::<&RawValue>(bytes) {
                Ok(body) => Some(body),
                Err(_) => {
                    return append(
                        output,
                        "400 Bad Request",
                        request.keep_alive,
                        br#"{"error":"the body is not JSON"}"#,
                    );
                }
            },
        };
        self.body.clear();
        let echo = Echo {
            method: request.method,
            path: request.path,
            body,
        };
        serde_json::to_writer(&mut self.body, &echo).expect("strings and JSON can be written as JSON to memory");
        append(output, "200 OK", request.keep_alive, &self.body);
    }

    /// Appends the last answer of a connection whose bytes cannot be parsed further.
    pub(crate) fn refuse(&mut self, refusal: Refusal, output: &mut Vec<u8>) {
        let (status, body): (_, &[u8]) = match refusal {
            Refusal::Malformed => ("400 Bad Request", br#"{"error":"this is not an HTTP/1.1 request"}"#),
            Refusal::LengthRequired => (
                "411 Length Required",
                br#"{"error":"send the body with a content-length"}"#,
            ),
            Refusal::BodyTooLarge => ("413 Content Too Large", br#"{"error":"the body is longer than 1 MiB"}"#),
            Refusal::HeaderTooLarge => (
                "431 Request Header Fields Too Large",
                br#"{"error":"the header is longer than 16 KiB or has more than 64 fields"}"#,
            ),
        };
        append(output, status, false, body);
    }
}

fn append(output: &mut Vec<u8>, status: &str, keep_alive: bool, body: &[u8]) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_bytes());
    output.extend_from_slice(b"\r\ncontent-type: application/json\r\ncontent-length: ");
    append_decimal(output, body.len());
    if !keep_alive {
        output.extend_from_slice(b"\r\nconnection: close");
    }
    output.extend_from_slice(b"\r\n\r\n");
    output.extend_from_slice(body);
}

fn append_decimal(output: &mut Vec<u8>, mut number: usize) {
    let start = output.len();
    loop {
        output.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    output[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::super::request::{Parsed, parse};
    use super::*;

    fn answer_to(input: &[u8]) -> String {
        let mut output = Vec::new();
        match parse(input) {
            Parsed::Whole(request) => AnswerWriter::default().answer(&request, &mut output),
            Parsed::Refused(refusal) => AnswerWriter::default().refuse(refusal, &mut output),
            Parsed::Partial => panic!("the test's request is not whole"),
        }
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn an_answer_names_the_request_and_repeats_its_body() {
        let answer = answer_to(b"PATCH /s?x=\"1\" HTTP/1.1\r\ncontent-length: 11\r\n\r\n{ \"a\": [1]}");
        let body = r#"{"method":"PATCH","path":"/s?x=\"1\"","body":{ "a": [1]}}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        assert_eq!(answer, head + body);
    }

    #[test]
    fn a_body_that_is_not_json_is_refused_and_the_connection_kept() {
        let answer = answer_to(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n{a}");
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }

    #[test]
    fn a_client_that_wants_the_connection_closed_is_told_so() {
        let answer = answer_to(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }

    #[test]
    fn each_refusal_has_its_status_and_closes() {
        let status = |input: &[u8]| {
            let answer = answer_to(input);
            assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
            answer[9..12].to_string()
        };
        assert_eq!(status(b"\x00"), "400");
        assert_eq!(status(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), "411");
        assert_eq!(status(b"POST / HTTP/1.1\r\ncontent-length: 1048577\r\n\r\n"), "413");
        assert_eq!(status(&[b'a'; 16 * 1024 + 1]), "431");
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 99, 100, 1_048_576, usize::MAX] {
            let mut output = b"n=".to_vec();
            append_decimal(&mut output, number);
            assert_eq!(String::from_utf8(output).unwrap(), format!("n={number}"));
        }
    }
}
