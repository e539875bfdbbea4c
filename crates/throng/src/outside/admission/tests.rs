use super::*;

const FIRST: Ended = Ended::Unanswered { is_first: true };
const AGAIN: Ended = Ended::Unanswered { is_first: false };
const ANSWERED: Ended = Ended::Answered { is_first: true };

fn bounds() -> Bounds {
    Bounds {
        concurrency: 4,
        interval: Duration::ZERO,
        retries: (20, 1),
        breaker: 0,
        pause: (Duration::from_secs(1), Duration::from_secs(8)),
    }
}

fn call(number: u32) -> CallId {
    format!("{number:032x}").parse().unwrap()
}

fn offers(admission: &mut Admission, calls: impl IntoIterator<Item = u32>, attempts: u32) {
    offers_to(0, admission, calls, attempts);
}

fn offers_to(destination: u64, admission: &mut Admission, calls: impl IntoIterator<Item = u32>, attempts: u32) {
    for number in calls {
        admission.add(&CallOffer {
            call: call(number),
            attempts,
            is_forwarded: false,
            destination,
        });
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn begins(admission: &mut Admission, now: Duration, permits: usize) -> Admitted {
    match admission.next(now, permits) {
        Next::Begin(admitted) => admitted,
        other => panic!("no attempt begins at {now:?}: {other:?}"),
    }
}

fn waits(admission: &mut Admission, now: Duration) -> Duration {
    match admission.next(now, 4) {
        Next::At(until) => until,
        other => panic!("it does not wait at {now:?}: {other:?}"),
    }
}

#[test]
fn no_more_attempts_begin_than_there_are_permits() {
    let mut admission = Admission::new(bounds());
    offers(&mut admission, 0..9, 0);
    let admitted: Vec<_> = (0..3).map(|_| begins(&mut admission, secs(0), 3)).collect();
    assert!(matches!(admission.next(secs(0), 3), Next::Full));
    for admitted in admitted {
        admission.ended(admitted, secs(0), ANSWERED);
    }
    assert!(
        matches!(admission.next(secs(0), 0), Next::Full),
        "its permits have moved"
    );
    assert_eq!(begins(&mut admission, secs(0), 1).call, call(3));
}

#[test]
fn call_that_waits_is_not_offered_twice() {
    let mut admission = Admission::new(bounds());
    offers(&mut admission, [7, 7], 0);
    offers(&mut admission, [7], 1);
    assert_eq!(admission.waiting(), 1);
    begins(&mut admission, secs(0), 4);
    assert!(matches!(admission.next(secs(0), 4), Next::Idle));
}

#[test]
fn waiting_calls_are_bounded() {
    let mut admission = Admission::new(bounds());
    offers(&mut admission, 0..WAITING_MAX as u32 + 9, 0);
    assert_eq!(admission.waiting(), WAITING_MAX);
}

#[test]
fn hanging_destination_leaves_places_and_turns_to_others() {
    let mut admission = Admission::new(bounds());
    offers_to(1, &mut admission, 0..WAITING_MAX as u32, 0);
    assert!(admission.waiting() <= WAITING_MAX / 2, "it leaves memory to others");
    let hanging: Vec<_> = (0..4).map(|_| begins(&mut admission, secs(0), 8)).collect();
    assert!(matches!(admission.next(secs(0), 8), Next::Full), "half of the permits");
    offers_to(2, &mut admission, [100_001, 100_002], 0);
    offers_to(3, &mut admission, [100_003], 0);
    for number in [100_001, 100_003] {
        let begun = begins(&mut admission, secs(0), 8);
        assert_eq!(begun.call, call(number));
        admission.ended(begun, secs(0), ANSWERED);
    }
    for admitted in hanging {
        admission.ended(admitted, secs(1), FIRST);
    }
    let next: HashSet<_> = (0..2).map(|_| begins(&mut admission, secs(1), 8).destination).collect();
    assert_eq!(next, HashSet::from([1, 2]), "each has its turn");
}

#[test]
fn attempts_are_spaced_by_the_part_of_the_permits() {
    let interval = secs(1);
    let mut admission = Admission::new(Bounds { interval, ..bounds() });
    offers(&mut admission, 0..9, 0);
    let admitted = begins(&mut admission, secs(0), 4);
    admission.ended(admitted, secs(0), ANSWERED);
    assert_eq!(waits(&mut admission, secs(0)), secs(1));
    begins(&mut admission, secs(1), 1);
    assert_eq!(waits(&mut admission, secs(4)), secs(5), "a quarter of the rate");
    begins(&mut admission, secs(5), 4);
}

#[test]
fn attempt_that_does_not_begin_costs_no_time() {
    let interval = secs(1);
    let mut admission = Admission::new(Bounds { interval, ..bounds() });
    offers(&mut admission, 0..9, 0);
    let admitted = begins(&mut admission, secs(0), 4);
    admission.ended(admitted, secs(0), Ended::NotBegun);
    let (one, other) = (begins(&mut admission, secs(0), 4), begins(&mut admission, secs(1), 4));
    admission.ended(one, secs(1), Ended::NotBegun);
    assert_eq!(waits(&mut admission, secs(1)), secs(2), "the other one counts");
    admission.ended(other, secs(1), ANSWERED);
    assert_eq!(waits(&mut admission, secs(1)), secs(2));
}

#[test]
fn interval_never_rounds_to_more_than_the_rate() {
    assert_eq!(portion(secs(1), 1, 3), Duration::from_nanos(333_333_334));
    assert_eq!(portion(secs(1), 4, 3), Duration::from_nanos(1_333_333_334));
}

#[test]
fn retries_without_answer_are_a_part_of_first_attempts() {
    let mut admission = Admission::new(Bounds {
        retries: (20, 0),
        ..bounds()
    });
    offers(&mut admission, 0..20, 0);
    offers(&mut admission, 100..200, 1);
    let (mut first, mut again) = (0, 0);
    while let Next::Begin(admitted) = admission.next(secs(0), 4) {
        *(if admitted.is_retry { &mut again } else { &mut first }) += 1;
        let ended = if admitted.is_retry { AGAIN } else { FIRST };
        admission.ended(admitted, secs(0), ended);
    }
    assert_eq!((first, again), (20, 4));
}

#[test]
fn retry_that_was_offered_as_a_first_attempt_is_paid_later() {
    let mut admission = Admission::new(bounds());
    offers(&mut admission, 0..10, 0);
    for _ in 0..10 {
        let admitted = begins(&mut admission, secs(0), 4);
        admission.ended(admitted, secs(0), AGAIN);
    }
    offers(&mut admission, 200..201, 1);
    assert_eq!(waits(&mut admission, secs(0)).as_secs(), 1, "ten were paid for");
}

#[test]
fn floor_lets_retries_through_without_first_attempts() {
    let mut admission = Admission::new(bounds());
    offers(&mut admission, 0..100, 1);
    for _ in 0..10 {
        let admitted = begins(&mut admission, secs(0), 4);
        admission.ended(admitted, secs(0), AGAIN);
    }
    let until = waits(&mut admission, secs(0));
    assert!(until <= secs(2), "{until:?}");
    begins(&mut admission, until, 4);
}

#[test]
fn answered_retries_cost_nothing() {
    let mut admission = Admission::new(Bounds {
        retries: (0, 1),
        ..bounds()
    });
    offers(&mut admission, 0..100, 1);
    for _ in 0..100 {
        let admitted = begins(&mut admission, secs(0), 4);
        admission.ended(admitted, secs(0), Ended::Answered { is_first: false });
    }
}

#[test]
fn breaker_opens_after_failures_in_a_row_and_probes() {
    let breaker = 3;
    let mut admission = Admission::new(Bounds { breaker, ..bounds() });
    offers(&mut admission, 0..20, 0);
    for _ in 0..3 {
        assert_eq!(admission.breaker(), CircuitState::Closed);
        let admitted = begins(&mut admission, secs(0), 4);
        admission.ended(admitted, secs(0), FIRST);
    }
    assert_eq!(waits(&mut admission, secs(0)), secs(1));
    let probe = begins(&mut admission, secs(1), 4);
    assert_eq!(admission.breaker(), CircuitState::HalfOpen);
    waits(&mut admission, secs(1));
    admission.ended(probe, secs(1), FIRST);
    assert_eq!(waits(&mut admission, secs(1)), secs(3), "twice the pause");
    let probe = begins(&mut admission, secs(3), 4);
    admission.ended(probe, secs(3), ANSWERED);
    assert_eq!(admission.breaker(), CircuitState::Closed);
    for _ in 0..4 {
        begins(&mut admission, secs(3), 4);
    }
}

#[test]
fn attempt_that_did_not_begin_says_nothing_to_the_breaker() {
    let breaker = 1;
    let mut admission = Admission::new(Bounds { breaker, ..bounds() });
    offers(&mut admission, 0..9, 0);
    for ended in [Ended::NotBegun, Ended::NotMade] {
        let admitted = begins(&mut admission, secs(0), 4);
        admission.ended(admitted, secs(0), ended);
        assert_eq!(admission.breaker(), CircuitState::Closed);
    }
}
