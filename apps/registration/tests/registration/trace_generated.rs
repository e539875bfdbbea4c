//! Tests of the generated trace: it meets its counts exactly, depends only on its seed, and has the traits of a registration day.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use registration::{
    reference::{Expected, OutcomeCounts},
    trace::{DEFAULT_SEED, Request, Shape, Trace, generate},
};
use xxhash_rust::xxh3::xxh3_64;

/// The fingerprint of the built-in trace. Change it only together with the generator, and measure recorded figures again then.
const BUILT_IN_FINGERPRINT: u64 = 0xbc8cd53f3eb6f00c;

fn fingerprint(trace: &Trace) -> u64 {
    xxh3_64((trace.capacities_text("").unwrap() + &trace.requests_text("").unwrap()).as_bytes())
}

#[test]
fn the_built_in_trace_has_the_published_counts() {
    let shape = Trace::registration_day(DEFAULT_SEED).shape();
    assert_eq!(shape, Shape::PUBLISHED);
    assert_eq!(shape.sections, 5_393);
    assert_eq!(shape.students, 6_675);
    assert_eq!(shape.requests(), 44_504);
}

#[test]
fn a_seed_names_one_trace_on_all_platforms_and_versions() {
    assert_eq!(
        fingerprint(&Trace::registration_day(DEFAULT_SEED)),
        BUILT_IN_FINGERPRINT
    );
    assert_ne!(
        fingerprint(&Trace::registration_day(DEFAULT_SEED + 1)),
        BUILT_IN_FINGERPRINT
    );
}

#[test]
fn a_few_sections_are_wanted_by_hundreds_and_most_by_a_handful() {
    let trace = Trace::registration_day(DEFAULT_SEED);
    let mut wanted: HashMap<&str, u32> = HashMap::new();
    for request in &trace.requests {
        *wanted.entry(&request.section).or_default() += 1;
    }
    let by_hundreds = wanted.values().filter(|requests| **requests >= 200).count();
    let by_a_handful = wanted.values().filter(|requests| **requests <= 5).count();
    assert!((1..=30).contains(&by_hundreds), "{by_hundreds}");
    assert!(by_a_handful > wanted.len() / 2, "{by_a_handful} of {}", wanted.len());
}

#[test]
fn every_kind_of_answer_occurs_hundreds_of_times() {
    let trace = Trace::registration_day(DEFAULT_SEED);
    let expected = Expected::of(&trace);
    let counts: OutcomeCounts = expected.outcomes.iter().copied().collect();
    for (name, count) in [
        ("added", counts.added),
        ("already present", counts.already_present),
        ("full", counts.full),
        ("dropped", counts.dropped),
        ("not present", counts.not_present),
    ] {
        assert!(count >= 200, "{name}: {count}");
    }
    assert_eq!(counts.no_section, 0);
    assert_eq!(expected.rosters.enrolled() as u64, counts.added - counts.dropped);
    let full = trace.sections.iter().filter(|section| {
        section.capacity > 0 && expected.rosters.students(&section.id).count() == section.capacity as usize
    });
    assert!(full.count() >= 200);
}

#[test]
fn the_peak_is_at_midnight_after_two_quiet_weeks() {
    let trace = Trace::registration_day(DEFAULT_SEED);
    let first = trace.requests[0].at;
    let quiet = (0..trace.requests.len())
        .filter(|index| trace.offset(*index) < Duration::from_secs(13 * 86_400))
        .count();
    assert!((100..trace.requests.len() / 10).contains(&quiet), "{quiet}");
    let seconds: Vec<&[Request]> = trace.requests.chunk_by(|one, next| one.at == next.at).collect();
    let most = seconds.iter().map(|second| second.len()).max().unwrap();
    let fullest = seconds.iter().find(|second| second.len() == most).unwrap();
    assert_eq!(fullest[0].at, fullest[0].at.date().at(0, 0, 0, 0));
    assert!(fullest[0].at > first);
}

/// Makes a possible shape impossible.
type Change = fn(&mut Shape);

#[test]
fn an_impossible_shape_is_refused_with_the_count_and_its_range() {
    let cases: [(&str, Change); 13] = [
        ("sections", |shape| shape.sections = 0),
        ("sections_closed", |shape| shape.sections_closed = shape.sections + 1),
        ("capacity_max", |shape| shape.capacity_max = 0),
        ("capacity_max", |shape| shape.sections_closed = shape.sections),
        ("sections_touched", |shape| shape.sections_touched = 0),
        ("sections_touched", |shape| shape.sections_touched = shape.sections + 1),
        ("adds", |shape| shape.adds = shape.sections_touched - 1),
        ("drops", |shape| shape.drops = u32::MAX),
        ("students", |shape| shape.students = 0),
        ("students", |shape| shape.students = shape.requests() + 1),
        ("requests_per_minute_max", |shape| shape.requests_per_minute_max = 1),
        ("requests_per_second_max", |shape| shape.requests_per_second_max = 34),
        ("requests_per_second_max", |shape| {
            shape.requests_per_second_max = shape.requests_per_minute_max + 1
        }),
    ];
    for (field, spoil) in cases {
        let mut shape = Shape::PUBLISHED;
        spoil(&mut shape);
        let error = generate(&shape, 1).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(!(error.least..=error.most).contains(&error.found), "{error}");
    }
}

#[test]
fn surplus_clients_have_empty_lanes_and_zero_counts_as_one() {
    let trace = generate(&Shape::one_in(5_000), 1).unwrap();
    let lanes = trace.lanes(64);
    assert_eq!(lanes.len(), 64);
    assert_eq!(
        lanes.iter().filter(|lane| !lane.is_empty()).count(),
        trace.shape().sections_touched as usize
    );
    assert_eq!(trace.lanes(0), [(0..trace.requests.len()).collect::<Vec<_>>()]);
}

#[test]
fn no_lane_is_a_hundredth_longer_than_the_mean() {
    let trace = Trace::registration_day(DEFAULT_SEED);
    let longest = trace.lanes(64).iter().map(Vec::len).max().unwrap();
    assert!(longest * 64 * 100 <= trace.requests.len() * 101, "{longest}");
}

fn possible_shape() -> impl Strategy<Value = Shape> {
    let offer = (1_u32..40).prop_flat_map(|sections| (Just(sections), 0..=sections, 1..=sections, 1_u32..300));
    let wanted = (0_u32..400, 0_u32..60, 0_u32..20);
    (offer, wanted).prop_flat_map(
        |((sections, sections_closed, sections_touched, capacity_max), wanted)| {
            let (more_adds, drops, administrative_drops) = wanted;
            let adds = sections_touched + more_adds;
            let requests = adds + drops + administrative_drops;
            let per_minute = (1..=requests).prop_flat_map(|most| (Just(most), most.div_ceil(60)..=most));
            (1..=requests, per_minute).prop_map(
                move |(students, (requests_per_minute_max, requests_per_second_max))| Shape {
                    sections,
                    sections_closed,
                    sections_touched,
                    capacity_max: if sections_closed == sections { 0 } else { capacity_max },
                    students,
                    adds,
                    drops,
                    administrative_drops,
                    requests_per_second_max,
                    requests_per_minute_max,
                },
            )
        },
    )
}

proptest! {
    #[test]
    fn a_generated_trace_has_its_shape_exactly(shape in possible_shape(), seed: u64) {
        let trace = generate(&shape, seed).unwrap();
        prop_assert_eq!(trace.shape(), shape);
        prop_assert!(trace.requests.is_sorted_by_key(|request| request.at));
        prop_assert_eq!(trace.requests_unknown(), 0);
        prop_assert_eq!(trace, generate(&shape, seed).unwrap());
    }

    #[test]
    fn every_divisor_gives_a_smaller_shape_that_is_possible(divisor in 20_u32..50_000, seed: u64) {
        let shape = Shape::one_in(divisor);
        prop_assert_eq!(generate(&shape, seed).unwrap().shape(), shape);
    }

    #[test]
    fn lanes_hold_each_request_once_in_order_and_sections_whole(
        shape in possible_shape(), seed: u64, clients in 1_usize..12,
    ) {
        let trace = generate(&shape, seed).unwrap();
        let lanes = trace.lanes(clients);
        prop_assert_eq!(lanes.len(), clients);
        let mut home: HashMap<&str, usize> = HashMap::new();
        for (lane, indices) in lanes.iter().enumerate() {
            prop_assert!(indices.is_sorted());
            for index in indices {
                prop_assert_eq!(*home.entry(&trace.requests[*index].section).or_insert(lane), lane);
            }
        }
        let mut all = lanes.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..trace.requests.len()).collect::<Vec<_>>());
    }
}
