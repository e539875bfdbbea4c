use super::*;
use serde_json::json;

const POLICY: Policy = Policy {
    timeout: Duration::from_secs(30),
    pause: (Duration::from_secs(4), Duration::from_secs(60)),
    after: Duration::ZERO,
    restored_at: None,
};

/// A call under test, and the outcomes it has reported.
struct Tested {
    state: CallState,
    now: Timestamp,
    look: Option<Timestamp>,
    told: Vec<(bool, CallOutcome<Value, Value>)>,
    has_ended: bool,
}

impl Tested {
    fn new() -> Self {
        Self {
            state: CallState::default(),
            now: Timestamp { micros: 1_000_000 },
            look: None,
            told: Vec::new(),
            has_ended: false,
        }
    }

    fn begun(within: Duration, once: bool) -> Self {
        let mut call = Self::new();
        let begin = begin(call.now, within, once, None);
        assert!(call.when(begin).is_ready);
        call
    }

    fn when(&mut self, command: CallCommand) -> CallEffects {
        self.when_by(&POLICY, command)
    }

    fn when_by(&mut self, policy: &Policy, command: CallCommand) -> CallEffects {
        let step = self.state.decide(command, policy, (self.now, u128::MAX)).unwrap();
        step.events.iter().for_each(|event| self.state.evolve(event));
        self.look = step.look.or(self.look);
        self.has_ended |= step.ends;
        self.told.extend(step.told.clone().map(|told| (step.is_late, told)));
        step
    }

    fn start(&mut self) -> u32 {
        match self.when(CallCommand::Start {}).reply {
            CallReply::Go { attempt, .. } => attempt,
            reply => panic!("no attempt: {reply:?}"),
        }
    }

    fn finish(&mut self, attempt: u32, result: AttemptResult) {
        self.finish_with_pause(attempt, result, 0);
    }

    fn finish_with_pause(&mut self, attempt: u32, result: AttemptResult, seconds: u64) {
        self.when(CallCommand::Finish {
            attempt,
            result,
            after_micros: seconds * 1_000_000,
        });
    }

    /// Lets the timer fire. Returns true if an attempt may begin.
    fn look(&mut self) -> bool {
        self.now = self.look.take().unwrap();
        self.when(CallCommand::Look {}).is_ready
    }
}

fn begin(at: Timestamp, within: Duration, once: bool, line: Option<CallId>) -> CallCommand {
    CallCommand::Begin(Begin {
        caller: ("order".into(), "7".into()),
        request: json!({ "cents": 5 }).into(),
        at,
        within_micros: within.as_micros() as u64,
        once,
        line,
    })
}

const HOUR: Duration = Duration::from_secs(3_600);

fn answered() -> AttemptResult {
    AttemptResult::Answered(json!("paid"))
}

fn in_doubt() -> AttemptResult {
    AttemptResult::InDoubt("timed out".into())
}

#[test]
fn answer_is_told_once_and_ends_the_call() {
    let mut call = Tested::begun(HOUR, false);
    let attempt = call.start();
    call.finish(attempt, answered());
    call.finish(attempt, answered());
    assert_eq!(call.told, [(false, CallOutcome::Answered(json!("paid")))]);
    assert!(call.has_ended);
}

#[test]
fn second_worker_is_refused_while_an_attempt_is_under_way() {
    let mut call = Tested::begun(HOUR, false);
    call.start();
    let second = call.state.decide(CallCommand::Start {}, &POLICY, (call.now, 0));
    assert_eq!(second.err(), Some(CallReject::NotReady {}));
}

#[test]
fn attempt_in_doubt_is_made_again_after_a_pause() {
    let mut call = Tested::begun(HOUR, false);
    for (number, pause) in [(1, 4), (2, 8), (3, 16), (4, 32), (5, 60), (6, 60)] {
        assert_eq!(call.start(), number);
        call.finish(number, in_doubt());
        let early = call.state.decide(CallCommand::Start {}, &POLICY, (call.now, 0));
        assert_eq!(early.err(), Some(CallReject::NotReady {}));
        assert_eq!(call.look, Some(call.now.after(Duration::from_secs(pause))));
        assert!(call.look());
    }
    assert!(call.told.is_empty());
}

#[test]
fn pause_that_the_provider_asks_for_is_kept_to_the_deadline() {
    let mut call = Tested::begun(HOUR, false);
    for (asked, pause) in [(900, 900), (1, 8)] {
        let attempt = call.start();
        call.finish_with_pause(attempt, AttemptResult::NotSent("busy".into()), asked);
        assert_eq!(call.look, Some(call.now.after(Duration::from_secs(pause))));
        assert!(call.look());
    }
    let attempt = call.start();
    call.finish_with_pause(attempt, AttemptResult::NotSent("busy".into()), 3_600);
    assert_eq!(call.told, [(false, CallOutcome::Refused("busy".into()))]);
}

#[test]
fn attempt_of_a_dead_process_is_followed_by_the_next_one() {
    let mut call = Tested::begun(HOUR, false);
    let begun = call.now;
    assert_eq!(call.start(), 1);
    assert!(!call.look(), "the attempt is given up, and the next one waits");
    assert_eq!(call.now, begun.after(POLICY.timeout + GRACE));
    assert!(call.look());
    assert_eq!(call.start(), 2);
    // The first process was not dead, only slow.
    call.finish(1, answered());
    assert_eq!(call.told, [(false, CallOutcome::Answered(json!("paid")))]);
}

#[test]
fn once_makes_no_second_attempt_after_one_in_doubt() {
    for is_reported in [true, false] {
        let mut call = Tested::begun(HOUR, true);
        let attempt = call.start();
        if is_reported {
            call.finish(attempt, in_doubt());
            assert!(call.has_ended, "no answer can come");
        } else {
            call.look();
            call.finish(attempt, answered());
            assert_eq!(call.told.pop(), Some((true, CallOutcome::Answered(json!("paid")))));
            assert!(call.has_ended);
        }
        assert!(
            matches!(call.told[..], [(false, CallOutcome::Unknown(_))]),
            "{:?}",
            call.told
        );
    }
}

#[test]
fn once_is_tried_again_when_nothing_was_sent() {
    let mut call = Tested::begun(HOUR, true);
    let attempt = call.start();
    call.finish(attempt, AttemptResult::NotSent("no connection".into()));
    assert!(call.look());
    assert_eq!(call.start(), 2);
}

#[test]
fn deadline_without_a_sent_attempt_is_refused() {
    for is_tried in [false, true] {
        let mut call = Tested::begun(Duration::from_secs(5), false);
        if is_tried {
            let attempt = call.start();
            call.finish(attempt, AttemptResult::NotSent("no connection".into()));
        }
        while !call.has_ended {
            call.look();
        }
        assert!(
            matches!(call.told[..], [(false, CallOutcome::Refused(_))]),
            "{:?}",
            call.told
        );
    }
}

#[test]
fn deadline_during_an_attempt_is_unknown_then_late() {
    let mut call = Tested::begun(Duration::from_secs(5), false);
    let attempt = call.start();
    call.look();
    assert!(
        matches!(call.told[..], [(false, CallOutcome::Unknown(_))]),
        "{:?}",
        call.told
    );
    call.finish(attempt, AttemptResult::Failed(json!("declined")));
    call.finish(attempt, answered());
    assert_eq!(call.told[1..], [(true, CallOutcome::Failed(json!("declined")))]);
    assert!(call.has_ended);
}

#[test]
fn answer_that_never_comes_ends_the_call_after_a_day() {
    let mut call = Tested::begun(Duration::from_secs(5), false);
    call.start();
    call.look();
    let told_at = call.now;
    call.look();
    assert!(call.has_ended && call.now == told_at.after(LATE_MAX));
    assert_eq!(call.told.len(), 1);
}

#[test]
fn failure_is_told_while_another_attempt_may_have_succeeded() {
    let mut call = Tested::begun(HOUR, false);
    call.start();
    call.look();
    call.look();
    let second = call.start();
    call.finish(second, AttemptResult::Failed(json!("declined")));
    call.finish(1, answered());
    let told = [
        (false, CallOutcome::Failed(json!("declined"))),
        (true, CallOutcome::Answered(json!("paid"))),
    ];
    assert_eq!(call.told, told);
}

#[test]
fn late_failure_hides_no_later_answer_of_another_attempt() {
    let mut call = Tested::begun(Duration::from_secs(60), false);
    call.start();
    call.look();
    call.look();
    let second = call.start();
    call.look();
    assert!(
        matches!(call.told[..], [(false, CallOutcome::Unknown(_))]),
        "{:?}",
        call.told
    );
    call.finish(second, AttemptResult::Failed(json!("declined")));
    assert!(
        call.told.len() == 1 && !call.has_ended,
        "the first attempt may have succeeded"
    );
    call.finish(1, answered());
    assert_eq!(call.told[1..], [(true, CallOutcome::Answered(json!("paid")))]);
    assert!(call.has_ended);
}

#[test]
fn cancelled_call_says_whether_anything_was_sent() {
    let mut waiting = Tested::begun(HOUR, false);
    waiting.when(CallCommand::Cancel {});
    assert!(matches!(waiting.told[..], [(false, CallOutcome::Refused(_))]) && waiting.has_ended);

    let mut tried = Tested::begun(HOUR, false);
    let attempt = tried.start();
    tried.finish(attempt, in_doubt());
    tried.when(CallCommand::Cancel {});
    assert!(matches!(tried.told[..], [(false, CallOutcome::Unknown(_))]) && tried.has_ended);

    let mut under_way = Tested::begun(HOUR, false);
    let attempt = under_way.start();
    under_way.when(CallCommand::Cancel {});
    assert!(under_way.told.is_empty(), "it has an outcome of its own");
    under_way.finish(attempt, in_doubt());
    assert!(matches!(under_way.told[..], [(false, CallOutcome::Unknown(_))]) && under_way.has_ended);
}

#[test]
fn call_that_no_worker_takes_is_offered_again() {
    let mut call = Tested::begun(HOUR, false);
    let mut offers = 0;
    while call.told.is_empty() {
        offers += u32::from(call.look());
    }
    assert!((50..200).contains(&offers), "{offers}");
    assert_eq!(call.now, call.state.deadline);
}

fn id(number: u128) -> CallId {
    format!("{number:032x}").parse().unwrap()
}

fn join(call: CallId) -> CallCommand {
    let until = Timestamp { micros: 1_000_000 }.after(HOUR);
    CallCommand::Join { call, until }
}

/// Gives a command to the line under test. Returns the call that may be made next.
fn admitted(line: &mut Tested, command: CallCommand) -> Option<CallId> {
    line.when(command).admits
}

#[test]
fn line_admits_one_call_after_the_other() {
    let mut line = Tested::new();
    assert_eq!(admitted(&mut line, join(id(1))), Some(id(1)));
    for call in [2, 3, 4] {
        assert_eq!(admitted(&mut line, join(id(call))), None);
    }
    // Cancelling a waiting call admits no other call.
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(3) }), None);
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(1) }), Some(id(2)));
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(2) }), Some(id(4)));
    assert!(!line.has_ended);
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(4) }), None);
    assert!(line.has_ended);
}

#[test]
fn call_that_left_before_it_joined_holds_up_no_line() {
    let mut line = Tested::new();
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(1) }), None);
    assert!(!line.has_ended);
    assert_eq!(admitted(&mut line, join(id(1))), None);
    assert!(line.has_ended);
}

#[test]
fn line_passes_over_a_call_that_never_leaves() {
    let mut line = Tested::new();
    admitted(&mut line, join(id(1)));
    line.now = line.now.after(HOUR / 2);
    let until = line.now.after(HOUR);
    admitted(&mut line, CallCommand::Join { call: id(2), until });
    line.now = line.look.take().unwrap();
    assert_eq!(admitted(&mut line, CallCommand::Look {}), Some(id(2)));
    assert_eq!(line.look, Some(until.after(PASSED_OVER)));
    // The first call is released.
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(1) }), None);
    assert_eq!(admitted(&mut line, CallCommand::Leave { call: id(2) }), None);
    assert!(!line.has_ended);
    line.look();
    assert!(line.has_ended, "calls that left and never joined are forgotten");
}

#[test]
fn call_in_line_waits_until_it_is_admitted() {
    for is_admitted_first in [true, false] {
        let mut call = Tested::new();
        if is_admitted_first {
            assert!(!call.when(CallCommand::Admit {}).is_ready);
        }
        let begun = call.when(begin(call.now, HOUR, false, Some(id(9))));
        assert_eq!(begun.is_ready, is_admitted_first);
        if !is_admitted_first {
            assert_eq!(call.look, Some(call.state.deadline));
            assert!(call.when(CallCommand::Admit {}).is_ready);
        }
        let attempt = call.start();
        let finished = call.when(CallCommand::Finish {
            attempt,
            result: answered(),
            after_micros: 0,
        });
        assert_eq!(finished.leaves, Some(id(9)));
    }
}

#[test]
fn call_in_line_is_refused_at_its_deadline() {
    let mut call = Tested::new();
    call.when(begin(call.now, HOUR, false, Some(id(9))));
    call.look();
    assert!(matches!(call.told[..], [(false, CallOutcome::Refused(_))]) && call.has_ended);
}

fn hasten() -> CallCommand {
    let (by, reason) = ("ann".into(), "it is back".into());
    CallCommand::Hasten { by, reason }
}

fn give_up() -> CallCommand {
    let (by, reason) = ("ann".into(), "they are gone".into());
    CallCommand::GiveUp { by, reason }
}

#[test]
fn hastened_call_makes_its_next_attempt_without_the_pause() {
    let mut call = Tested::begun(HOUR, false);
    let first = call.start();
    let early = call.state.decide(hasten(), &POLICY, (call.now, 0));
    assert_eq!(early.err(), Some(CallReject::UnderWay {}));
    call.finish(first, in_doubt());
    assert!(call.when(hasten()).is_ready);
    assert_eq!(call.start(), 2);
}

#[test]
fn given_up_call_is_refused_only_if_nothing_was_sent() {
    let mut unsent = Tested::begun(HOUR, false);
    let reply = unsent.when(give_up()).reply;
    assert!(matches!(reply, CallReply::GivenUp { is_sent: false }), "{reply:?}");
    let why = "ann has given it up: they are gone";
    assert_eq!(unsent.told, [(false, CallOutcome::Refused(why.into()))]);
    assert!(unsent.has_ended);

    let mut sent = Tested::begun(HOUR, false);
    let attempt = sent.start();
    let reply = sent.when(give_up()).reply;
    assert!(matches!(reply, CallReply::GivenUp { is_sent: true }), "{reply:?}");
    sent.finish(attempt, answered());
    let late = (true, CallOutcome::Answered(json!("paid")));
    assert_eq!(sent.told, [(false, CallOutcome::Unknown(why.into())), late]);
    let again = sent.state.decide(give_up(), &POLICY, (sent.now, 0));
    assert_eq!(again.err(), Some(CallReject::Over {}));
}

#[test]
fn restored_call_is_unknown_also_after_its_deadline() {
    let restored = |at: Timestamp| Policy {
        restored_at: Some(at),
        ..POLICY
    };
    for wait in [Duration::ZERO, HOUR * 2] {
        for command in [
            CallCommand::Look {},
            CallCommand::Start {},
            CallCommand::Cancel {},
            give_up(),
        ] {
            let mut call = Tested::begun(HOUR, false);
            call.now = call.now.after(wait + Duration::from_secs(1));
            call.when_by(&restored(call.now), command);
            assert!(
                matches!(call.told[..], [(false, CallOutcome::Unknown(_))]),
                "{:?}",
                call.told
            );
        }
    }
    let mut later = Tested::begun(HOUR, false);
    let step = later.when_by(&restored(later.now), CallCommand::Start {});
    assert!(matches!(step.reply, CallReply::Go { .. }), "a call begun since is made");
}
