//! Statistics and health, with the test's own clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng_services::{
    Context, Service,
    health::{Health, Reason, Status},
    service,
    stats::{KEYS_MAX, Stats, Summary},
};

fn at(second: &Arc<AtomicU64>) -> Stats {
    let second = second.clone();
    Stats::with_clock(move || second.load(Ordering::Relaxed))
}

#[test]
fn seconds_are_asked_for_one_by_one_and_together() {
    let second = Arc::new(AtomicU64::new(1_000));
    let stats = at(&second);
    let orders = stats.counter("orders");
    for n in [1, 2, 3, 4] {
        orders.add(n);
        second.fetch_add(1, Ordering::Relaxed);
    }
    orders.add(10);
    assert_eq!(stats.this_second("orders"), 10);
    assert_eq!(stats.last_second("orders"), 4);
    assert_eq!(stats.sum("orders", 3), 9);
    let last_four = stats.summary("orders", 4).unwrap();
    assert_eq!(
        (last_four.mean, last_four.median, last_four.min, last_four.max),
        (2.5, 2.5, 1.0, 4.0)
    );
    second.fetch_add(200, Ordering::Relaxed);
    assert_eq!(stats.sum("orders", 100), 0, "that was long ago");
    assert_eq!(stats.sum("nobody", 10), 0);
}

#[test]
fn a_level_keeps_its_last_value_and_a_timing_its_seconds_mean() {
    let second = Arc::new(AtomicU64::new(5));
    let stats = at(&second);
    stats.level("depth").set(3.0);
    stats.level("depth").set(8.0);
    let call = stats.timing("call");
    call.record(Duration::from_millis(10));
    call.record(Duration::from_millis(30));
    second.store(6, Ordering::Relaxed);
    assert_eq!(stats.last_level("depth"), Some(8.0));
    assert_eq!(stats.summary("depth", 10).unwrap().max, 8.0);
    let Summary { seconds, mean, .. } = stats.summary("call", 10).unwrap();
    assert_eq!(seconds, 1);
    assert!((mean - 0.02).abs() < 1e-9);
}

#[test]
fn keys_have_a_bound_and_one_kind_each() {
    let stats = Stats::with_clock(|| 1);
    stats.counter("orders").add(1);
    stats.level("orders").set(9.0);
    assert_eq!(
        (stats.keys_refused(), stats.last_level("orders")),
        (1, Some(1.0)),
        "a count's last addition"
    );
    for n in 0..KEYS_MAX {
        stats.counter(&format!("key{n}")).add(1);
    }
    assert_eq!(stats.keys_refused(), 2);
    assert_eq!(stats.this_second(&format!("key{}", KEYS_MAX - 1)), 0);
}

struct Sink;

impl Service for Sink {
    type Message = u32;
    fn receive(&mut self, n: u32, _: &mut Context<u32>) {
        assert!(n > 0, "nothing is no message");
    }
}

#[test]
fn a_service_records_itself() {
    let stats = Stats::with_clock(|| 1);
    let running = service("sink", || Sink).stats(&stats).start().unwrap();
    running.address().send_all([1, 2, 0, 3]).unwrap();
    let counts = running.stop();
    assert_eq!(stats.this_second("sink.received"), 4);
    assert_eq!(stats.this_second("sink.batches"), counts.batches);
    assert_eq!(stats.this_second("sink.panics"), 1);
    assert!(stats.last_level("sink.batch_items").unwrap() >= 1.0);
    assert!(stats.last_level("sink.queue_items").is_some());
}

#[test]
fn a_check_fails_after_its_time_to_live_until_it_checks_in() {
    let (begun, passed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clock = {
        let passed = passed.clone();
        move || begun + Duration::from_secs(passed.load(Ordering::Relaxed))
    };
    let health = Health::with_clock(clock);
    let billing = health.register("billing", Some(Duration::from_secs(10)));
    let archive = health.register("archive", None);
    assert_eq!(health.status(), Status::Unknown);
    billing.pass();
    archive.warn("the disk is nearly full");
    assert_eq!((health.status(), health.healthy().len()), (Status::Warn, 2));
    passed.store(10, Ordering::Relaxed);
    assert_eq!(health.status(), Status::Warn);
    passed.store(11, Ordering::Relaxed);
    let failing = health.not_healthy();
    assert_eq!(failing.len(), 1);
    assert_eq!((failing[0].name.as_str(), failing[0].status), ("billing", Status::Fail));
    assert_eq!(failing[0].reason, Reason::TtlElapsed);
    billing.pass();
    assert_eq!(health.status(), Status::Warn);
    billing.fail_with(&throng_services::AskError::TimedOut);
    passed.store(60, Ordering::Relaxed);
    let reason = health.not_healthy()[0].reason.to_string();
    assert!(
        reason.contains("has not answered in time"),
        "its own reason stays: {reason}"
    );
}

#[test]
fn replaced_or_departed_checks_report_nothing() {
    let health = Health::new();
    let old = health.register("billing", None);
    let new = health.register("billing", None);
    new.pass();
    old.fail("the old one");
    assert_eq!(health.status(), Status::Pass);
    old.unregister();
    assert_eq!(health.checks().len(), 1);
    new.unregister();
    assert_eq!((health.checks().len(), health.status()), (0, Status::Pass));
}
