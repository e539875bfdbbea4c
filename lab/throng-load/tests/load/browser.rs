//! The page in a real browser: headless Chromium, desktop and phone width, light and dark.
//!
//! The tests need `chromium` (Debian package `chromium`) on the path or in `CHROMIUM`. Without it they fail, because a page that was not displayed is
//! not tested. `THRONG_NO_BROWSER=1` skips them and reports that.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Reply, Server};
use throng_load::comparison::{Repetition, differences};
use throng_load::report::{Cost, html};
use throng_load::{Arrivals, Open, Report, Request, run};

fn chromium() -> Option<String> {
    if std::env::var_os("THRONG_NO_BROWSER").is_some() {
        eprintln!("left out: THRONG_NO_BROWSER is set");
        return None;
    }
    Some(std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into()))
}

/// Returns the page's document after its scripts have run, with their exceptions.
fn rendered(browser: &str, page: &str, hash: &str, width: u32) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    // Errors and overflow become part of the document, so that a broken page cannot pass. The document gets the width too, because a browser's window
    // has a least width.
    let watch = format!(
        "<style>html {{ width: {width}px }}</style>\
         <script>onerror = (message) => {{ document.title = 'ERROR ' + message }};\
         onload = () => {{
            const root = document.documentElement.dataset;
            root.overflow = page.scrollWidth - page.clientWidth;
            const boxes = [...document.querySelectorAll('.chart svg')].map((svg) =>
                [...svg.querySelectorAll('text')].map((text) => text.getBoundingClientRect()));
            const meet = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
            root.overlaps = boxes.reduce((sum, of) => sum + of.filter((one, at) => of.slice(at + 1).some((other) => meet(one, other))).length, 0);
            root.headless = document.querySelectorAll('th:empty').length;
            root.buttonLines = Math.round(document.querySelector('header button').getClientRects()[0].height / 32);
         }}</script></head>"
    );
    std::fs::write(&path, page.replacen("</head>", &watch, 1)).unwrap();
    let profile = directory.path().join("profile");
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .arg("--disable-background-networking")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},1000"))
        .args(["--virtual-time-budget=2000", "--timeout=20000", "--dump-dom"])
        .arg(format!("file://{}#{hash}", path.display()))
        .stderr(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("`{browser}` cannot be started ({error}): install chromium, or set CHROMIUM or THRONG_NO_BROWSER")
        });
    String::from_utf8(output.stdout).unwrap()
}

fn report(seconds: f64) -> Report {
    let server = Server::start(|number, _| Reply::Answer(if number % 50 == 7 { 503 } else { 200 }, "<b>".into()));
    let options = server.options(4);
    let request = Request::get(&options.target.authority, "/");
    let mut report = run(&options, vec![Open::new(request, Arrivals::constant(400.0, seconds))])
        .unwrap()
        .report;
    report.title = "</script><i id=evil>".into();
    report.plan = Some("name = \"<script>\"".into());
    report
}

fn assert_whole(document: &str, charts: usize) {
    // The drawn part stands before the data and the scripts.
    let document = document.split("<script type=").next().unwrap();
    assert!(
        !document.contains("<title>ERROR"),
        "{}",
        &document[..document.len().min(400)]
    );
    assert!(
        document.contains("data-overflow=\"0\""),
        "nothing sticks out at the side"
    );
    for seen in ["data-overlaps=\"0\"", "data-headless=\"0\"", "data-button-lines=\"1\""] {
        assert!(
            document.contains(seen),
            "{seen}: {}",
            &document[..document.len().min(400)]
        );
    }
    assert!(
        document.matches("<polyline").count() + document.matches("<circle").count() >= charts,
        "every chart is drawn"
    );
    assert!(
        document.matches("<svg").count() >= charts,
        "{} charts",
        document.matches("<svg").count()
    );
    assert!(!document.contains("[object ") && !document.contains("NaN") && !document.contains("undefined"));
    assert!(!document.contains("id=\"evil\""), "a name stays text");
}

#[test]
fn a_run_is_drawn_at_every_width_and_in_both_themes() {
    let Some(browser) = chromium() else { return };
    let page = html::run(&report(3.2));
    for (hash, width) in [("light", 1280), ("dark", 390)] {
        let document = rendered(&browser, &page, hash, width);
        assert_whole(&document, 5);
        assert!(document.contains(&format!("data-theme=\"{hash}\"")));
        for words in [
            "Response time over time",
            "Percentiles",
            "Throughput and failures",
            "Errors a second, by kind",
            "Open connections",
            "Bytes, kB a second",
            "service time",
            "status 5xx",
            "server-error",
        ] {
            assert!(document.contains(words), "{words}");
        }
    }
}

#[test]
fn a_run_too_short_for_lines_is_drawn_by_its_requests() {
    let Some(browser) = chromium() else { return };
    let page = html::run(&report(0.5));
    for (hash, width) in [("light", 390), ("dark", 1280)] {
        let document = rendered(&browser, &page, hash, width);
        assert_whole(&document, 3);
        let drawn = document.split("<script type=").next().unwrap();
        assert!(drawn.matches("<circle").count() >= 200, "a dot for each request");
        assert!(drawn.contains("requests/s") && !drawn.contains("Open connections"));
    }
}

#[test]
fn runs_stand_side_by_side_with_their_comparison() {
    let Some(browser) = chromium() else { return };
    let one = report(2.2);
    let rounds = vec![Repetition::of_run(&one); 3];
    let found = differences(&rounds, &rounds, true);
    let sentences: Vec<String> = found.iter().map(|difference| difference.sentence("A", "B")).collect();
    let cost = Cost {
        cpu_nanos_per_request: 12_345.0,
        memory_bytes: 67_000_000,
    };
    let side = |name| html::Side {
        name,
        report: &one,
        cost: Some(cost),
        repetitions: &rounds,
    };
    let sides = [side("A"), side("B"), side("C <b>")];
    let page = html::several("Head to head", &sides, &sentences);
    for (hash, width) in [("light", 1280), ("dark", 390)] {
        let document = rendered(&browser, &page, hash, width);
        assert_whole(&document, 6);
        for words in [
            "no difference outside the noise",
            "CPU a request",
            "12.3 µs",
            "67 MB",
            "last round: C &lt;b&gt;",
        ] {
            assert!(document.contains(words), "{words}");
        }
    }
}

#[test]
fn two_saved_runs_are_overlaid() {
    let Some(browser) = chromium() else { return };
    let one = report(2.2);
    let sides = [html::Side::single("A", &one), html::Side::single("B", &one)];
    let page = html::several("Comparison", &sides, &["as it is".into()]);
    let document = rendered(&browser, &page, "light", 1280);
    assert_whole(&document, 3);
    let drawn = document.split("<script type=").next().unwrap();
    assert!(drawn.contains("p99 over time") && !drawn.contains("CPU a request"));
}

#[test]
fn a_capacity_search_is_drawn() {
    let Some(browser) = chromium() else { return };
    use throng_load::capacity::{Promise, Trial};
    let one = report(2.2);
    let promise = Promise {
        p99_nanos: Duration::from_secs(1).as_nanos() as u64,
        failure_share: 1.0,
    };
    let trials = [100.0, 200.0].map(|rate| Trial::judge(rate, &one, &promise));
    let document = rendered(
        &browser,
        &html::capacity("plan", &trials, &promise, Some(&one)),
        "dark",
        390,
    );
    assert_whole(&document, 6);
    assert!(document.contains("Highest rate that kept the promise: 200"));
}
