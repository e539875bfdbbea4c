//! Compares the answers that clients got with the history that the service reports.
//!
//! Each student joins one section at most once and leaves it at most once. So an event belongs to one request, and each section can be checked alone:
//!
//! - Each acknowledged request has exactly one event. A refused request has none, and no event is without a request.
//! - If one request was answered before the next was sent, their events have the same order.
//! - Each answer and each read shows the state of a moment between its request and its answer.

use super::{
    history::History,
    load::{Asked, Operation},
};
use serde::Deserialize;
use std::{borrow::Cow, collections::HashMap, fmt::Display};

/// The most differences that are described in words.
const TOLD_MAX: usize = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Acknowledged changes that are not in the history.
    pub(super) lost: u64,
    /// Changes that are in the history more than once.
    pub(super) doubled: u64,
    /// All other errors.
    pub(super) other: u64,
    /// The first errors in words.
    pub(super) told: Vec<String>,
}

impl Findings {
    pub(super) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.other == 0
    }

    pub(super) fn other(&mut self, what: impl Display) {
        self.other += 1;
        self.tell(what);
    }

    pub(super) fn lost(&mut self, what: impl Display) {
        self.lost += 1;
        self.tell(what);
    }

    fn tell(&mut self, what: impl Display) {
        if self.told.len() < TOLD_MAX {
            self.told.push(what.to_string());
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.lost += more.lost;
        self.doubled += more.doubled;
        self.other += more.other;
        for told in more.told {
            self.tell(told);
        }
    }

    /// Takes the greater of each count, for two checks of the same history.
    pub(super) fn or(&mut self, again: Self) {
        self.lost = self.lost.max(again.lost);
        self.doubled = self.doubled.max(again.doubled);
        self.other = self.other.max(again.other);
        for told in again.told {
            if !self.told.contains(&told) {
                self.tell(told);
            }
        }
    }
}

/// A section's state in a reply or a view.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow, default)]
    change: Cow<'a, str>,
    taken: u32,
}

/// Checks all sections.
pub(super) fn check(operations: &[Operation], histories: &[History]) -> Findings {
    let mut findings = Findings::default();
    for history in histories {
        let of: Vec<&Operation> = operations
            .iter()
            .filter(|operation| operation.section == history.section)
            .collect();
        Section::new(history, of, &mut findings).check();
    }
    findings
}

struct Section<'a> {
    history: &'a History,
    operations: Vec<&'a Operation>,
    /// The position of each change's event, from 1.
    seq: Vec<Option<usize>>,
    /// The seats taken after each number of events.
    taken: Vec<u32>,
    findings: &'a mut Findings,
}

impl<'a> Section<'a> {
    fn new(history: &'a History, operations: Vec<&'a Operation>, findings: &'a mut Findings) -> Self {
        Self {
            seq: vec![None; operations.len()],
            operations,
            taken: vec![0],
            history,
            findings,
        }
    }

    fn check(mut self) {
        self.place_events();
        self.check_state();
        let mut by_seq: Vec<(usize, &Operation)> = self.placed().collect();
        by_seq.sort_unstable_by_key(|(seq, _)| *seq);
        self.check_order(&by_seq);
        let bounds = Bounds::new(&by_seq, self.history.events.len());
        for at in 0..self.operations.len() {
            self.check_answer(at, &bounds);
        }
    }

    fn placed(&self) -> impl Iterator<Item = (usize, &'a Operation)> {
        let both = self.seq.iter().zip(&self.operations);
        both.filter_map(|(seq, operation)| Some(((*seq)?, *operation)))
    }

    /// Assigns each event to its request.
    fn place_events(&mut self) {
        let name = self.history.section;
        let asked: HashMap<(&str, &str), usize> = self
            .operations
            .iter()
            .enumerate()
            .filter_map(|(at, operation)| match &operation.asked {
                Asked::Add(student) => Some((("Added", &**student), at)),
                Asked::Drop(student) => Some((("Dropped", &**student), at)),
                Asked::Look => None,
            })
            .collect();
        let mut taken = 0_u32;
        for (at, event) in self.history.events.iter().enumerate() {
            let seq = at + 1;
            if event.seq != seq as u64 {
                self.findings
                    .other(format!("S{name}: event {seq} has the number {}", event.seq));
            }
            match &*event.name {
                "Added" => taken += 1,
                "Dropped" => taken = taken.saturating_sub(1),
                _ => {}
            }
            self.taken.push(taken);
            if event.name == "Opened" && seq == 1 {
                continue;
            }
            let student = event.student.as_deref().unwrap_or_default();
            let Some(&of) = asked.get(&(&*event.name, student)) else {
                self.findings
                    .other(format!("S{name}: nobody asked for {} {student}", event.name));
                continue;
            };
            if self.seq[of].replace(seq).is_some() {
                self.findings.doubled += 1;
                self.findings
                    .tell(format!("S{name}: doubled: {} {student}", event.name));
            }
        }
    }

    /// Checks that the state is the result of the events.
    fn check_state(&mut self) {
        let (history, found) = (self.history, self.taken.last().copied().unwrap_or(0));
        let mut expected = std::collections::BTreeSet::new();
        for event in &history.events {
            let Some(student) = event.student.as_deref() else {
                continue;
            };
            match &*event.name {
                "Added" => expected.insert(student),
                _ => expected.remove(student),
            };
        }
        let is_same = history.roster.len() == expected.len()
            && history.roster.iter().all(|student| expected.contains(&**student));
        if history.taken != found || !is_same {
            self.findings.other(format!(
                "S{}: its state has {} students, its view {}, its events come to {found}",
                history.section,
                history.roster.len(),
                history.taken
            ));
        }
    }

    /// Checks the order of events: if a request was answered before another was sent, its event is the earlier one.
    fn check_order(&mut self, by_seq: &[(usize, &Operation)]) {
        let mut invoked = 0;
        for (seq, operation) in by_seq {
            if operation.answered.is_some_and(|answered| answered < invoked) {
                let name = self.history.section;
                self.findings.other(format!(
                    "S{name}: event {seq} was answered before an earlier one was asked for"
                ));
            }
            invoked = invoked.max(operation.invoked);
        }
    }

    fn check_answer(&mut self, at: usize, bounds: &Bounds) {
        let (operation, seq, name) = (self.operations[at], self.seq[at], self.history.section);
        let Some(answered) = operation.answered else { return };
        let what = || format!("S{name}: {:?} was answered {}", operation.asked, operation.status);
        match (&operation.asked, operation.status, seq) {
            (Asked::Look, 200, _) | (Asked::Add(_), 409, None) => {
                // A refusal means that all seats are taken. A view has the number.
                let taken = match operation.asked {
                    Asked::Look => serde_json::from_slice::<Said>(&operation.body).map_or(u32::MAX, |said| said.taken),
                    _ => super::load::seats(name),
                };
                let sent = if operation.asked == Asked::Look {
                    operation.sent
                } else {
                    operation.invoked
                };
                let (first, last) = (bounds.first(sent), bounds.last(answered));
                let range = self.taken.get(first..=last).unwrap_or_default();
                if range.contains(&taken) {
                } else if self.taken[..first].contains(&taken) {
                    self.findings.other(format!(
                        "{} with {taken} taken, which is stale: {first} events were acknowledged",
                        what()
                    ));
                } else {
                    self.findings
                        .other(format!("{} with {taken} taken, which it never had then", what()));
                }
            }
            (Asked::Add(_) | Asked::Drop(_), 200, Some(seq)) => {
                let change = if matches!(operation.asked, Asked::Add(_)) {
                    "added"
                } else {
                    "dropped"
                };
                let said = serde_json::from_slice::<Said>(&operation.body);
                if !said.is_ok_and(|said| said.change == change && said.taken == self.taken[seq]) {
                    let body = String::from_utf8_lossy(&operation.body);
                    self.findings
                        .other(format!("{} with {body}, and is event {seq}", what()));
                }
            }
            (Asked::Add(_) | Asked::Drop(_), 200, None) => {
                self.findings.lost += 1;
                self.findings.tell(format!("{}, and is lost", what()));
            }
            (_, _, Some(seq)) => self.findings.other(format!("{}, and is event {seq}", what())),
            (_, _, None) => {
                let body = String::from_utf8_lossy(&operation.body);
                self.findings.other(format!("{} {body}", what()));
            }
        }
    }
}

/// The range of events after which an answer may have been made.
struct Bounds {
    /// The times when events were acknowledged, each with the greatest event acknowledged up to then.
    acknowledged: Vec<(u64, usize)>,
    /// The times when events were requested, each with the least event requested from then on.
    invoked: Vec<(u64, usize)>,
    events: usize,
}

impl Bounds {
    fn new(by_seq: &[(usize, &Operation)], events: usize) -> Self {
        let answers = by_seq
            .iter()
            .filter_map(|(seq, operation)| Some((operation.answered?, *seq)));
        let mut acknowledged: Vec<(u64, usize)> = answers.collect();
        acknowledged.sort_unstable();
        let mut greatest = 0;
        for (_, seq) in &mut acknowledged {
            greatest = greatest.max(*seq);
            *seq = greatest;
        }
        let mut invoked: Vec<(u64, usize)> = by_seq
            .iter()
            .map(|(seq, operation)| (operation.invoked, *seq))
            .collect();
        invoked.sort_unstable();
        let mut least = usize::MAX;
        for (_, seq) in invoked.iter_mut().rev() {
            least = least.min(*seq);
            *seq = least;
        }
        Self {
            acknowledged,
            invoked,
            events,
        }
    }

    /// Returns the least number of events that an answer to a request of this moment must show.
    fn first(&self, asked: u64) -> usize {
        let before = self.acknowledged.partition_point(|(answered, _)| *answered < asked);
        // Every section was opened before the load began.
        before
            .checked_sub(1)
            .map_or(1, |at| self.acknowledged[at].1)
            .min(self.events)
    }

    /// Returns the greatest number of events that an answer of this moment can show.
    fn last(&self, answered: u64) -> usize {
        let after = self.invoked.partition_point(|(invoked, _)| *invoked <= answered);
        self.invoked.get(after).map_or(self.events, |(_, seq)| seq - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::history::Event, *};

    fn operation(asked: Asked, from: u64, to: u64, taken: u32) -> Operation {
        let change = if matches!(asked, Asked::Drop(_)) {
            "dropped"
        } else {
            "added"
        };
        Operation {
            section: 1,
            asked,
            invoked: from,
            sent: from,
            answered: Some(to),
            status: 200,
            body: format!(r#"{{"change":"{change}","taken":{taken}}}"#).into_bytes(),
        }
    }

    fn add(student: &str, from: u64, to: u64, taken: u32) -> Operation {
        operation(Asked::Add(student.into()), from, to, taken)
    }

    fn history(events: &[(&str, &str)]) -> History {
        let mut roster = std::collections::BTreeSet::new();
        let mut all = vec![Event::new(1, "Opened", None)];
        for (at, (name, student)) in events.iter().enumerate() {
            match *name {
                "Added" => roster.insert((*student).to_owned()),
                _ => roster.remove(*student),
            };
            all.push(Event::new(at as u64 + 2, name, Some(student)));
        }
        History {
            section: 1,
            events: all,
            taken: roster.len() as u32,
            roster,
        }
    }

    fn found(operations: &[Operation], history: History) -> (u64, u64, u64) {
        let findings = check(operations, &[history]);
        (findings.lost, findings.doubled, findings.other)
    }

    #[test]
    fn a_correct_history_is_clean() {
        let operations = [
            add("a", 10, 20, 1),
            add("b", 15, 40, 2),
            operation(Asked::Look, 30, 35, 2),
            operation(Asked::Look, 30, 35, 1),
            operation(Asked::Drop("a".into()), 50, 60, 1),
        ];
        let events = [("Added", "a"), ("Added", "b"), ("Dropped", "a")];
        assert_eq!(found(&operations, history(&events)), (0, 0, 0));
    }

    #[test]
    fn lost_doubled_and_unasked_changes_are_counted() {
        let operations = [add("a", 10, 20, 1), add("b", 30, 40, 2)];
        assert_eq!(found(&operations, history(&[("Added", "a")])), (1, 0, 0));
        let twice = [("Added", "a"), ("Added", "b"), ("Added", "b")];
        let findings = check(&operations, &[history(&twice)]);
        assert_eq!((findings.lost, findings.doubled), (0, 1));
        let unasked = [("Added", "a"), ("Added", "b"), ("Added", "zoe")];
        assert_eq!(found(&operations, history(&unasked)), (0, 0, 1));
    }

    #[test]
    fn a_refusal_that_took_effect_a_gap_and_a_wrong_state_are_found() {
        let mut refused = add("a", 10, 20, 1);
        refused.status = 409;
        assert_eq!(found(&[refused], history(&[("Added", "a")])), (0, 0, 1));
        let operations = [add("a", 10, 20, 1)];
        let mut gap = history(&[("Added", "a")]);
        gap.events[1].seq = 3;
        assert_eq!(found(&operations, gap), (0, 0, 1));
        let mut state = history(&[("Added", "a")]);
        state.roster.clear();
        assert_eq!(found(&operations, state), (0, 0, 1));
    }

    #[test]
    fn an_order_that_cannot_be_and_a_stale_read_are_found() {
        let operations = [add("a", 10, 20, 2), add("b", 30, 40, 1)];
        let events = [("Added", "b"), ("Added", "a")];
        assert_eq!(
            found(&operations, history(&events)),
            (0, 0, 1),
            "b was asked for after a was answered"
        );
        let operations = [add("a", 10, 20, 1), operation(Asked::Look, 30, 40, 0)];
        let findings = check(&operations, &[history(&[("Added", "a")])]);
        assert!(
            findings.other == 1 && findings.told[0].contains("stale"),
            "{findings:?}"
        );
        let operations = [operation(Asked::Look, 5, 8, 1), add("a", 10, 20, 1)];
        assert_eq!(
            found(&operations, history(&[("Added", "a")])),
            (0, 0, 1),
            "it was read before it was asked for"
        );
    }

    #[test]
    fn an_unanswered_request_may_or_may_not_have_taken_effect() {
        let mut open = add("a", 10, 20, 1);
        (open.answered, open.status) = (None, 0);
        assert_eq!(found(&[open.clone()], history(&[("Added", "a")])), (0, 0, 0));
        assert_eq!(found(&[open], history(&[])), (0, 0, 0));
    }
}
