//! The answers that clients have received, and a check that one machine could have given them.

use std::{collections::BTreeMap, time::Duration};

/// An answer, with the times of its request and its arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterAnswer {
    pub(crate) counter: u64,
    pub(crate) asked: Duration,
    pub(crate) given: Duration,
    /// The number of the counter's events, including the requested one.
    pub(crate) events: u64,
    pub(crate) is_read: bool,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) answers: Vec<CounterAnswer>,
    /// Messages that were sent to each counter.
    pub(crate) sent: BTreeMap<u64, u64>,
}

impl Seen {
    /// Returns the final number of a counter's events.
    pub(crate) fn events(&self, counter: u64) -> u64 {
        let answers = self.answers.iter();
        let own = answers.filter(|answer| answer.counter == counter && !answer.is_read);
        own.count() as u64 + self.sent.get(&counter).copied().unwrap_or_default()
    }

    /// Returns the violations of linearizability: an event promised twice, or an answer that ignores an earlier answer.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut by_counter: BTreeMap<u64, Vec<CounterAnswer>> = BTreeMap::new();
        for answer in &self.answers {
            by_counter.entry(answer.counter).or_default().push(*answer);
        }
        let mut wrong = Vec::new();
        for (counter, mut answers) in by_counter {
            let mut promised = BTreeMap::new();
            for answer in answers.iter().filter(|answer| !answer.is_read) {
                if let Some(before) = promised.insert(answer.events, *answer) {
                    wrong.push(format!(
                        "event {} of counter {counter} was promised twice: {before:?}, {answer:?}",
                        answer.events
                    ));
                }
            }
            answers.sort_by_key(|answer| answer.asked);
            let mut given = answers.clone();
            given.sort_by_key(|answer| answer.given);
            let (mut given, mut newest): (_, Option<CounterAnswer>) = (given.into_iter().peekable(), None);
            for answer in answers {
                while let Some(before) = given.next_if(|before| before.given < answer.asked) {
                    newest = newest.filter(|newest| newest.events >= before.events).or(Some(before));
                }
                if let Some(before) = newest
                    && (before.events > answer.events || before.events == answer.events && !answer.is_read)
                {
                    wrong.push(format!("stale: counter {counter} answered {answer:?} after {before:?}"));
                }
            }
        }
        wrong
    }
}

#[test]
fn a_stale_answer_and_an_event_promised_twice_are_seen() {
    let answer = |asked, given, events, is_read| CounterAnswer {
        counter: 1,
        asked: Duration::from_millis(asked),
        given: Duration::from_millis(given),
        events,
        is_read,
    };
    let wrong = |answers: &[CounterAnswer]| {
        let answers = answers.to_vec();
        let sent = BTreeMap::new();
        Seen { answers, sent }.wrong().len()
    };
    // Both were in flight at once, so either may have come first.
    assert_eq!(wrong(&[answer(0, 10, 2, false), answer(5, 12, 1, true)]), 0);
    assert_eq!(wrong(&[answer(0, 10, 2, false), answer(11, 12, 2, true)]), 0);
    assert_eq!(wrong(&[answer(0, 10, 2, false), answer(11, 12, 1, true)]), 1);
    assert_eq!(wrong(&[answer(0, 10, 2, false), answer(5, 12, 2, false)]), 1);
}
