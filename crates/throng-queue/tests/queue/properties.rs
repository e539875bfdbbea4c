//! The queue compared with a simple model, on one thread, for any order of operations.

#![cfg(not(feature = "loom"))]

use proptest::prelude::*;
use std::collections::VecDeque;
use throng_queue::{HandOver, Options, Receiver, Sender, TryReceiveError, TrySendError, bounded};

#[derive(Debug, Clone)]
enum Step {
    Send { by: usize },
    SendAll { by: usize, items: usize },
    Flush { by: usize },
    End { by: usize },
    Begin { from: usize },
    Receive { by: usize, items: usize },
    Share { from: usize },
    Leave { by: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_usize).prop_map(|by| Step::Send { by }),
        3 => (0..4_usize, 0..20_usize).prop_map(|(by, items)| Step::SendAll { by, items }),
        2 => (0..4_usize).prop_map(|by| Step::Flush { by }),
        1 => (0..4_usize).prop_map(|by| Step::End { by }),
        1 => (0..4_usize).prop_map(|from| Step::Begin { from }),
        6 => (0..3_usize, 0..9_usize).prop_map(|(by, items)| Step::Receive { by, items }),
        1 => (0..3_usize).prop_map(|from| Step::Share { from }),
        1 => (0..3_usize).prop_map(|by| Step::Leave { by }),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let hand_over = prop_oneof![Just(HandOver::Adaptive), (0..12_usize).prop_map(HandOver::Every),];
    (0..9_usize, 0..4_usize, hand_over).prop_map(|(items, batches, hand_over)| {
        Options::default()
            .batch_items(items)
            .batches(batches)
            .hand_over(hand_over)
    })
}

/// An item: its sender, and its number.
type Item = (usize, u64);

/// A sender, and its items that no receiver has returned.
struct Sending {
    sender: Option<Sender<Item>>,
    name: usize,
    sent: u64,
}

struct Model {
    senders: Vec<Sending>,
    receivers: Vec<Receiver<Item>>,
    /// The items sent and not received, by sender.
    waiting: Vec<VecDeque<u64>>,
    several: bool,
}

impl Model {
    fn send(&mut self, by: usize) -> Result<bool, TestCaseError> {
        let place = by % self.senders.len();
        let Some(sending) = self.senders.get_mut(place) else {
            return Ok(false);
        };
        let Some(sender) = sending.sender.as_mut() else {
            return Ok(false);
        };
        let item = (sending.name, sending.sent);
        match sender.try_send(item) {
            Ok(()) => {
                self.waiting[sending.name].push_back(sending.sent);
                sending.sent += 1;
                Ok(true)
            }
            Err(TrySendError::Full(back)) => {
                prop_assert_eq!(back, item);
                Ok(false)
            }
            Err(TrySendError::Closed(_)) => Err(TestCaseError::fail("there is a receiver")),
        }
    }

    fn took(&mut self, (name, number): Item) -> Result<(), TestCaseError> {
        let waiting = &mut self.waiting[name];
        if self.several {
            let place = waiting.iter().position(|sent| *sent == number);
            prop_assert!(place.is_some(), "item {} of sender {} was not waiting", number, name);
            waiting.remove(place.unwrap_or(0));
        } else {
            prop_assert_eq!(waiting.pop_front(), Some(number));
        }
        Ok(())
    }

    fn receive(&mut self, by: usize, items: usize) -> Result<(), TestCaseError> {
        let place = by % self.receivers.len();
        let mut taken = Vec::new();
        match self.receivers[place].try_receive() {
            Ok(mut batch) => {
                prop_assert!(!batch.is_empty());
                match items {
                    0 => taken.extend(batch.drain()),
                    1 => taken.extend(batch.into_vec()),
                    _ => taken.extend(batch),
                }
            }
            Err(TryReceiveError::Empty) => {}
            Err(TryReceiveError::Closed) => {
                prop_assert!(self.senders.iter().all(|sending| sending.sender.is_none()));
            }
        }
        taken.into_iter().try_for_each(|item| self.took(item))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 2_000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_as_a_queue_a_sender_and_a_common_bound(
        options in options(),
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 30 } else { 120 }),
    ) {
        let (sender, receiver) = bounded(options);
        let mut model = Model {
            senders: vec![Sending { sender: Some(sender), name: 0, sent: 0 }],
            receivers: vec![receiver],
            waiting: vec![VecDeque::new()],
            several: false,
        };
        for step in steps {
            match step {
                Step::Send { by } => {
                    model.send(by)?;
                }
                Step::SendAll { by, items } => {
                    for _ in 0..items {
                        if !model.send(by)? {
                            break;
                        }
                    }
                }
                Step::Flush { by } => {
                    let place = by % model.senders.len();
                    if let Some(sender) = model.senders[place].sender.as_mut()
                        && sender.try_flush().is_ok()
                    {
                        prop_assert_eq!(sender.gathered(), 0);
                    }
                }
                Step::End { by } => {
                    let place = by % model.senders.len();
                    model.senders[place].sender = None;
                }
                Step::Begin { from } => {
                    let place = from % model.senders.len();
                    if let Some(sender) = model.senders[place].sender.clone() {
                        let name = model.waiting.len();
                        model.waiting.push(VecDeque::new());
                        model.senders.push(Sending { sender: Some(sender), name, sent: 0 });
                    }
                }
                Step::Receive { by, items } => model.receive(by, items)?,
                Step::Share { from } => {
                    let place = from % model.receivers.len();
                    let receiver = model.receivers[place].clone();
                    model.receivers.push(receiver);
                    model.several = true;
                }
                Step::Leave { by } => {
                    if model.receivers.len() > 1 {
                        let place = by % model.receivers.len();
                        model.receivers.swap_remove(place);
                    }
                }
            }
        }
        // At the end every sent item arrives.
        model.senders.clear();
        for place in 0..model.receivers.len() {
            while model.waiting.iter().any(|waiting| !waiting.is_empty()) {
                let before: usize = model.waiting.iter().map(VecDeque::len).sum();
                model.receive(place, 0)?;
                let after: usize = model.waiting.iter().map(VecDeque::len).sum();
                if after == before {
                    break;
                }
            }
        }
        prop_assert!(model.waiting.iter().all(VecDeque::is_empty), "{:?}", model.waiting);
        for receiver in &mut model.receivers {
            prop_assert_eq!(receiver.try_receive().map(|_| ()), Err(TryReceiveError::Closed));
        }
    }
}
