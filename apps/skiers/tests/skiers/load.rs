//! Tests of the shipped load plans: their full totals, and a small run against the real service.

use crate::service::Service;
use throng_load::{Options, Report, Target, plan::Plan};
use throng_testing::until;

fn target(address: &str) -> Target {
    Target::resolve(&format!("http://{address}"), false).unwrap()
}

fn run(service: &Service, name: &str, variables: &[(&str, f64)]) -> Report {
    let mut plan = Plan::open(name).unwrap();
    for (name, value) in variables {
        plan.set(name, *value).unwrap();
    }
    let options = Options::new(target(&service.address().to_string()));
    let report = plan.run(options, None, 1, |_| {}).unwrap();
    assert_eq!(report.counters.failures, 0, "{:?}", report.counters);
    report
}

#[test]
fn rides_of_all_three_phases_count_on_their_day() {
    let service = Service::start();
    let report = run(
        &service,
        "skiers",
        &[("threads", 20.0), ("skiers", 200.0), ("runs", 10.0)],
    );
    // The threads times their requests: 5 × 80, 20 × 60, 2 × 1.
    assert_eq!(report.counters.successes, 400 + 1_200 + 2);
    until("all rides are counted", || service.rides(56, 2022) == 1_602);
    let statistics = service.get("/statistics").1;
    assert!(statistics.contains(r#""operation":"POST""#), "{statistics}");
}

#[test]
fn the_three_reads_find_the_loaded_rides() {
    let service = Service::start();
    run(
        &service,
        "skiers",
        &[("threads", 8.0), ("skiers", 80.0), ("runs", 20.0)],
    );
    until("rides are counted and the season is known", || {
        service.rides(56, 2022) > 0 && service.get("/resorts/56/seasons").0 == 200
    });
    let report = run(
        &service,
        "skiers-read",
        &[("threads", 8.0), ("iterations", 5.0), ("skiers", 80.0)],
    );
    assert_eq!(report.counters.successes, 3 * 8 * 5);
}
