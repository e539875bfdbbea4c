//! A call's state machine, from its beginning to its outcome. It has no clock, journal or worker.

use super::{
    AttemptResult, CallCommand, CallId, CallOffer, CallOutcome, CallReject, CallReply, Outside, command::Begin,
};
use crate::{
    model::{Event, Timestamp},
    trace_context::{self, TraceContext},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

/// The time beyond an attempt's limit after which its process is taken to be gone.
const GRACE: Duration = Duration::from_secs(10);
/// The time after the outcome during which a late answer is still accepted.
const LATE_MAX: Duration = Duration::from_secs(86_400);
/// The bounds of the interval at which a call that no worker has begun is offered again: a sixteenth of its age.
const OFFER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// The time after its deadline at which a line passes over a call that has not left it, because it is quarantined or was erased.
const PASSED_OVER: Duration = Duration::from_secs(60);

/// Events of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum CallEvent {
    /// An entity asked for it.
    Begun {
        /// The entity's kind and id.
        caller: (String, String),
        /// The request as JSON of the worker's type.
        request: Value,
        /// The time of the entity's command.
        at: Timestamp,
        /// The time at which it is given up.
        deadline: Timestamp,
        /// No second attempt is made.
        once: bool,
        /// The line in which it waits for the calls before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<CallId>,
        /// The span of the turn that begins the call, if its trace is recorded: attempts are parts of it.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "trace_context::if_known"
        )]
        #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
        trace: Option<Box<TraceContext>>,
    },
    /// A call joined this line.
    Joined {
        /// The last of the line from now on.
        call: CallId,
        /// The deadline of the call: the line passes over it some time later.
        until: Timestamp,
    },
    /// A call left this line.
    Left {
        /// The call that no other one waits for any more.
        call: CallId,
    },
    /// The calls before it have their outcomes.
    Admitted {
        /// The time of the admission.
        at: Timestamp,
    },
    /// An attempt is under way.
    AttemptBegun {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The time from which the process that makes the attempt is taken to be gone.
        until: Timestamp,
    },
    /// An attempt ended without an answer.
    AttemptEnded {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The provider may have done it.
        is_sent: bool,
        /// True if the worker reported it. If not, an answer may still come.
        is_reported: bool,
        /// The worker's words.
        why: String,
        /// The earliest time of the next attempt.
        again: Timestamp,
    },
    /// The entity wants no further attempt.
    Cancelled {},
    /// An operator had the rest of the pause skipped.
    Hastened {
        /// The time of the operator action.
        at: Timestamp,
        /// The name under which the operator is known.
        by: String,
        /// The reason, if one was given.
        reason: String,
    },
    /// An operator gave the call up: no further attempt is made, and the result of the one under way is ignored.
    GivenUp {
        /// The name under which the operator is known.
        by: String,
        /// The operator's reason: the entity is told.
        reason: String,
    },
    /// The entity is told the outcome.
    Settled {
        /// The outcome that the entity's command carries.
        outcome: CallOutcome<Value, Value>,
        /// The time until which a late answer is accepted; `None` if none can come.
        late_until: Option<Timestamp>,
    },
    /// The entity gets an answer that came after the outcome.
    AnsweredLate {
        /// The late answer: `Answered` or `Failed`.
        answer: CallOutcome<Value, Value>,
    },
}

impl Event for CallEvent {}

impl CallEvent {
    /// The same as [`opened_by`] its name.
    pub(super) fn opens(&self) -> i64 {
        match self {
            Self::Begun { .. } => 1,
            Self::Settled { .. } => -1,
            _ => 0,
        }
    }
}

/// The stage a call has reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Stage {
    #[default]
    None,
    /// The call waits for those before it in its line.
    InLine,
    /// A worker may begin an attempt at this time or later.
    Ready(Timestamp),
    /// An attempt is under way, until this time at most.
    UnderWay(u32, Timestamp),
    /// The entity has the outcome. A late answer is accepted until this time.
    Told(Timestamp),
    Over,
}

/// The state of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallState {
    caller: (String, String),
    request: Value,
    begun: Timestamp,
    deadline: Timestamp,
    once: bool,
    is_cancelled: bool,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "trace_context::if_known"
    )]
    trace: Option<Box<TraceContext>>,
    /// Attempts that were begun.
    attempts: u32,
    /// The number of these that may have reached the provider.
    sent: u32,
    /// The numbers of the attempts that no worker has reported the end of.
    open: Vec<u32>,
    stage: Stage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<CallId>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_admitted: bool,
    /// The calls in this line, with their deadlines. Only the first one is made.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    calls: VecDeque<(CallId, Timestamp)>,
    /// Calls that left this line before they joined.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    gone: BTreeSet<CallId>,
}

/// The effects of a command on a call.
#[derive(Debug, Default)]
pub(super) struct CallEffects {
    pub(super) events: Vec<CallEvent>,
    /// The outcome that the caller gets.
    pub(super) told: Option<CallOutcome<Value, Value>>,
    pub(super) is_late: bool,
    /// The first call of the line, which may be made now.
    pub(super) admits: Option<CallId>,
    /// The line that this call leaves.
    pub(super) leaves: Option<CallId>,
    /// The time of the next look.
    pub(super) look: Option<Timestamp>,
    /// A worker may begin an attempt.
    pub(super) is_ready: bool,
    /// Offers for other calls, on which a worker here may begin an attempt.
    pub(super) offers: Vec<CallOffer>,
    pub(super) ends: bool,
    pub(super) reply: CallReply,
}

/// The worker's settings.
pub(super) struct Policy {
    pub(super) timeout: Duration,
    pub(super) pause: (Duration, Duration),
    /// The pause that the provider asked for.
    pub(super) after: Duration,
    /// The time at which a restored journal was first served. The provider may know more about calls begun before it than the journal does.
    pub(super) restored_at: Option<Timestamp>,
}

impl Policy {
    pub(super) fn of<W: Outside>(restored_at: Option<Timestamp>) -> Self {
        Self {
            timeout: W::TIMEOUT,
            pause: W::PAUSE,
            after: Duration::ZERO,
            restored_at,
        }
    }

    /// Returns the time of the next attempt: after half to all of the pause, and not before the provider's own pause has passed.
    fn again(&self, attempts: u32, now: Timestamp, entropy: u128) -> Timestamp {
        let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = self.pause.0.saturating_mul(doubled).min(self.pause.1);
        let share = u32::try_from(entropy >> 96).unwrap_or(u32::MAX);
        let drawn = pause / 2 + pause.mul_f64(f64::from(share) / f64::from(u32::MAX) / 2.0);
        now.after(drawn.max(self.after))
    }
}

impl CallState {
    pub(super) fn caller(&self) -> &(String, String) {
        &self.caller
    }

    pub(super) fn request(&self) -> &Value {
        &self.request
    }

    /// Attempts that were begun.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the name of its timer after these events.
    pub(super) fn timer(&self, events: &[CallEvent]) -> &'static str {
        let is_open = matches!(self.stage, Stage::InLine | Stage::Ready(_) | Stage::UnderWay(..));
        match i64::from(is_open) + events.iter().map(CallEvent::opens).sum::<i64>() {
            1.. => LOOK,
            _ if self.stage == Stage::None => LINE,
            _ => LATE,
        }
    }

    pub(super) fn decide(
        &self,
        command: CallCommand,
        policy: &Policy,
        (now, entropy): (Timestamp, u128),
    ) -> Result<CallEffects, CallReject> {
        let mut step = self.step(command, policy, (now, entropy))?;
        let settles = |event: &CallEvent| matches!(event, CallEvent::Settled { .. });
        step.leaves = self.line.filter(|_| step.events.iter().any(settles));
        Ok(step)
    }

    fn step(
        &self,
        command: CallCommand,
        policy: &Policy,
        (now, entropy): (Timestamp, u128),
    ) -> Result<CallEffects, CallReject> {
        let has_result = matches!(command, CallCommand::Finish { .. });
        if self.is_from_before_a_restore(policy) && !has_result {
            let why = "the journal was restored from a copy, and the provider may know the call".into();
            return Ok(Self::settle(
                Vec::new(),
                CallOutcome::Unknown(why),
                !self.open.is_empty(),
                now,
            ));
        }
        match command {
            CallCommand::Begin(_) if self.stage != Stage::None => Err(CallReject::NotReady {}),
            CallCommand::Begin(begin) => Ok(self.begin(begin, now)),
            CallCommand::Join { call, until } => Ok(self.join(call, until)),
            CallCommand::Leave { call } => Ok(self.leave(call, now)),
            CallCommand::Admit {} => Ok(self.admit(now)),
            CallCommand::Offer { calls } => Ok(CallEffects {
                offers: calls,
                ..CallEffects::default()
            }),
            CallCommand::Start {} => self.start(policy, now),
            CallCommand::Finish {
                attempt,
                result,
                after_micros,
            } => {
                let policy = &Policy {
                    after: Duration::from_micros(after_micros),
                    ..*policy
                };
                Ok(self.finish(attempt, result, policy, (now, entropy)))
            }
            CallCommand::Cancel {} => Ok(self.cancel(now)),
            CallCommand::Look {} => Ok(self.look(policy, (now, entropy))),
            CallCommand::Hasten { by, reason } => self.hasten((by, reason), now),
            CallCommand::GiveUp { by, reason } => self.give_up((by, reason), now),
        }
    }

    fn is_from_before_a_restore(&self, policy: &Policy) -> bool {
        let is_open = matches!(self.stage, Stage::InLine | Stage::Ready(_) | Stage::UnderWay(..));
        is_open && policy.restored_at.is_some_and(|restored| self.begun < restored)
    }

    fn begin(&self, begin: Begin, now: Timestamp) -> CallEffects {
        let deadline = begin.deadline();
        let is_ready = begin.line.is_none() || self.is_admitted;
        let look = if is_ready { now.after(OFFER.0) } else { deadline };
        let event = CallEvent::Begun {
            caller: begin.caller,
            request: begin.request.into_value(),
            at: begin.at.min(now),
            deadline,
            once: begin.once,
            line: begin.line,
            trace: None,
        };
        CallEffects {
            events: vec![event],
            look: Some(look.min(deadline)),
            is_ready,
            ..CallEffects::default()
        }
    }

    fn join(&self, call: CallId, until: Timestamp) -> CallEffects {
        let has_left = self.gone.contains(&call);
        let is_next = self.calls.is_empty() && !has_left;
        CallEffects {
            events: vec![CallEvent::Joined { call, until }],
            admits: is_next.then_some(call),
            look: is_next.then(|| until.after(PASSED_OVER)),
            ends: self.calls.is_empty() && has_left && self.gone.len() == 1,
            ..CallEffects::default()
        }
    }

    fn leave(&self, call: CallId, now: Timestamp) -> CallEffects {
        let is_first = self.calls.front().is_some_and(|(first, _)| *first == call);
        let step = CallEffects {
            events: vec![CallEvent::Left { call }],
            ..CallEffects::default()
        };
        match self.calls.get(usize::from(is_first)) {
            Some(_) if !is_first => step,
            next => self.goes_on(step, next, is_first, now),
        }
    }

    /// Removes the first call of a line, and admits the next.
    fn goes_on(
        &self,
        step: CallEffects,
        next: Option<&(CallId, Timestamp)>,
        was_first: bool,
        now: Timestamp,
    ) -> CallEffects {
        CallEffects {
            admits: next.map(|(call, _)| *call),
            look: Some(next.map_or(now.after(LATE_MAX), |(_, until)| until.after(PASSED_OVER))),
            ends: next.is_none() && was_first && self.gone.is_empty(),
            ..step
        }
    }

    /// Handles the timer of a line.
    fn look_at_line(&self, now: Timestamp) -> CallEffects {
        let is_over = |(_, until): &&(CallId, Timestamp)| until.after(PASSED_OVER) <= now;
        let over = self.calls.iter().take_while(is_over);
        let events: Vec<_> = over.map(|(call, _)| CallEvent::Left { call: *call }).collect();
        match (self.calls.get(events.len()), events.is_empty()) {
            (Some((_, until)), true) => CallEffects {
                look: Some(until.after(PASSED_OVER)),
                ..CallEffects::default()
            },
            // Calls that left but never joined are forgotten.
            (None, true) => CallEffects {
                ends: true,
                ..CallEffects::default()
            },
            (next, false) => self.goes_on(
                CallEffects {
                    events,
                    ..CallEffects::default()
                },
                next,
                true,
                now,
            ),
        }
    }

    fn admit(&self, now: Timestamp) -> CallEffects {
        if !matches!(self.stage, Stage::None | Stage::InLine) {
            return CallEffects::default();
        }
        let is_ready = self.stage == Stage::InLine;
        CallEffects {
            events: vec![CallEvent::Admitted { at: now }],
            look: is_ready.then(|| now.after(OFFER.0).min(self.deadline)),
            is_ready,
            ..CallEffects::default()
        }
    }

    fn start(&self, policy: &Policy, now: Timestamp) -> Result<CallEffects, CallReject> {
        match self.stage {
            Stage::Ready(from) if from <= now && now < self.deadline => {}
            _ => return Err(CallReject::NotReady {}),
        }
        let (attempt, until) = (self.attempts + 1, now.after(policy.timeout + GRACE));
        Ok(CallEffects {
            events: vec![CallEvent::AttemptBegun { attempt, until }],
            look: Some(until.min(self.deadline)),
            reply: CallReply::Go {
                attempt,
                request: self.request.clone(),
                deadline: self.deadline,
                trace: self.trace.clone(),
            },
            ..CallEffects::default()
        })
    }

    fn finish(&self, attempt: u32, result: AttemptResult, policy: &Policy, moment: (Timestamp, u128)) -> CallEffects {
        let is_open = self.stage != Stage::Over && self.open.contains(&attempt);
        let answer = match result {
            _ if !is_open => return CallEffects::default(),
            AttemptResult::Answered(answer) => CallOutcome::Answered(answer),
            AttemptResult::Failed(failure) => CallOutcome::Failed(failure),
            AttemptResult::NotSent(why) => return self.unanswered(attempt, (false, true), why, policy, moment),
            AttemptResult::InDoubt(why) => return self.unanswered(attempt, (true, true), why, policy, moment),
        };
        // This attempt was refused; another one may have been accepted.
        let others_may_answer = self.open.len() > 1;
        if let Stage::Told(_) = self.stage {
            if others_may_answer && matches!(answer, CallOutcome::Failed(_)) {
                let why = "the provider refused".to_owned();
                return self.unanswered(attempt, (true, true), why, policy, moment);
            }
            return CallEffects {
                events: vec![CallEvent::AnsweredLate { answer: answer.clone() }],
                told: Some(answer),
                is_late: true,
                ends: true,
                ..CallEffects::default()
            };
        }
        let may_come = matches!(answer, CallOutcome::Failed(_)) && others_may_answer;
        Self::settle(Vec::new(), answer, may_come, moment.0)
    }

    /// Records that an attempt ended without an answer.
    fn unanswered(
        &self,
        attempt: u32,
        (is_sent, is_reported): (bool, bool),
        why: String,
        policy: &Policy,
        (now, entropy): (Timestamp, u128),
    ) -> CallEffects {
        let is_told = matches!(self.stage, Stage::Told(_));
        let again = policy.again(self.attempts, now, entropy);
        let event = CallEvent::AttemptEnded {
            attempt,
            is_sent,
            is_reported,
            why: why.clone(),
            again,
        };
        let may_come = self.open.len() > usize::from(is_reported);
        if is_told {
            return CallEffects {
                events: vec![event],
                ends: !may_come,
                ..CallEffects::default()
            };
        }
        if !matches!(self.stage, Stage::UnderWay(current, _) if current == attempt) {
            return CallEffects {
                events: vec![event],
                ..CallEffects::default()
            };
        }
        let sent = self.sent - u32::from(!is_sent);
        let is_over = now >= self.deadline || self.is_cancelled || again >= self.deadline && !may_come;
        if is_over || self.once && sent > 0 {
            let outcome = Self::unknown(sent, why);
            return Self::settle(vec![event], outcome, may_come, now);
        }
        CallEffects {
            events: vec![event],
            look: Some(again.min(self.deadline)),
            ..CallEffects::default()
        }
    }

    fn unknown(sent: u32, why: String) -> CallOutcome<Value, Value> {
        match sent {
            0 => CallOutcome::Refused(why),
            _ => CallOutcome::Unknown(why),
        }
    }

    fn settle(
        mut events: Vec<CallEvent>,
        outcome: CallOutcome<Value, Value>,
        may_come: bool,
        now: Timestamp,
    ) -> CallEffects {
        let late_until = may_come.then(|| now.after(LATE_MAX));
        events.push(CallEvent::Settled {
            outcome: outcome.clone(),
            late_until,
        });
        CallEffects {
            events,
            told: Some(outcome),
            look: late_until,
            ends: !may_come,
            ..CallEffects::default()
        }
    }

    fn cancel(&self, now: Timestamp) -> CallEffects {
        const WHY: &str = "it was cancelled";
        match self.stage {
            Stage::InLine | Stage::Ready(_) => {
                let outcome = Self::unknown(self.sent, WHY.into());
                Self::settle(vec![CallEvent::Cancelled {}], outcome, !self.open.is_empty(), now)
            }
            Stage::UnderWay(_, until) => CallEffects {
                events: vec![CallEvent::Cancelled {}],
                look: Some(until.min(self.deadline)),
                ..CallEffects::default()
            },
            Stage::None | Stage::Told(_) | Stage::Over => CallEffects::default(),
        }
    }

    /// Has the next attempt made now, for an operator.
    fn hasten(&self, (by, reason): (String, String), now: Timestamp) -> Result<CallEffects, CallReject> {
        match self.stage {
            Stage::Ready(_) => Ok(CallEffects {
                events: vec![CallEvent::Hastened { at: now, by, reason }],
                look: Some(now.after(OFFER.0).min(self.deadline)),
                is_ready: true,
                ..CallEffects::default()
            }),
            Stage::None | Stage::InLine => Err(CallReject::InLine {}),
            Stage::UnderWay(..) => Err(CallReject::UnderWay {}),
            Stage::Told(_) | Stage::Over => Err(CallReject::Over {}),
        }
    }

    /// Gives the call up, for an operator.
    fn give_up(&self, (by, reason): (String, String), now: Timestamp) -> Result<CallEffects, CallReject> {
        if !matches!(self.stage, Stage::InLine | Stage::Ready(_) | Stage::UnderWay(..)) {
            return Err(CallReject::Over {});
        }
        let outcome = Self::unknown(self.sent, format!("{by} has given it up: {reason}"));
        let event = CallEvent::GivenUp { by, reason };
        Ok(CallEffects {
            reply: CallReply::GivenUp { is_sent: self.sent > 0 },
            ..Self::settle(vec![event], outcome, !self.open.is_empty(), now)
        })
    }

    /// Handles the timer of a call.
    fn look(&self, policy: &Policy, (now, entropy): (Timestamp, u128)) -> CallEffects {
        match self.stage {
            Stage::UnderWay(attempt, until) if now >= until => {
                let why = "the process that made the attempt has said nothing".to_owned();
                self.unanswered(attempt, (true, false), why, policy, (now, entropy))
            }
            Stage::InLine | Stage::Ready(_) | Stage::UnderWay(..) if now >= self.deadline => {
                let outcome = Self::unknown(self.sent, "the deadline is over".into());
                Self::settle(Vec::new(), outcome, !self.open.is_empty(), now)
            }
            Stage::InLine => CallEffects {
                look: Some(self.deadline),
                ..CallEffects::default()
            },
            Stage::UnderWay(_, until) => CallEffects {
                look: Some(until.min(self.deadline)),
                ..CallEffects::default()
            },
            Stage::Ready(from) if now < from => CallEffects {
                look: Some(from.min(self.deadline)),
                ..CallEffects::default()
            },
            Stage::Ready(_) => {
                let age = now.micros.saturating_sub(self.begun.micros).max(0).cast_unsigned();
                let pause = Duration::from_micros(age / 16).clamp(OFFER.0, OFFER.1);
                CallEffects {
                    look: Some(now.after(pause).min(self.deadline)),
                    is_ready: true,
                    ..CallEffects::default()
                }
            }
            Stage::Told(until) if now < until => CallEffects {
                look: Some(until),
                ..CallEffects::default()
            },
            Stage::Told(_) => CallEffects {
                ends: true,
                ..CallEffects::default()
            },
            Stage::None => self.look_at_line(now),
            Stage::Over => CallEffects::default(),
        }
    }

    pub(super) fn evolve(&mut self, event: &CallEvent) {
        match event {
            CallEvent::Begun {
                caller,
                request,
                at,
                deadline,
                once,
                line,
                trace,
            } => {
                (self.caller, self.request) = (caller.clone(), request.clone());
                (self.begun, self.deadline, self.once) = (*at, *deadline, *once);
                (self.line, self.trace) = (*line, trace.clone());
                self.stage = match line {
                    Some(_) if !self.is_admitted => Stage::InLine,
                    _ => Stage::Ready(*at),
                };
            }
            CallEvent::Joined { call, until } => {
                if !self.gone.remove(call) {
                    self.calls.push_back((*call, *until));
                }
            }
            CallEvent::Left { call } => {
                let before = self.calls.len();
                self.calls.retain(|(other, _)| other != call);
                if self.calls.len() == before {
                    self.gone.insert(*call);
                }
            }
            CallEvent::Admitted { at } => {
                self.is_admitted = true;
                if self.stage == Stage::InLine {
                    self.stage = Stage::Ready(*at);
                }
            }
            CallEvent::AttemptBegun { attempt, until } => {
                self.attempts = *attempt;
                self.sent += 1;
                self.open.push(*attempt);
                self.stage = Stage::UnderWay(*attempt, *until);
            }
            CallEvent::AttemptEnded {
                attempt,
                is_sent,
                is_reported,
                again,
                ..
            } => {
                self.sent -= u32::from(!is_sent);
                self.open.retain(|open| open != attempt || !is_reported);
                if matches!(self.stage, Stage::UnderWay(current, _) if current == *attempt) {
                    self.stage = Stage::Ready(*again);
                }
            }
            CallEvent::Cancelled {} | CallEvent::GivenUp { .. } => self.is_cancelled = true,
            CallEvent::Hastened { at, .. } => self.stage = Stage::Ready(*at),
            CallEvent::Settled { late_until, .. } => {
                self.stage = late_until.map_or(Stage::Over, Stage::Told);
            }
            CallEvent::AnsweredLate { .. } => self.stage = Stage::Over,
        }
    }

    /// Bytes beyond the struct's own: the texts and the request, roughly.
    pub(super) fn heap_bytes(&self) -> usize {
        fn of(value: &Value) -> usize {
            match value {
                Value::String(text) => text.len(),
                Value::Array(values) => values.iter().map(|value| 32 + of(value)).sum(),
                Value::Object(fields) => fields.iter().map(|(name, value)| 64 + name.len() + of(value)).sum(),
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            }
        }
        32 * (self.calls.len() + 2 * self.gone.len()) + self.caller.0.len() + self.caller.1.len() + of(&self.request)
    }
}

/// The name of the timer that each call has until it has its outcome: calls without one are counted by it.
pub(crate) const LOOK: &str = "look";
/// The name of the timer of a call that waits for a late answer.
const LATE: &str = "late";
/// The name of the timer of a line.
const LINE: &str = "line";

/// Returns 1 for the name of the event with which a call begins, -1 for that with which it has its outcome, else 0.
pub(crate) fn opened_by(event: &str) -> i64 {
    match event {
        "begun" => 1,
        "settled" => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
