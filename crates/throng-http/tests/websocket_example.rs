//! Runs the WebSocket clients of the example: the page in headless Chromium, and the one in Rust.
//!
//! This is a separate program because it also acts as the example, whose only thread other tests would slow down.
//!
//! Needs `chromium` on the path or in `CHROMIUM`; `THRONG_NO_BROWSER=1` skips the browser, with a message.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../examples/websocket/main.rs"]
mod example;

use axum::{Router, routing::post};
use example::{client, service};
use std::{
    env,
    io::{BufRead, BufReader, Read},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};
use throng_http::Running;
use throng_testing::block_on;

/// Long enough for a browser on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(page: String, routes: Router) -> Running {
    block_on(service::start("127.0.0.1:0", page, routes)).unwrap()
}

#[test]
fn the_client_in_rust_counts_in_one_frame_and_sees_every_event() {
    let running = start(String::new(), Router::new());
    let url = format!("ws://{}/api/ws", running.address());
    let frames = block_on(client::talk(&url, "rust", 1_000)).unwrap();
    assert!(frames < 200, "{frames} frames for 1,000 answers and 1,000 events");
    running.stop_blocking();
}

/// A script that presses the page's buttons like a person, and reports to the test.
const SCRIPT: &str = r#"<script>
  const tell = text => fetch('/report', { method: 'POST', body: text })
  onerror = message => tell('ERROR ' + message)
  onunhandledrejection = event => tell('ERROR ' + event.reason)
  addEventListener('page-ready', async () => {
    const { service, count } = globalThis.page
    const lines = []
    lines.push(await count(1), await count(1000), await service.query('counter', 'page'))
    lines.push(await service.command('counter', 'page', 'fly').catch(error => error.problem.type))
    const seqs = []
    for await (const event of service.follow({ kind: 'counter', entity: 'page', credit: 10 })) {
      seqs.push(event.seq)
      if (seqs.length === 1001) break
    }
    lines.push(seqs.every((seq, at) => seq === at + 1), document.querySelectorAll('#events li').length > 0)
    const first = async of => (await service.follow({ kind: 'counter', entity: 'page', ...of }).next()).value
    const again = await first({ after: (await first({})).cursor ?? 'start' })
    lines.push(again.seq <= 2)
    service.close()
    lines.push(...await Promise.all([1, 2].map(n => count(n).catch(error => error.message.slice(0, 6)))))
    lines.push(await count(1).catch(error => error.message.slice(0, 6)), await first({}).catch(() => 'over'))
    await tell(lines.join(' '))
  })
</script></head>"#;

/// A process that is killed at the test's end.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_page_counts_queries_and_follows_in_a_browser() {
    if std::env::var_os("THRONG_NO_BROWSER").is_some() {
        eprintln!("left out: THRONG_NO_BROWSER is set");
        return;
    }
    let (tell, told) = mpsc::channel();
    let report = post(async move |body: String| drop(tell.send(body)));
    let page = service::PAGE.replacen("</head>", SCRIPT, 1);
    let running = start(page, Router::new().route("/report", report));
    let _browser = throng_testing::browse(&running.url());
    let report = told.recv_timeout(PATIENCE).expect("the page says what came of it");
    assert_eq!(
        report,
        "1 1001 1001 /problems/unknown-command true true true closed closed closed over"
    );
}

/// The variable that makes this program act as the example.
const AS_THE_EXAMPLE: &str = "THRONG_TEST_AS_THE_EXAMPLE";

#[test]
fn the_example_as_a_process() {
    if env::var_os(AS_THE_EXAMPLE).is_some() {
        example::main().unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_example_ends_gracefully_at_ctrl_c() {
    let child = Command::new(env::current_exe().unwrap())
        // The example reads its first argument. The test program takes both for names of tests.
        .args(["127.0.0.1:0", "the_example_as_a_process", "--exact", "--nocapture"])
        .env(AS_THE_EXAMPLE, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = Process(child.unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("open http://").map(str::to_owned));
    let address = address.expect("the example says where it is");
    assert!(TcpStream::connect(&address).is_ok());
    // Before a handler is installed, the signal would end the process at once.
    let id = rustix::process::Pid::from_child(&process.0);
    let status = format!("/proc/{}/status", process.0.id());
    while !is_caught(&std::fs::read_to_string(&status).unwrap(), rustix::process::Signal::INT) {
        std::thread::yield_now();
    }
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let left: Vec<String> = lines.collect();
    let mut said = String::new();
    process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = process.0.wait().unwrap();
    assert!(status.success(), "{status}: {left:?}, {said}");
    assert!(TcpStream::connect(&address).is_err());
}

/// Returns true if a process with this status handles the signal.
#[cfg(target_os = "linux")]
fn is_caught(status: &str, signal: rustix::process::Signal) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}
