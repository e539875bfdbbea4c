//! Tests of the shipped load plans in a small size, against the real service: every request fits the contract.

use crate::service::Service;
use shows::available::PAGE_MAX;
use throng_load::{Options, Report, Target, plan::Plan};

fn run(service: &Service, plan: &str, variables: &[(&str, f64)]) -> Report {
    let mut plan = Plan::open(plan).unwrap();
    for (name, value) in variables {
        plan.set(name, *value).unwrap();
    }
    let target = Target::resolve(&format!("http://{}", service.address()), false).unwrap();
    let report = plan.run(Options::new(target), Some(32), 1, |_| {}).unwrap();
    assert_eq!(report.counters.failures, 0, "{:?}", report.counters);
    assert_eq!(report.unsent, 0);
    report
}

fn successes(report: &Report, class: &str) -> u64 {
    let class = report.classes.iter().find(|one| one.name == class);
    class
        .unwrap_or_else(|| panic!("no class {class:?} in {:?}", report.classes))
        .counters
        .successes
}

#[test]
fn serial_users_reserve_all_seats_of_shows_of_their_own() {
    let service = Service::start();
    let variables = [("rate", 40.0), ("ramp", 0.2), ("seconds", 0.5), ("seats", 50.0)];
    let report = run(&service, "shows-serial", &variables);
    let users = successes(&report, "serial/create");
    assert!(users >= 20, "{users}");
    assert_eq!(successes(&report, "serial/reserve"), users * 50);
    service.caught_up();
    let (_, page) = service.get(&format!("/shows?available=true&limit={PAGE_MAX}"));
    assert_eq!(page, r#"{"shows":[],"after":null}"#, "no seat is left anywhere");
    // A second run on the same service makes its own shows.
    run(&service, "shows-serial", &variables);
}

#[test]
fn concurrent_requests_reserve_and_give_back_in_a_circle() {
    let service = Service::start();
    let variables = [("rate", 2_000.0), ("seconds", 1.0), ("shows", 20.0), ("create", 200.0)];
    let report = run(&service, "shows-concurrent", &variables);
    assert_eq!(successes(&report, "create/create"), 20);
    assert_eq!(successes(&report, "concurrent/change"), 2_000);
}

#[test]
fn a_tenth_of_the_requests_is_for_one_hot_show() {
    let service = Service::start();
    let variables = [("rate", 1_000.0), ("seconds", 1.0), ("shows", 20.0), ("create", 200.0)];
    let report = run(&service, "shows-hot", &variables);
    assert_eq!(successes(&report, "hot/hot"), 100);
    assert_eq!(successes(&report, "others/change"), 900);
}
