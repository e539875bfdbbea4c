//! HTTP/2 with prior knowledge and over TLS, with targets that behave and targets that do not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{
    self,
    http2::{Reply, Server},
};
use bytes::Bytes;
use h2::Reason;
use throng_load::{
    Arrivals, Closed, ErrorKind, Next, Open, Options, Outcome, Report, Request, Shot, Source, Target, Verdict, run,
};

fn load(options: &Options, requests: u64) -> Report {
    let request = Request::get(&options.target.authority, "/");
    run(options, vec![Closed::new(request, requests)]).unwrap().report
}

fn errors(report: &Report, kind: ErrorKind) -> u64 {
    report.counters.errors.get(&kind).copied().unwrap_or(0)
}

fn fine() -> Reply {
    Reply::Answer(200, Bytes::from_static(b"fine"))
}

#[test]
fn requests_share_connections_by_streams_with_prior_knowledge() {
    let server = Server::start(|_, _| Reply::Echo);
    let report = load(&server.options(4, 8), 500);
    assert_eq!((report.counters.successes, report.counters.failures), (500, 0));
    assert_eq!(report.connections_opened, 4);
    assert_eq!(report.response.len(), 500);
    assert!(report.counters.bytes_in > 500 * 9 && report.counters.bytes_out > 500 * 9);
    assert_eq!(
        (
            report.settings["protocol"].as_str(),
            report.settings["streams"].as_str()
        ),
        ("HTTP/2", "8")
    );
    let streams = server.seen.streams_max.load(Ordering::SeqCst);
    assert!((2..=8).contains(&streams), "{streams} at once");
    assert_eq!(
        server.seen.requests.lock().unwrap().len(),
        4,
        "every connection was used"
    );
}

#[test]
fn https_targets_are_asked_for_it_in_the_handshake() {
    let server = Server::start_with(Some(&["http/1.1", "h2"]), 1000, |_, request| {
        assert_eq!(request.uri().scheme_str(), Some("https"));
        Reply::Answer(200, vec![b'x'; 40_000].into()) // more than a TLS record
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("roots.pem");
    std::fs::write(&path, server.certificate.as_ref().unwrap()).unwrap();
    let mut options = server.options(3, 5);
    options.tls.insecure = false;
    options.tls.roots = Some(path);
    let report = load(&options, 100);
    assert_eq!(
        (report.counters.successes, report.counters.failures),
        (100, 0),
        "{:?}",
        report.counters.errors
    );
    assert_eq!(report.connections_opened, 3);
}

#[test]
fn a_target_that_settles_on_another_protocol_speaks_no_http2() {
    for protocols in [&[][..], &["http/1.1"]] {
        let server = Server::start_with(Some(protocols), 1000, |_, _| fine());
        let report = load(&server.options(2, 2), u64::MAX);
        assert_eq!(report.ended, "the target speaks no HTTP/2");
        assert!(errors(&report, ErrorKind::NoHttp2) > 0, "{:?}", report.counters.errors);
        assert_eq!(report.counters.failures, errors(&report, ErrorKind::NoHttp2));
    }
}

#[test]
fn a_target_of_http1_speaks_no_http2() {
    let server = support::Server::start(|_, _| support::Reply::Answer(400, "what?".into()));
    let mut options = server.options(2);
    options.http2 = Some(4);
    let report = load(&options, u64::MAX);
    assert_eq!(report.ended, "the target speaks no HTTP/2");
    assert_eq!(report.counters.failures, errors(&report, ErrorKind::NoHttp2));
}

#[test]
fn the_targets_limit_of_streams_is_kept() {
    let server = Server::start_with(None, 3, |_, _| Reply::Echo);
    let report = load(&server.options(2, 64), 300);
    assert_eq!(
        (report.counters.successes, report.counters.failures),
        (300, 0),
        "{:?}",
        report.counters.errors
    );
    assert!(server.seen.streams_max.load(Ordering::SeqCst) <= 3);
}

#[test]
fn a_goaway_after_the_streams_it_took_costs_no_request() {
    let server = Server::start(|number, _| {
        if number % 10 == 9 {
            Reply::AnswerAndGoAway
        } else {
            fine()
        }
    });
    let report = load(&server.options(2, 4), 400);
    assert_eq!(
        (report.counters.successes, report.counters.failures),
        (400, 0),
        "{:?}",
        report.counters.errors
    );
    assert!(report.connections_opened > 10, "{}", report.connections_opened);
}

#[test]
fn an_abrupt_goaway_counts_unanswered_requests_and_goes_on() {
    let server = Server::start(|number, _| match number % 20 {
        19 => Reply::GoAway(Reason::ENHANCE_YOUR_CALM),
        _ => fine(),
    });
    let report = load(&server.options(1, 4), 200);
    // A server that closes with unread requests resets the connection. That may lose its earlier output.
    let gone =
        errors(&report, ErrorKind::GoAway) + errors(&report, ErrorKind::Reset) + errors(&report, ErrorKind::Closed);
    assert!(gone >= 5, "{:?}", report.counters.errors);
    assert_eq!(
        report.counters.failures + report.counters.retried,
        gone,
        "{:?}",
        report.counters.errors
    );
    assert_eq!(report.counters.successes + report.counters.failures, 200);
    assert!(report.connections_opened > 5, "{}", report.connections_opened);
}

#[test]
fn reset_and_refused_streams_differ_and_cost_no_connection() {
    let server = Server::start(|number, _| match number % 4 {
        0 => Reply::Reset(Reason::INTERNAL_ERROR),
        1 => Reply::Reset(Reason::REFUSED_STREAM),
        _ => fine(),
    });
    let report = load(&server.options(2, 4), 400);
    assert_eq!(errors(&report, ErrorKind::StreamReset), 100);
    assert_eq!(errors(&report, ErrorKind::RefusedStream), 100);
    assert_eq!(report.counters.successes, 200);
    assert_eq!(report.connections_opened, 2);
}

#[test]
fn a_stream_that_hangs_is_a_timeout_and_the_others_go_on() {
    let server = Server::start(|number, _| if number == 3 { Reply::Hang } else { fine() });
    let mut options = server.options(1, 4);
    options.request_timeout = Duration::from_millis(200);
    options.duration = Some(Duration::from_secs(60));
    let stop = options.stop.clone();
    // Runs until the timeout was seen. The other requests are answered meanwhile.
    struct Until(Closed, throng_load::Stop);
    impl Source for Until {
        fn next(&mut self, now: u64) -> Next<'_> {
            self.0.next(now)
        }
        fn answered(&mut self, _: u64, outcome: &Outcome<'_>) -> Verdict {
            if outcome.result.is_err() {
                self.1.now();
            }
            Verdict::ByStatus
        }
    }
    let request = Request::get(&options.target.authority, "/");
    let report = run(&options, vec![Until(Closed::new(request, u64::MAX), stop)])
        .unwrap()
        .report;
    assert_eq!(report.counters.errors.keys().collect::<Vec<_>>(), [&ErrorKind::Timeout]);
    assert_eq!(errors(&report, ErrorKind::Timeout), 1);
    assert!(report.response.max() >= 199_000_000, "the wait is in the histogram");
    assert!(report.counters.successes > 3);
    assert_eq!(report.connections_opened, 1);
}

#[test]
fn a_connection_that_says_nothing_any_more_is_made_again() {
    let server = Server::start(|_, _| Reply::Hang);
    let mut options = server.options(1, 2);
    options.request_timeout = Duration::from_millis(30);
    let report = load(&options, 12);
    assert_eq!(errors(&report, ErrorKind::Timeout), 12);
    assert_eq!(report.response.len(), 12);
    assert!(report.connections_opened > 1);
}

#[test]
fn the_end_of_the_time_does_not_wait_for_streams_that_hang() {
    let server = Server::start(|_, _| Reply::Hang);
    let mut options = server.options(2, 3);
    options.request_timeout = Duration::from_secs(3600);
    options.duration = Some(Duration::from_millis(20));
    options.drain = Duration::from_millis(20);
    let report = load(&options, u64::MAX);
    assert_eq!(errors(&report, ErrorKind::Unanswered), 6);
    assert_eq!(report.ended, "time up");
}

#[test]
fn a_connections_end_before_and_during_an_answer_differ() {
    let server = Server::start(|number, _| match number % 2 {
        0 => Reply::HalfThenClose(Bytes::from_static(b"half")),
        _ => Reply::Close,
    });
    let report = load(&server.options(1, 1), 10);
    assert_eq!(
        errors(&report, ErrorKind::ClosedMidway),
        5,
        "{:?}",
        report.counters.errors
    );
    assert_eq!(errors(&report, ErrorKind::Closed), 5, "{:?}", report.counters.errors);
}

/// The HEADERS of stream 1 with status 200 and no body.
const FINE: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];

/// Returns a GOAWAY with this reason and the last stream that was processed.
fn goaway(last: u8, reason: Reason) -> [u8; 17] {
    let reason = u32::from(reason) as u8;
    [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, reason]
}

/// Starts a server that sends the usual first frames, and then `bytes` as the answer to a request.
fn raw(bytes: &'static [u8]) -> Options {
    raw_each(move |_| bytes.to_vec())
}

/// Starts such a server with `bytes` that depend on the number of the connection.
fn raw_each(bytes: impl Fn(usize) -> Vec<u8> + Send + 'static) -> Options {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]); // SETTINGS
            let mut heard = Vec::new();
            let mut buffer = [0; 4096];
            // HEADERS of stream 1
            while !heard
                .windows(6)
                .any(|window| window[0] == 1 && window[2..] == [0, 0, 0, 1])
            {
                match stream.read(&mut buffer) {
                    Ok(1..) => heard.extend_from_slice(&buffer[..]),
                    _ => break,
                }
            }
            let _ = stream.write_all(&bytes(number));
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut buffer);
        }
    });
    let mut options = Options::new(Target::resolve(&format!("http://{address}"), false).unwrap());
    options.connections = 1;
    options.http2 = Some(1);
    options
}

#[test]
fn frames_that_break_the_protocol_are_named() {
    for frames in [
        &[0, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],         // DATA of stream 0
        &[0, 0, 3, 1, 4, 0, 0, 0, 1, 255, 255, 255], // HEADERS that cannot be unpacked
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let report = load(&raw(frames), 5);
        assert_eq!(
            errors(&report, ErrorKind::Protocol),
            5,
            "{frames:?}: {:?}",
            report.counters.errors
        );
    }
}

#[test]
fn a_request_that_each_goaway_gives_back_fails_in_the_end() {
    let report = load(&raw_each(|_| goaway(0, Reason::ENHANCE_YOUR_CALM).to_vec()), 5);
    assert_eq!(report.counters.failures, 5, "{:?}", report.counters.errors);
    assert_eq!(report.counters.retried, 5 * 8);
    assert_eq!(
        errors(&report, ErrorKind::GoAway),
        5 * 9,
        "{:?}",
        report.counters.errors
    );
    assert_eq!(report.connections_opened, 5 * 9);
}

#[test]
fn a_request_that_a_goaway_gave_back_is_sent_again() {
    let options = raw_each(|number| match number % 2 {
        0 => goaway(0, Reason::NO_ERROR).to_vec(),
        _ => [FINE, &goaway(1, Reason::NO_ERROR)].concat(),
    });
    let report = load(&options, 5);
    assert_eq!(
        (report.counters.successes, report.counters.failures),
        (5, 0),
        "{:?}",
        report.counters.errors
    );
    assert_eq!(report.counters.retried, 5);
    assert_eq!(report.connections_opened, 10);
}

#[test]
fn a_request_that_a_goaway_took_is_not_sent_again() {
    let report = load(&raw_each(|_| goaway(1, Reason::NO_ERROR).to_vec()), 5);
    assert_eq!(
        (report.counters.failures, report.counters.retried),
        (5, 0),
        "{:?}",
        report.counters.errors
    );
}

#[test]
fn a_target_that_never_says_its_settings_is_a_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options =
        Options::new(Target::resolve(&format!("http://{}", listener.local_addr().unwrap()), false).unwrap());
    options.connections = 1;
    options.http2 = Some(1);
    options.connect_timeout = Duration::from_millis(20);
    let report = load(&options, u64::MAX);
    assert!(errors(&report, ErrorKind::ConnectTimeout) > 0);
    assert_eq!(report.counters.failures, errors(&report, ErrorKind::ConnectTimeout));
    assert!(report.ended.contains("nobody"), "{}", report.ended);
}

/// A source of a single request that reports its answer.
struct Once(Vec<u8>, bool, mpsc::Sender<(Vec<u8>, Option<String>)>);

impl Source for Once {
    fn next(&mut self, _: u64) -> Next<'_> {
        if std::mem::replace(&mut self.1, true) {
            return Next::Done;
        }
        Next::Send(Shot::new(&self.0, 0))
    }

    fn answered(&mut self, _: u64, outcome: &Outcome<'_>) -> Verdict {
        if let Ok(answer) = &outcome.result {
            let seen = (answer.body.to_vec(), answer.header("X-Out").map(str::to_string));
            self.2.send(seen).unwrap();
        }
        Verdict::ByStatus
    }
}

#[test]
fn large_bodies_pass_both_ways_through_the_windows() {
    for tls in [None, Some(&["h2"][..])] {
        let server = Server::start_with(tls, 1000, |_, _| Reply::Echo);
        let body: Vec<u8> = (0..900_000u32).map(|number| (number % 251) as u8).collect();
        let options = server.options(1, 1);
        let request = Request::build("POST", &options.target.authority, "/echo")
            .header("X-In", "one")
            .body(body.clone());
        let (sender, seen) = mpsc::channel();
        let report = run(&options, vec![Once(request.into_bytes(), false, sender)])
            .unwrap()
            .report;
        assert_eq!(report.counters.successes, 1, "{:?}", report.counters.errors);
        let (answer, header) = seen.recv().unwrap();
        assert!(answer == body, "{} bytes came back", answer.len());
        assert_eq!(header.as_deref(), Some("one"));
        assert!(report.counters.bytes_in > 900_000 && report.counters.bytes_out > 900_000);
    }
}

#[test]
fn an_open_model_counts_from_the_intended_start() {
    let server = Server::start(|_, _| fine());
    let options = server.options(2, 4);
    let request = Request::get(&options.target.authority, "/");
    let report = run(&options, vec![Open::new(request, Arrivals::constant(500.0, 0.4))])
        .unwrap()
        .report;
    assert_eq!(report.counters.successes, 200);
    assert!(report.open_model && report.lateness.len() == 200);
}

#[test]
fn impossible_stream_options_are_refused() {
    let server = Server::start(|_, _| fine());
    for change in [
        (|options: &mut Options| options.http2 = Some(0)) as fn(&mut Options),
        |options| options.http2 = Some(2000),
        |options| options.pipeline = 2,
        |options| options.keep_alive = false,
    ] {
        let mut options = server.options(1, 1);
        change(&mut options);
        let error = run(&options, vec![Closed::new(Request::get("a", "/"), 1)]).unwrap_err();
        assert!(error.to_string().contains("streams"), "{error}");
    }
}

fn command(arguments: &[&str]) -> std::process::ExitCode {
    use clap::Parser as _;
    #[derive(clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        load: throng_load::cli::LoadArgs,
    }
    throng_load::cli::run(Arguments::try_parse_from([&["load"], arguments].concat()).unwrap().load)
}

fn saved(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_command_speaks_it_where_asked_to() {
    let server = Server::start(|_, _| Reply::Echo);
    let plain = support::Server::start(|_, _| support::Reply::Answer(200, String::new()));
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_string();
    let (url, out, plan, trace) = (server.url(), text("a.json"), text("plan.toml"), text("trace.jsonl"));
    std::fs::write(
        path("plan.toml"),
        r#"
        name = "echo over HTTP/2"
        http2 = true
        streams = "2 * 2"
        connections = 2
        [variables]
        rate = 100
        [data.number]
        range = [1, 1000]
        [request.echo]
        path = "/${number}"
        headers = { X-In = "n${number}" }
        body = "${number}"
        capture = { seen = { header = "x-out" } }
        check = { contains = "1" }
        [[phase]]
        name = "all"
        arrivals = [{ rate = "rate", for = 0.1 }]
        steps = ["echo"]
        "#,
    )
    .unwrap();
    std::fs::write(
        path("trace.jsonl"),
        "{\"path\":\"/a\"}\n{\"path\":\"/b\",\"body\":{}}\n",
    )
    .unwrap();
    let success = std::process::ExitCode::SUCCESS;
    let run = ["run", &plan, "--target", &url, "-q", "--json", &out];
    command(&run);
    let protocol = |report: &serde_json::Value| {
        let settings = &report["settings"];
        format!(
            "{} {}",
            settings["protocol"].as_str().unwrap(),
            settings["streams"].as_str().unwrap_or("")
        )
    };
    assert_eq!(saved(&path("a.json"))["counters"]["statuses"]["200"], 10);
    assert_eq!(protocol(&saved(&path("a.json"))), "HTTP/2 4");
    command(&[&run[..], &["--http2", "--streams", "9"]].concat());
    assert_eq!(protocol(&saved(&path("a.json"))), "HTTP/2 9");

    let both = ["--http2", "--streams", "3", "-c", "2", "-q", "--json", &out];
    assert_eq!(
        command(&[&["replay", &trace, "--target", &url][..], &both].concat()),
        success
    );
    assert_eq!(saved(&path("a.json"))["counters"]["successes"], 2);
    let capacity = [
        "capacity", &url, "--p99", "60s", "--from", "50", "--to", "50", "--for", "100ms",
    ];
    assert_eq!(command(&[&capacity[..], &both].concat()), success);
    assert_eq!(saved(&path("a.json"))["capacity"], 50.0);
    let named = [
        format!("name=two,url={url},http2=4"),
        format!("name=one,url={}", plain.url()),
    ];
    let sides = [
        "head2head",
        "--target",
        &named[0],
        "--target",
        &named[1],
        "-n",
        "20",
        "--concurrency",
        "2",
    ];
    assert_eq!(
        command(&[&sides[..], &["--rounds", "3", "-q", "--json", &out]].concat()),
        success
    );
    let targets = saved(&path("a.json"))["targets"].clone();
    assert_eq!(protocol(&targets[0]["report"]), "HTTP/2 4");
    assert_eq!(protocol(&targets[1]["report"]), "HTTP/1.1 ");
    let connections = |side: usize| targets[side]["report"]["settings"]["connections"].clone();
    assert_eq!(
        (connections(0), connections(1)),
        ("1".into(), "2".into()),
        "two requests at once"
    );

    std::fs::write(
        path("plan.toml"),
        "name = \"x\"\nstreams = 4\ntarget = \"http://127.0.0.1:9\"\n",
    )
    .unwrap();
    assert_eq!(command(&["run", &plan, "-q"]), std::process::ExitCode::from(2));
}
