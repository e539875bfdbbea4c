//! The end of a connection: requests executed before it are answered.

use crate::support::{Client, client::request, plain};
use std::{io::Write, net::Shutdown, thread};
use throng_http::Running;

const COMMANDS: usize = 6_000;
/// The number of commands up to the one that closes the connection. Later ones are ignored.
const LAST: usize = 1_000;

/// Opens a section with room for all.
fn open(gateway: &Running) {
    Client::new(gateway).post("/api/section/S1/open", r#"{"capacity":1000000}"#);
}

fn add(student: usize, headers: &[(&str, &str)]) -> String {
    let body = format!(r#"{{"student":"{student}"}}"#);
    request("POST", "/api/section/S1/add-student", headers, &body)
}

fn enrolled(gateway: &Running) -> usize {
    let view = Client::new(gateway).get("/api/section/S1").json();
    view["students"].as_array().unwrap().len()
}

/// Pipelines commands, the last of which closes the connection, and further ones after it. Returns the statuses of the answers.
fn answers_of(gateway: &Running, last: &str, first_headers: &[(&str, &str)]) -> Vec<u16> {
    let mut client = Client::with_small_buffer(gateway);
    let mut all: String = (0..LAST - 1)
        .map(|student| add(student, if student == 0 { first_headers } else { &[] }))
        .collect();
    all += last;
    (LAST..COMMANDS).for_each(|student| all += &add(student, &[]));
    let mut writer = client.stream().try_clone().unwrap();
    let writing = thread::spawn(move || {
        // The connection may be closed before the commands after the last one are sent.
        let _ = writer.write_all(all.as_bytes());
        let _ = writer.shutdown(Shutdown::Write);
    });
    // The client reads late, and must not lose any answer.
    writing.join().unwrap();
    let mut statuses = Vec::new();
    while let Ok(answer) = client.try_answer() {
        statuses.push(answer.status);
    }
    statuses
}

#[test]
fn last_answers_reach_a_client_that_sends_on() {
    for headers in [&[][..], &[("te", "trailers")]] {
        for (last, status) in [
            (add(LAST - 1, &[("connection", "close")]), 200),
            ("this is no request\r\n\r\n".to_owned(), 400),
        ] {
            let gateway = plain();
            open(&gateway);
            let statuses = answers_of(&gateway, &last, headers);
            let executed = enrolled(&gateway);
            let answered = statuses.iter().filter(|status| **status == 200).count();
            assert_eq!(answered, executed, "{headers:?} {status}");
            assert_eq!((statuses.len(), statuses.last()), (LAST, Some(&status)), "{headers:?}");
        }
    }
}

#[test]
fn requests_before_a_half_close_are_answered() {
    for header in [("x-nothing", "1"), ("te", "trailers"), ("accept", "text/html")] {
        let gateway = plain();
        open(&gateway);
        let mut client = Client::new(&gateway);
        for student in 0..200 {
            client.send(add(student, &[header]));
        }
        client.send(request("GET", "/openapi.json", &[header], ""));
        client.stream().shutdown(Shutdown::Write).unwrap();
        for student in 0..200 {
            assert_eq!(client.answer().status, 200, "{header:?} {student}");
        }
        assert_eq!(client.answer().status, 200, "{header:?}");
        client.is_closed();
    }
}

#[test]
fn a_chunked_request_is_answered_after_a_half_close() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\ne\r\n{\"capacity\":1}\r\n0\r\n\r\n");
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.answer().status, 200);
    client.is_closed();
}
