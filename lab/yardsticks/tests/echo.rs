//! The echo over real sockets.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use yardsticks::echo::{self, EchoError, EchoProcess, Served, Stop};

/// The limit after which a client that hangs fails its test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `client` against an echo of this many loops, and returns the counts of the echo.
fn with_echo(loops: usize, client: impl FnOnce(SocketAddr)) -> Served {
    let listeners = echo::listen("127.0.0.1:0".parse().unwrap(), loops).unwrap();
    let address = listeners[0].local_addr().unwrap();
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| echo::serve_all(listeners, &stop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(address)));
        stop.raise();
        let served = server.join().unwrap().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn add(student: usize) -> String {
    let body = format!(r#"{{"student":"{student}"}}"#);
    format!(
        "POST /api/section/S1/add HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn echo_of(student: usize) -> String {
    let body = format!(r#"{{"method":"POST","path":"/api/section/S1/add","body":{{"student":"{student}"}}}}"#);
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn expect(stream: &mut TcpStream, expected: &str) {
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
}

#[test]
fn a_kept_connection_answers_request_after_request() {
    let served = with_echo(1, |address| {
        let mut stream = connect(address);
        for student in 0..50 {
            stream.write_all(add(student).as_bytes()).unwrap();
            expect(&mut stream, &echo_of(student));
        }
    });
    assert_eq!(
        served,
        Served {
            requests: 50,
            connections: 1
        }
    );
}

#[test]
fn a_request_that_arrives_byte_by_byte_is_answered_once() {
    let served = with_echo(1, |address| {
        let mut stream = connect(address);
        for byte in add(1).bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        expect(&mut stream, &echo_of(1));
    });
    assert_eq!(served.requests, 1);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let served = with_echo(1, |address| {
        let mut stream = connect(address);
        let requests: String = (0..2000).map(add).collect();
        let mut writer = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(requests.as_bytes()).unwrap());
            for student in 0..2000 {
                expect(&mut stream, &echo_of(student));
            }
        });
    });
    assert_eq!(served.requests, 2000);
}

#[test]
fn a_body_at_the_limit_is_repeated_and_one_byte_more_is_refused() {
    with_echo(1, |address| {
        let body = format!("\"{}\"", "x".repeat(echo::BODY_BYTES_MAX - 2));
        let head = format!(
            "POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = connect(address);
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\"body\":{body}}}")));

        let mut stream = connect(address);
        let head = format!(
            "POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
            echo::BODY_BYTES_MAX + 1
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    });
}

#[test]
fn one_client_s_nonsense_leaves_the_others_alone() {
    let served = with_echo(1, |address| {
        let mut good = connect(address);
        good.write_all(add(1).as_bytes()).unwrap();
        expect(&mut good, &echo_of(1));

        let mut bad = connect(address);
        bad.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").unwrap();
        let mut answer = String::new();
        bad.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        drop(connect(address));

        good.write_all(add(2).as_bytes()).unwrap();
        expect(&mut good, &echo_of(2));
    });
    assert_eq!(served.requests, 2);
}

#[test]
fn several_loops_serve_one_port() {
    let served = with_echo(3, |address| {
        let mut streams: Vec<_> = (0..24).map(|_| connect(address)).collect();
        for (student, stream) in streams.iter_mut().enumerate() {
            stream.write_all(add(student).as_bytes()).unwrap();
        }
        for (student, stream) in streams.iter_mut().enumerate() {
            expect(stream, &echo_of(student));
        }
    });
    assert_eq!(
        served,
        Served {
            requests: 24,
            connections: 24
        }
    );
}

#[test]
fn a_process_of_its_own_answers_and_reports_its_cpu_time() {
    let echo = EchoProcess::start(Command::new(env!("CARGO_BIN_EXE_echo")), 2).unwrap();
    let before = echo.cpu_time().unwrap();
    let mut stream = connect(echo.address());
    while echo.cpu_time().unwrap() == before {
        for student in 0..100 {
            stream.write_all(add(student).as_bytes()).unwrap();
            expect(&mut stream, &echo_of(student));
        }
    }
    let address = echo.address();
    drop(echo);
    assert!(
        TcpStream::connect(address).is_err(),
        "dropping the handle ends the process"
    );
}

#[test]
fn a_process_ends_when_its_parent_s_end_of_the_pipe_closes() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_echo"))
        .arg("--until-input-closes")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_taken_port_ends_the_process_with_a_sentence() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let output = Command::new(env!("CARGO_BIN_EXE_echo"))
        .args(["--port", &port.to_string()])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with(&format!("echo: could not listen on 127.0.0.1:{port}: ")),
        "{said}"
    );
    let error = echo::listen(holder.local_addr().unwrap(), 1).unwrap_err();
    assert!(matches!(error, EchoError::Listen { .. }));
}
