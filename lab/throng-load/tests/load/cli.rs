//! The commands, from their arguments to the files that they write.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::support::{Reply, Server};
use clap::Parser;
use serde_json::Value;
use throng_load::Report;
use throng_load::cli::{LoadArgs, run};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    load: LoadArgs,
}

fn load(arguments: &[&str]) -> ExitCode {
    run(Arguments::try_parse_from([&["load"], arguments].concat()).unwrap().load)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.text(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }
}

fn fine() -> Server {
    Server::start(|_, _| Reply::Answer(200, "fine".into()))
}

#[test]
fn a_closed_run_writes_json_csv_and_a_page() {
    let (server, files) = (fine(), Files::new());
    let [out, csv, html] = ["a.json", "a.csv", "a.html"].map(|name| files.text(name));
    let code = load(&[
        &server.url(),
        "-n",
        "200",
        "-c",
        "4",
        "-q",
        "--json",
        &out,
        "--csv",
        &csv,
        "--html",
        &html,
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    let report = Report::from_json(&std::fs::read_to_string(&out).unwrap(), "a.json").unwrap();
    assert_eq!(report.counters.successes, 200);
    assert_eq!(report.response.len(), 200, "the histogram is saved whole");
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 201);
    assert!(
        std::fs::read_to_string(csv + ".seconds.csv")
            .unwrap()
            .starts_with("second,successes")
    );
    assert!(std::fs::read_to_string(html).unwrap().contains("application/json"));
}

#[test]
fn an_open_run_sends_the_given_method_headers_and_body() {
    let (server, files) = (fine(), Files::new());
    let (body, out) = (files.write("body.json", "{\"a\":1}"), files.text("a.json"));
    let code = load(&[
        &format!("{}/x?y=z", server.url()),
        "--rate",
        "500",
        "--for",
        "200ms",
        "-m",
        "put",
        "-H",
        "X-One: two",
        "-b",
        &format!("@{body}"),
        "-q",
        "--json",
        &out,
        "--pid",
        &std::process::id().to_string(),
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    let report = json(Path::new(&out));
    assert_eq!(report["counters"]["successes"], 100);
    assert_eq!(report["open_model"], true);
    assert!(
        report["samples"]
            .as_array()
            .unwrap()
            .iter()
            .any(|series| series["unit"] == "MB")
    );
    let seen = server.seen.lock().unwrap();
    assert!(
        seen.iter()
            .all(|one| one.line == "PUT /x?y=z HTTP/1.1" && one.body == "{\"a\":1}")
    );
}

#[test]
fn a_plan_file_runs_with_its_variables_and_csv() {
    let (server, files) = (fine(), Files::new());
    files.write("people.csv", "name,town\nAnn,\"Ulm, Donau\"\nBob,Kiel\n");
    let plan = files.write(
        "plan.toml",
        r#"
        name = "people"
        [variables]
        users = 1
        [data.person]
        csv = "people.csv"
        [request.greet]
        path = "/greet/${person.name}"
        body = '{"town":"${person.town|json}"}'
        [[phase]]
        name = "all"
        users = "users"
        repeat = 2
        steps = ["greet"]
        "#,
    );
    let out = files.text("a.json");
    let code = load(&[
        "run",
        &plan,
        "--target",
        &server.url(),
        "--set",
        "users=3",
        "-q",
        "--json",
        &out,
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert_eq!(json(Path::new(&out))["counters"]["successes"], 6);
    let mut bodies: Vec<String> = server.seen.lock().unwrap().iter().map(|one| one.body.clone()).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies, ["{\"town\":\"Kiel\"}", "{\"town\":\"Ulm, Donau\"}"]);
}

#[test]
fn a_plan_is_logged_like_the_courses_client_try_by_try() {
    let server = Server::start(|number, _| Reply::Answer(if number == 0 { 503 } else { 201 }, String::new()));
    let files = Files::new();
    let plan = files.write(
        "plan.toml",
        r#"
        name = "rides"
        [request.ride]
        path = "/ride"
        body = "{}"
        retry = { tries = 2, pauses = ["1ms"] }
        [request.look]
        path = "/look"
        [[phase]]
        name = "all"
        users = 1
        repeat = 2
        steps = ["ride", "look"]
        "#,
    );
    let csv = files.text("output.csv");
    let code = load(&["run", &plan, "--target", &server.url(), "-q", "--course", &csv]);
    assert_eq!(code, ExitCode::SUCCESS);
    let text = std::fs::read_to_string(csv).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["start_time", "latency", "request_type", "response_code"]);
    let tries: Vec<_> = lines[1..].iter().map(|line| (line[2], line[3])).collect();
    let look = ("GET", "201");
    assert_eq!(tries, [("POST", "503"), ("POST", "201"), look, ("POST", "201"), look]);
    for line in &lines[1..] {
        assert!(line[0].parse::<u64>().unwrap() > 1_600_000_000_000, "{line:?}");
        assert!(line[1].parse::<f64>().unwrap() > 0.0, "{line:?}");
    }
}

#[test]
fn a_trace_is_replayed_in_order_and_judged() {
    let server = Server::start(|_, request| {
        Reply::Answer(if request.line.contains("/full") { 422 } else { 200 }, String::new())
    });
    let files = Files::new();
    let lines: Vec<String> = (0..40)
        .map(|number| {
            let (path, expect) = if number % 4 == 3 {
                ("full", ",\"expect\":422")
            } else {
                ("ok", "")
            };
            format!(
                "{{\"at\":{},\"key\":\"k{}\",\"path\":\"/{path}/{number}\"{expect}}}",
                number as f64 * 0.01,
                number % 3
            )
        })
        .collect();
    let trace = files.write("trace.jsonl", &lines.join("\n"));
    let out = files.text("a.json");
    let code = load(&[
        "replay",
        &trace,
        "--target",
        &server.url(),
        "--speed",
        "4",
        "-c",
        "3",
        "-q",
        "--json",
        &out,
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    let report = json(Path::new(&out));
    assert_eq!(
        (&report["counters"]["successes"], &report["counters"]["failures"]),
        (&40.into(), &0.into())
    );
    assert_eq!(report["counters"]["statuses"]["422"], 10);
    assert!(
        report["elapsed_nanos"].as_u64().unwrap() >= 97_500_000,
        "the last is due after 390 ms / 4"
    );
}

#[test]
fn a_capacity_search_finds_where_a_target_begins_to_refuse() {
    // The body contains the rate, so that refusals do not depend on the speed of this machine.
    let server = Server::start(|_, request| {
        let rate: f64 = request.body.parse().unwrap();
        Reply::Answer(if rate > 1000.0 { 503 } else { 200 }, String::new())
    });
    let files = Files::new();
    let plan = files.write(
        "plan.toml",
        r#"
        name = "limit"
        [variables]
        rate = 200
        [request.r]
        path = "/"
        body = "${rate}"
        [[phase]]
        name = "hold"
        arrivals = [{ rate = "rate", for = "0.05" }]
        steps = ["r"]
        "#,
    );
    let [out, html] = ["c.json", "c.html"].map(|name| files.text(name));
    let code = load(&[
        "capacity",
        &plan,
        "--target",
        &server.url(),
        "--p99",
        "10s",
        "-q",
        "--json",
        &out,
        "--html",
        &html,
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    let capacity = json(Path::new(&out))["capacity"].as_f64().unwrap();
    assert!((900.0..=1000.0).contains(&capacity), "{capacity}");
}

#[test]
fn a_rate_that_broke_its_promise_is_tried_once_more() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::start(move |_, _| {
        let is_first = first.swap(false, std::sync::atomic::Ordering::Relaxed);
        Reply::Answer(if is_first { 503 } else { 200 }, String::new())
    });
    let files = Files::new();
    let (url, out) = (server.url(), files.text("c.json"));
    let hold = [
        "--p99", "60s", "--from", "50", "--to", "50", "--for", "100ms", "-q", "--json", &out,
    ];
    assert_eq!(load(&[&["capacity", &url], &hold[..]].concat()), ExitCode::SUCCESS);
    assert_eq!(json(Path::new(&out))["capacity"], 50.0);
}

#[test]
fn requests_that_prepare_a_search_are_not_judged() {
    let server = Server::start(|_, request| {
        let prepares = request.line.contains("/prepare");
        Reply::Answer(if prepares { 503 } else { 200 }, String::new())
    });
    let files = Files::new();
    let plan = files.write(
        "plan.toml",
        r#"
        name = "prepared"
        [variables]
        rate = 50
        [request.prepare]
        path = "/prepare"
        [request.r]
        path = "/"
        [[phase]]
        name = "before"
        users = 5
        steps = ["prepare"]
        [[phase]]
        name = "hold"
        arrivals = [{ rate = "rate", for = "0.1" }]
        steps = ["r"]
        "#,
    );
    let out = files.text("c.json");
    let url = server.url();
    let hold = ["--target", &url, "--p99", "60s", "--to", "50", "-q", "--json", &out];
    assert_eq!(load(&[&["capacity", &plan], &hold[..]].concat()), ExitCode::SUCCESS);
    let found = json(Path::new(&out));
    assert_eq!(found["capacity"], 50.0);
    assert_eq!(found["trials"][0]["failure_share"], 0.0);
}

#[test]
fn a_capacity_search_of_a_url_sends_the_request_it_is_given() {
    let server = Server::start(|_, request| {
        let is_as_asked = request.line.starts_with("POST ") && request.body == "x";
        Reply::Answer(if is_as_asked { 200 } else { 500 }, String::new())
    });
    let files = Files::new();
    let (url, out) = (server.url(), files.text("c.json"));
    let hold = ["--p99", "60s", "--from", "50", "--to", "50", "--for", "100ms", "-q"];
    let search = |target: &str, more: &[&str]| load(&[&["capacity", target], &hold[..], more].concat());
    assert_eq!(search(&url, &["-b", "x", "--json", &out]), ExitCode::SUCCESS);
    assert_eq!(json(Path::new(&out))["capacity"], 50.0);
    assert_eq!(
        search("constant", &["-b", "x"]),
        ExitCode::from(2),
        "a plan has its own"
    );
}

#[test]
fn head_to_head_and_compare_state_differences_and_spread() {
    let (a, b, files) = (fine(), fine(), Files::new());
    let [out, html] = ["h.json", "h.html"].map(|name| files.text(name));
    let code = load(&[
        "head2head",
        &a.url(),
        &b.url(),
        "--plan",
        "primes",
        "-n",
        "60",
        "--concurrency",
        "6",
        "--rounds",
        "3",
        "-q",
        "--json",
        &out,
        "--html",
        &html,
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    let found = json(Path::new(&out));
    let targets = found["targets"].as_array().unwrap();
    assert_eq!(targets[0]["name"], "A");
    assert_eq!(targets[1]["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(
        targets[0]["report"]["counters"]["successes"], 180,
        "the warm-up does not count"
    );
    assert_eq!(found["differences"].as_array().unwrap().len(), 3);
    assert_eq!(a.lines().len(), 240);
    assert!(a.lines().iter().all(|line| line.starts_with("GET /primes/20 ")));

    let saved = ["a.json", "b.json"].map(|name| {
        let out = files.text(name);
        assert_eq!(
            load(&[&a.url(), "-n", "50", "-c", "2", "-q", "--json", &out]),
            ExitCode::SUCCESS
        );
        out
    });
    let html = files.text("both.html");
    assert_eq!(
        load(&["compare", &saved[0], &saved[1], "--html", &html]),
        ExitCode::SUCCESS
    );
    assert!(std::fs::read_to_string(&html).unwrap().contains("too few repetitions"));

    // A setting that only the second run has is a difference, too.
    let mut report = Report::from_json(&std::fs::read_to_string(&saved[1]).unwrap(), "b.json").unwrap();
    report.settings.insert("streams".into(), "8".into());
    let other = files.write("c.json", &report.to_json());
    load(&["compare", &saved[0], &other, "--html", &html]);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("streams was none for A and 8 for B"), "{page}");
}

const SERVE_AT: &str = "THRONG_LOAD_TEST_SERVE_AT";

/// Serves if this program was started by the command of `serving`. Otherwise it does nothing.
#[test]
fn server_for_commands() {
    let Ok(port) = std::env::var(SERVE_AT) else { return };
    let _server = Server::start_at(port.parse().unwrap(), |_, _| Reply::Answer(200, "fine".into()));
    loop {
        std::thread::park();
    }
}

/// Returns a port, and a command that serves at it.
fn serving() -> (u16, String) {
    // The ports lie below those that the system gives to connections. One of these could be taken before the command listens.
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let first = 15_000 + (std::process::id() % 10_000) as u16;
    let port = loop {
        let port = first + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            break port;
        }
    };
    let program = std::env::current_exe().unwrap();
    let command = format!(
        "env {SERVE_AT}={port} {} --exact cli::server_for_commands",
        program.display()
    );
    (port, command)
}

#[test]
fn commands_are_started_measured_and_ended() {
    for restart in [false, true] {
        let (files, other) = (Files::new(), fine());
        let (port, command) = serving();
        let out = files.text("h.json");
        let one = format!("name=one,url=http://127.0.0.1:{port}/,command={command}");
        let two = format!("name=two,url={},pid={}", other.url(), std::process::id());
        let (port_three, command) = serving();
        let three = format!("name=three,url=http://127.0.0.1:{port_three}/,command={command}");
        let mut arguments = vec!["head2head", "--target", &one, "--target", &three];
        if restart {
            arguments.push("--restart");
        } else {
            arguments.extend(["--target", &two]);
        }
        arguments.extend(["-n", "50", "--concurrency", "5", "--rounds", "2", "-q", "--json", &out]);
        assert_eq!(load(&arguments), ExitCode::SUCCESS);
        let found = json(Path::new(&out));
        for target in found["targets"].as_array().unwrap() {
            assert_eq!(target["report"]["counters"]["successes"], 100, "{target}");
            assert!(target["cost"]["memory_bytes"].as_u64().unwrap() > 0, "{target}");
        }
        for port in [port, port_three] {
            assert!(
                std::net::TcpStream::connect(("127.0.0.1", port)).is_err(),
                "it was ended"
            );
        }
    }
}

#[test]
fn every_line_of_the_csv_agrees_with_the_report() {
    let server = Server::start(|number, _| Reply::Answer([200, 503, 409][number % 3], "no".into()));
    let files = Files::new();
    let plan = files.write(
        "plan.toml",
        r#"
        name = "judged"
        [request.fine]
        path = "/"
        check = { status = [200, 409] }
        retry = { tries = 2 }
        [request.checked]
        path = "/"
        check = { status = [200, 409, 503], contains = "yes" }
        [[phase]]
        name = "all"
        users = 1
        repeat = 3
        steps = ["fine", "checked"]
        "#,
    );
    let (csv, out) = (files.text("a.csv"), files.text("a.json"));
    load(&[
        "run",
        &plan,
        "--target",
        &server.url(),
        "-q",
        "--csv",
        &csv,
        "--json",
        &out,
    ]);
    let lines = std::fs::read_to_string(&csv).unwrap();
    let errors = |name: &str| {
        lines
            .lines()
            .filter(|line| line.split(',').nth(4) == Some(name))
            .count()
    };
    let report = json(Path::new(&out));
    let counted = &report["counters"]["errors"];
    assert!(errors("check failed") > 0 && errors("status 5xx") > 0, "{lines}");
    assert_eq!(counted["check"], errors("check failed"), "{lines}");
    assert_eq!(counted["server-error"], errors("status 5xx"), "{lines}");
    assert_eq!(errors("status 4xx"), 0, "a status that was expected is no error");
    let classes = report["classes"].as_array().unwrap();
    let checked = classes
        .iter()
        .find(|class| class["name"].as_str().unwrap().ends_with("checked"));
    assert_eq!(checked.unwrap()["examples"]["503"], "no");
    let seconds = std::fs::read_to_string(csv + ".seconds.csv").unwrap();
    let mut rows = seconds.lines();
    assert!(
        rows.next().unwrap().ends_with("bytes_out,status 5xx,check failed"),
        "{seconds}"
    );
    let ends = format!(",{},{}", counted["server-error"], counted["check"]);
    assert!(rows.next().unwrap().ends_with(&ends), "{seconds}");
}

#[test]
fn files_that_cannot_be_written_are_found_before_the_run() {
    let (server, files) = (fine(), Files::new());
    let nowhere = files.text("missing/file");
    for option in ["--json", "--csv", "--html"] {
        assert_eq!(
            load(&[&server.url(), "-n", "1", "-q", option, &nowhere]),
            ExitCode::from(2)
        );
    }
    assert_eq!(server.lines().len(), 0);
}

#[test]
fn an_unrunnable_plan_is_refused_before_any_request() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let files = Files::new();
    let no_trace = files.write("empty.jsonl", "\n");
    for arguments in [
        &["http://93.184.215.14/", "-q"][..],
        &["run", "no-such-plan"],
        &["run", "primes"],
        &["run", "skiers", "--set", "skier=1"],
        &["run", "constant", "--set", "rate=0"],
        &["run", "constant", "--set", "rate=nan"],
        &["http://127.0.0.1:9", "--pid", "4194305"],
        &["replay", &no_trace, "--target", "http://127.0.0.1:9"],
        &["compare", &no_trace, &no_trace],
        &["capacity", "constant", "--p99", "1s", "--variable", "speed"],
        &["head2head", "http://127.0.0.1:9"],
        &["head2head", "http://127.0.0.1:9", "http://127.0.0.1:9", "--restart"],
        &[
            "head2head",
            "http://127.0.0.1:9",
            "http://127.0.0.1:9",
            "--plan",
            "skiers",
        ],
        &[],
    ] {
        assert_eq!(load(arguments), ExitCode::from(2), "{arguments:?}");
    }
    for arguments in [
        ["-n", "0"],
        ["--for", "0s"],
        ["--rate", "0"],
        ["-t", "0"],
        ["--timeout", "0"],
        ["--streams", "2"],
    ] {
        let parsed = Arguments::try_parse_from([&["load", "http://127.0.0.1:9"], &arguments[..]].concat());
        assert!(parsed.is_err(), "{arguments:?}");
    }
    let refused = load(&[&format!("http://{nobody}"), "-n", "10", "-q"]);
    assert_eq!(refused, ExitCode::FAILURE, "a run without one success fails");
}

#[test]
fn a_name_without_address_is_counted_by_its_kind() {
    let files = Files::new();
    for (number, more) in [
        &["-n", "10"][..],
        &["--rate", "100", "--for", "1h"],
        &["--connections", "2", "--for", "1h"],
    ]
    .into_iter()
    .enumerate()
    {
        let out = files.text(&format!("{number}.json"));
        let arguments = [&["http://no-such-host.invalid/", "-q", "--json", &out][..], more].concat();
        assert_eq!(load(&arguments), ExitCode::FAILURE, "{arguments:?}");
        let report = json(Path::new(&out));
        let failures = report["counters"]["failures"].as_u64().unwrap();
        assert!(failures > 0 && report["counters"]["successes"] == 0, "{report}");
        assert_eq!(report["counters"]["errors"], serde_json::json!({ "dns": failures }));
    }
}

#[test]
fn target_metrics_and_broker_queues_are_sampled_during_a_run() {
    let server = Server::start(|number, request| {
        let body = match request.line.split(' ').nth(1).unwrap() {
            "/metrics" => {
                format!("# TYPE done_total counter\ndone_total {number}\nbatch_size{{loop=\"0\"}} 7\nother 1\n")
            }
            "/api/queues" => r#"[{"name":"skiers","messages":42}]"#.to_string(),
            _ => String::new(),
        };
        Reply::Answer(200, body)
    });
    let files = Files::new();
    let out = files.text("a.json");
    let metrics = format!("{}/metrics=done_total,batch_*,mistyped", server.url());
    let broker = format!("http://guest:guest@{}", server.address);
    let gone = "http://127.0.0.1:9/metrics=x";
    let code = load(&[
        &server.url(),
        "--rate",
        "100",
        "--for",
        "1200ms",
        "-q",
        "--json",
        &out,
        "--sample",
        &metrics,
        "--sample",
        gone,
        "--rabbitmq",
        &broker,
    ]);
    assert_eq!(code, ExitCode::SUCCESS);
    let report = json(Path::new(&out));
    let last = |name: &str| {
        let series = report["samples"]
            .as_array()
            .unwrap()
            .iter()
            .find(|series| series["name"] == name);
        series.unwrap_or_else(|| panic!("no series {name}"))["points"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()[1]
            .as_f64()
            .unwrap()
    };
    assert_eq!(last("batch_size{loop=\"0\"}"), 7.0);
    assert_eq!(last("skiers: messages queued"), 42.0);
    assert!(last("done_total") > 0.0, "a counter is shown as its rate");
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("cannot sample http://127.0.0.1:9/metrics"),
        "{warnings}"
    );
    assert!(warnings.contains("nothing to sample is called mistyped"), "{warnings}");
    assert!(!warnings.contains("called batch_*"), "{warnings}");
}
