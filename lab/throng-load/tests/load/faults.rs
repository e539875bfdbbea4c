//! Targets that misbehave. Every failure is counted by its kind, and nothing hangs or panics.

use std::net::TcpListener;
use std::time::Duration;

use crate::support::{Reply, Server, answer};
use throng_load::{Closed, ErrorKind, Options, Report, Request, Target, run};

fn load(options: &Options, requests: u64) -> Report {
    let request = Request::get(&options.target.authority, &options.target.path);
    run(options, vec![Closed::new(request, requests)]).unwrap().report
}

fn errors(report: &Report, kind: ErrorKind) -> u64 {
    report.counters.errors.get(&kind).copied().unwrap_or(0)
}

#[test]
fn a_good_target_gives_only_successes() {
    let server = Server::start(|_, _| Reply::Answer(200, "fine".into()));
    let report = load(&server.options(4), 500);
    assert_eq!((report.counters.successes, report.counters.failures), (500, 0));
    assert_eq!(report.counters.bytes_in, 500 * answer(200, "fine").len() as u64);
    assert_eq!(report.response.len(), 500);
    assert_eq!(report.connections_opened, 4);
    assert_eq!(
        report
            .seconds
            .iter()
            .map(|second| second.counters.successes)
            .sum::<u64>(),
        500
    );
}

#[test]
fn many_workers_do_exactly_the_requests_asked_for() {
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    let options = server.options(7);
    let request = Request::get(&options.target.authority, "/");
    let report = run(&options, Closed::split(&request, 1001, 3)).unwrap().report;
    assert_eq!(report.counters.successes, 1001);
    assert_eq!(report.generator.threads, 3);
    assert_eq!(report.response.len(), 1001, "histograms merge exactly");
}

#[test]
fn nobody_listening_ends_the_run_early_and_says_so() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = Options::new(Target::resolve(&format!("http://127.0.0.1:{port}"), false).unwrap());
    let report = load(&options, u64::MAX);
    assert_eq!(report.counters.successes, 0);
    assert!(errors(&report, ErrorKind::Refused) > 0);
    assert!(report.ended.contains("nobody"), "{}", report.ended);
}

#[test]
fn resets_are_counted_and_the_load_goes_on() {
    let server = Server::start(|number, _| {
        if number % 2 == 0 {
            Reply::Reset
        } else {
            Reply::Answer(200, String::new())
        }
    });
    let report = load(&server.options(1), 20);
    assert_eq!(
        errors(&report, ErrorKind::Reset) + errors(&report, ErrorKind::Closed),
        10
    );
    assert_eq!(report.counters.successes, 10);
}

#[test]
fn garbage_is_named() {
    let server = Server::start(|_, _| Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()));
    let report = load(&server.options(2), 10);
    assert_eq!(errors(&report, ErrorKind::Garbage), 10);
}

#[test]
fn a_close_within_the_body_is_told_from_one_before_the_answer() {
    let server = Server::start(|number, _| match number % 2 {
        0 => Reply::RawThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec()),
        _ => Reply::RawThenClose(Vec::new()),
    });
    let report = load(&server.options(1), 10);
    assert_eq!(errors(&report, ErrorKind::ClosedMidway), 5);
    assert_eq!(errors(&report, ErrorKind::Closed), 5);
}

#[test]
fn lengths_that_differ_and_bytes_nobody_asked_for_are_failures() {
    let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 11\r\n\r\nab and more".to_vec();
    let server = Server::start(move |_, _| Reply::Raw(twice.clone()));
    let report = load(&server.options(2), 10);
    assert_eq!(
        (report.counters.successes, errors(&report, ErrorKind::Lengths)),
        (0, 10)
    );
    let surplus = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab and more".to_vec();
    let server = Server::start(move |_, _| Reply::Raw(surplus.clone()));
    let report = load(&server.options(2), 10);
    assert_eq!(
        (report.counters.successes, errors(&report, ErrorKind::Surplus)),
        (0, 10)
    );
}

#[test]
fn an_answer_that_ends_with_the_connection_is_a_success() {
    let server = Server::start(|_, _| Reply::RawThenClose(b"HTTP/1.1 200 OK\r\n\r\nall of it".to_vec()));
    let report = load(&server.options(2), 10);
    assert_eq!(report.counters.successes, 10);
}

#[test]
fn a_hanging_target_is_a_timeout_in_the_histogram() {
    let server = Server::start(|_, _| Reply::Hang);
    let mut options = server.options(2);
    options.request_timeout = Duration::from_millis(30);
    let report = load(&options, 6);
    assert_eq!(errors(&report, ErrorKind::Timeout), 6);
    assert_eq!(report.response.len(), 6);
    assert!(report.response.min() >= 29_900_000, "{}", report.response.min());
}

#[test]
fn the_end_of_the_time_does_not_wait_for_a_hanging_target() {
    let server = Server::start(|_, _| Reply::Hang);
    let mut options = server.options(2);
    options.request_timeout = Duration::from_secs(3600);
    options.duration = Some(Duration::from_millis(20));
    options.drain = Duration::from_millis(20);
    let report = load(&options, u64::MAX);
    assert_eq!(errors(&report, ErrorKind::Unanswered), 2);
    assert_eq!(report.ended, "time up");
}

#[test]
fn redirects_and_bad_statuses_are_failures_of_their_kind() {
    let server = Server::start(|number, _| Reply::Answer([302, 404, 503, 304, 204][number % 5], String::new()));
    let report = load(&server.options(1), 50);
    for kind in [ErrorKind::Redirect, ErrorKind::ClientError, ErrorKind::ServerError] {
        assert_eq!(errors(&report, kind), 10, "{kind:?}");
    }
    assert_eq!(report.counters.successes, 20);
    assert_eq!(report.counters.statuses[&302], 10);
}

#[test]
fn chunked_answers_and_answers_in_pieces_are_whole() {
    let server = Server::start(|_, _| {
        Reply::Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n".to_vec())
    });
    let report = load(&server.options(3), 60);
    assert_eq!(report.counters.successes, 60);
    assert_eq!(report.connections_opened, 3);
}

#[test]
fn a_server_that_closes_after_each_answer_is_connected_to_again() {
    let server = Server::start(|_, _| {
        Reply::RawThenClose(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    let report = load(&server.options(2), 20);
    assert_eq!((report.counters.successes, report.counters.failures), (20, 0));
    assert!(report.connections_opened >= 20);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    let mut options = server.options(2);
    options.pipeline = 8;
    let report = load(&options, 403);
    assert_eq!((report.counters.successes, report.counters.failures), (403, 0));
}

#[test]
fn a_stop_ends_the_run_with_its_report() {
    let stop = throng_load::Stop::new();
    let thrown = stop.clone();
    let server = Server::start(move |number, _| {
        if number == 100 {
            thrown.now();
        }
        Reply::Answer(200, String::new())
    });
    let mut options = server.options(2);
    options.stop = stop;
    let report = load(&options, u64::MAX);
    assert_eq!(report.ended, "stopped");
    assert!(report.counters.successes >= 100);
}

#[test]
fn the_hosts_next_address_is_tried_where_the_first_refuses() {
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    let mut options = server.options(2);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    options.target.addresses.insert(0, nobody);
    let report = load(&options, 10);
    assert_eq!((report.counters.successes, report.counters.failures), (10, 0));
}

#[test]
fn too_many_connections_are_refused_with_advice() {
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    let error = run(&server.options(70_000), vec![Closed::new(Request::get("a", "/"), 1)]).unwrap_err();
    assert!(error.to_string().contains("1 to 65535"), "{error}");
}

#[test]
fn every_line_of_the_log_is_a_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("requests.csv");
    let server = Server::start(|number, _| Reply::Answer(if number == 3 { 500 } else { 200 }, String::new()));
    let mut options = server.options(1);
    options.log = Some(path.clone());
    load(&options, 10);
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "start_ns,latency_ns,service_ns,status,error,class");
    assert_eq!(lines.len(), 11);
    assert!(lines[4].ends_with(",500,status 5xx,request"), "{}", lines[4]);
}
