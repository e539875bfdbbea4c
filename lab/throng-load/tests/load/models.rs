//! The open model, replay and plans, against servers that check the requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::{Reply, Server};
use throng_load::plan::Plan;
use throng_load::{Aftermath, Arrivals, Closed, ErrorKind, Open, OrderedReplay, Report, Request, Trace, Verdict, run};

fn run_plan(server: &Server, text: &str, threads: usize) -> Report {
    let plan = Plan::parse(text, "test.toml", None).unwrap();
    plan.run(server.options(1), None, threads, |_| {}).unwrap()
}

#[test]
fn connections_grow_with_need_and_not_ahead() {
    let plan = |rate: &str| {
        format!(
            "name = \"t\"\n[request.get]\npath = \"/\"\n[[phase]]\nname = \"one\"\narrivals = [{{ {rate} }}]\nsteps = [\"get\"]\n\
             [[phase]]\nname = \"two\"\narrivals = [{{ {rate} }}]\nsteps = [\"get\"]\n"
        )
    };
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    let report = run_plan(&server, &plan("rate = 50, for = 0.1"), 1);
    assert_eq!(report.counters.successes, 10);
    assert!(
        (1..=10).contains(&report.connections_opened),
        "{}",
        report.connections_opened
    );
    assert_eq!(
        server.connections.load(Ordering::SeqCst) as u64,
        report.connections_opened
    );

    // Every arrival of the first phase finds all others still waiting, so each needs a connection of its own.
    let waiting = Arc::new((Mutex::new(0), Condvar::new()));
    let server = Server::start(move |_, _| {
        let (count, changed) = &*waiting;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let _all = changed.wait_while(count, |count| *count < 5).unwrap();
        Reply::Answer(200, String::new())
    });
    let report = run_plan(&server, &plan("rate = 50, for = 0.1"), 1);
    assert_eq!(report.counters.successes, 10);
    assert!(
        (5..=10).contains(&report.connections_opened),
        "{}",
        report.connections_opened
    );
}

/// Starts a server that stops once for this long, before it answers its eleventh request.
fn stall_once(stall: Duration) -> Server {
    let stalled = AtomicBool::new(false);
    Server::start(move |number, _| {
        if number == 10 && !stalled.swap(true, Ordering::SeqCst) {
            std::thread::sleep(stall); // the fault itself, not a wait for a condition
        }
        Reply::Answer(200, String::new())
    })
}

#[test]
fn an_open_model_shows_a_stall_in_every_request_due_in_it() {
    // With one connection and 1,000 requests a second, a stall of 200 ms makes some 200 requests wait.
    let server = stall_once(Duration::from_millis(200));
    let options = server.options(1);
    let request = Request::get(&options.target.authority, "/");
    let report = run(&options, vec![Open::new(request, Arrivals::constant(1000.0, 0.5))])
        .unwrap()
        .report;
    assert_eq!(report.counters.successes, 500);
    assert!(report.open_model);
    let slow = |histogram: &throng_load::measure::Latencies| histogram.count_between(50_000_000, u64::MAX);
    assert!(
        slow(&report.response) > 100,
        "{} requests waited 50 ms or more",
        slow(&report.response)
    );
    // Only one service time contains the stall, but many response times do. Other delays of this machine do not matter.
    assert!(
        slow(&report.service) * 10 < slow(&report.response),
        "service time hides it: {}",
        slow(&report.service)
    );
    assert!(
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("free connection")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_closed_model_shows_the_same_stall_once() {
    let server = stall_once(Duration::from_millis(100));
    let options = server.options(1);
    let request = Request::get(&options.target.authority, "/");
    let report = run(&options, vec![Closed::new(request, 500)]).unwrap().report;
    assert!(report.response.max() >= 99_000_000);
    assert!(
        report.response.value_at_quantile(0.9) < report.response.max() / 2,
        "one slow request of 500 is no percentile"
    );
}

#[test]
fn a_rate_that_cannot_be_kept_is_said_loudly() {
    let server = Server::start(|_, _| Reply::Hang);
    let mut options = server.options(1);
    options.duration = Some(Duration::from_millis(50));
    options.drain = Duration::from_millis(10);
    let request = Request::get(&options.target.authority, "/");
    let report = run(&options, vec![Open::new(request, Arrivals::constant(1000.0, 0.05))])
        .unwrap()
        .report;
    assert_eq!(report.unsent, 49);
    assert!(
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("RATE WAS NOT KEPT")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_replay_keeps_each_keys_order_over_many_connections() {
    let server = Server::start(|_, _| Reply::Answer(200, "yes".into()));
    let mut options = server.options(16);
    options.classes = vec!["event".into()];
    let mut trace = Trace::new();
    for index in 0..2000 {
        let key = format!("k{}", index % 37);
        let request = Request::get(&options.target.authority, &format!("/{key}/{index}"));
        trace.push(&key, None, 0, request.bytes());
    }
    let trace = Arc::new(trace);
    let sources = (0..2)
        .map(|part| {
            let judge = |_: usize, outcome: &throng_load::Outcome<'_>| {
                let yes = outcome.result.as_ref().is_ok_and(|answer| answer.body == b"yes");
                Aftermath::Done(if yes { Verdict::Success } else { Verdict::CheckFailed })
            };
            OrderedReplay::new(trace.clone(), judge).part(part, 2).look_ahead(64)
        })
        .collect();
    let report = run(&options, sources).unwrap().report;
    assert_eq!(report.counters.successes, 2000);
    let mut last: HashMap<String, usize> = HashMap::new();
    for line in server.lines() {
        let mut parts = line.split(['/', ' ']).skip(2);
        let (key, index) = (
            parts.next().unwrap().to_string(),
            parts.next().unwrap().parse().unwrap(),
        );
        if let Some(before) = last.insert(key, index) {
            assert!(before < index, "{line} after {before}");
        }
    }
    assert_eq!(last.len(), 37);
}

#[test]
fn a_replay_can_resend_requests_lost_in_a_crash() {
    let server = Server::start(|number, _| {
        if number < 3 {
            Reply::RawThenClose(Vec::new())
        } else {
            Reply::Answer(200, String::new())
        }
    });
    let mut trace = Trace::new();
    for index in 0..5 {
        trace.push("k", None, 0, Request::get("h", &format!("/{index}")).bytes());
    }
    let replay = OrderedReplay::new(Arc::new(trace), |_, outcome| match outcome.result {
        Ok(_) => Aftermath::Done(Verdict::ByStatus),
        Err(_) => Aftermath::Again(Duration::from_micros(100)),
    });
    let report = run(&server.options(2), vec![replay]).unwrap().report;
    assert_eq!((report.counters.successes, report.counters.retried), (5, 3));
    assert_eq!(report.counters.errors[&ErrorKind::Closed], 3);
    let lines: Vec<String> = server.lines().iter().map(|line| line[4..6].to_string()).collect();
    assert_eq!(lines, ["/0", "/0", "/0", "/0", "/1", "/2", "/3", "/4"]);
}

#[test]
fn the_skier_client_sends_its_phases_with_their_ranges() {
    let server = Server::start(|_, _| Reply::Answer(201, "Lift ride created!".into()));
    let mut plan = Plan::open("skiers").unwrap();
    for (name, value) in [("threads", 32.0), ("skiers", 320.0), ("runs", 10.0)] {
        plan.set(name, value).unwrap();
    }
    let expected = plan.requests_expected(&server.target()).unwrap().unwrap();
    assert_eq!(expected, 8 * 80 + 32 * 60 + 3);
    let report = plan.run(server.options(1), None, 2, |_| {}).unwrap();
    assert_eq!((report.counters.successes, report.counters.failures), (expected, 0));
    let classes: Vec<(&str, u64)> = report
        .classes
        .iter()
        .map(|class| (class.name.as_str(), class.counters.successes))
        .collect();
    assert_eq!(classes, [("one/ride", 640), ("two/ride", 1920), ("three/ride", 3)]);
    for seen in server.seen.lock().unwrap().iter() {
        let body: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        assert!(
            (1..=420).contains(&body["time"].as_u64().unwrap()) && (1..=40).contains(&body["liftID"].as_u64().unwrap())
        );
        assert!(
            seen.line.starts_with("POST /skiers/56/seasons/2022/days/"),
            "{}",
            seen.line
        );
    }
}

#[test]
fn a_phase_starts_when_the_share_of_the_one_before_is_done() {
    // Users of the first phase, except the first one, are held back until the second phase is seen.
    let second_seen = Arc::new((Mutex::new(false), Condvar::new()));
    let seen = second_seen.clone();
    let firsts = AtomicUsize::new(0);
    let server = Server::start(move |_, request| {
        let (flag, changed) = &*seen;
        if request.line.contains("/second") {
            *flag.lock().unwrap() = true;
            changed.notify_all();
        } else if firsts.fetch_add(1, Ordering::SeqCst) >= 1 {
            drop(changed.wait_while(flag.lock().unwrap(), |flag| !*flag).unwrap());
        }
        Reply::Answer(200, String::new())
    });
    let report = run_plan(
        &server,
        r#"
        name = "overlap"
        [request.first]
        path = "/first"
        [request.second]
        path = "/second"
        [[phase]]
        name = "one"
        users = 5
        steps = ["first"]
        [[phase]]
        name = "two"
        start = { after = "one", done = 0.2 }
        users = 1
        steps = ["second"]
        "#,
        1,
    );
    assert_eq!(
        report.counters.successes, 6,
        "would hang if the second phase waited for all of the first"
    );
}

#[test]
fn serial_users_create_a_show_and_reserve_each_of_its_seats() {
    let created: Mutex<Vec<String>> = Mutex::default();
    let server = Server::start(move |_, request| {
        let mut created = created.lock().unwrap();
        if request.line.starts_with("POST /shows ") {
            let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
            created.push(body["showId"].as_str().unwrap().to_string());
            return Reply::Answer(201, "Show created".into());
        }
        let show = request.line.split('/').nth(2).unwrap();
        if created.iter().any(|known| known == show) {
            Reply::Answer(202, "RESERVE successful".into())
        } else {
            Reply::Answer(400, String::new())
        }
    });
    let plan = Plan::open("shows-serial").unwrap();
    let text = plan
        .text()
        .replace("ramp = 15", "ramp = 0.3")
        .replace("rate = 10\n", "rate = 100\n")
        .replace("seconds = 300", "seconds = 0.1")
        .replace("seats = 50", "seats = 3");
    let report = run_plan(&server, &text, 1);
    let users = report
        .classes
        .iter()
        .find(|class| class.name == "serial/create")
        .unwrap()
        .counters
        .successes;
    assert_eq!(report.counters.successes, users * 4);
    assert_eq!(report.counters.failures, 0);
    assert!(users >= 20, "{users}");
    let mut seats: HashMap<String, Vec<String>> = HashMap::new();
    for line in server.lines().iter().filter(|line| line.starts_with("PATCH")) {
        let parts: Vec<&str> = line.split(['/', ' ']).collect();
        seats
            .entry(parts[3].to_string())
            .or_default()
            .push(parts[5].to_string());
    }
    let orders: std::collections::HashSet<&Vec<String>> = seats.values().collect();
    assert_eq!(orders.len(), 1, "one shuffled order is shared by all users: {orders:?}");
}

#[test]
fn captured_values_checks_and_retries_work_together() {
    let server = Server::start(|number, request| match request.line.split(' ').nth(1).unwrap() {
        "/token" => Reply::Answer(200, r#"{"eci":"c x"}"#.into()),
        "/use/c%20x" if number % 2 == 1 => Reply::Answer(500, String::new()),
        "/use/c%20x" => Reply::Answer(200, r#"{"ok":true}"#.into()),
        _ => Reply::Answer(404, String::new()),
    });
    let report = run_plan(
        &server,
        r#"
        name = "capture"
        connections = 1
        [request.token]
        path = "/token"
        capture = { eci = { json = "/eci" } }
        [request.use]
        path = "/use/${eci}"
        check = { status = [200], json = { "/ok" = true } }
        retry = { tries = 3, pauses = ["1ms"] }
        [[phase]]
        name = "p"
        users = 1
        repeat = 2
        steps = ["token", { request = "use", times = 2 }, { pause = "1ms" }]
        "#,
        1,
    );
    assert_eq!(report.counters.failures, 0, "{:?}", report.counters);
    assert_eq!(report.counters.successes, 6);
    assert!(report.counters.retried > 0);
}

#[test]
fn a_failed_check_is_counted_as_one() {
    let server = Server::start(|_, _| Reply::Answer(200, "no".into()));
    let report = run_plan(
        &server,
        "name = 'c'\n[request.r]\npath = '/'\ncheck = { contains = 'yes' }\n[[phase]]\nname = 'p'\nusers = 2\nrepeat = 3\nsteps = ['r']",
        2,
    );
    assert_eq!(report.counters.errors[&ErrorKind::Check], 6);
}

#[test]
fn a_plans_mistakes_are_named_before_anything_is_sent() {
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    for (text, word) in [
        ("name = 'x'", "[[phase]]"),
        ("name = 'x'\nnonsense = 1", "nonsense"),
        (
            "name = 'x'\n[[phase]]\nname='p'\nusers=1\nsteps=['r']",
            "no request `r`",
        ),
        (
            "name = 'x'\n[request.r]\npath='/${q}'\n[[phase]]\nname='p'\nusers=1\nsteps=['r']",
            "`${q}` names no data",
        ),
        (
            "name = 'x'\n[request.r]\npath='/'\n[[phase]]\nname='p'\nsteps=['r']",
            "either `users`",
        ),
        (
            "name = 'x'\n[request.r]\npath='/'\n[[phase]]\nname='p'\nusers='a+1'\nsteps=['r']",
            "no variable `a`",
        ),
        (
            "name = 'x'\n[request.r]\npath='/'\n[[phase]]\nname='p'\nusers=1\nstart={after='q'}\nsteps=['r']",
            "no earlier phase",
        ),
    ] {
        let found = Plan::parse(text, "test.toml", None).and_then(|plan| plan.run(server.options(1), None, 1, |_| {}));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(server.lines().is_empty());
}

#[test]
fn a_stop_is_no_rate_that_was_not_kept() {
    let stop = throng_load::Stop::new();
    let thrown = stop.clone();
    let server = Server::start(move |number, _| {
        if number < 5 {
            return Reply::Answer(200, String::new());
        }
        thrown.now();
        Reply::Hang
    });
    let mut options = server.options(200);
    options.stop = stop;
    options.drain = std::time::Duration::from_millis(10);
    let request = Request::get(&options.target.authority, "/");
    // Only the next due request wakes the generator, so it is not counted as unsent.
    let run = run(&options, vec![Open::new(request, Arrivals::constant(200.0, 3600.0))]).unwrap();
    assert_eq!((run.report.ended.as_str(), run.report.unsent), ("stopped", 0));
}
