//! All interleavings of a few senders and receivers (feature `loom`). A lost wake-up shows as a deadlock.
#![cfg(feature = "loom")]

use loom::thread;
use throng_queue::{Closed, HandOver, Options, Receiver, bounded};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

fn tiny(hand_over: HandOver) -> Options {
    Options::default().batch_items(2).batches(1).hand_over(hand_over)
}

/// Receives `count` items, in any number of batches.
fn receive(receiver: &mut Receiver<u8>, count: usize) -> Vec<u8> {
    let mut items = Vec::new();
    while items.len() < count {
        items.extend(receiver.receive().expect("the sender lives"));
    }
    items
}

#[test]
fn an_item_sent_while_a_receiver_goes_to_sleep_wakes_it() {
    model(|| {
        let (mut sender, mut receiver) = bounded(tiny(HandOver::Adaptive));
        let sending = thread::spawn(move || {
            sender.send(1).unwrap();
            sender
        });
        assert_eq!(receive(&mut receiver, 1), [1]);
        drop(sending.join().unwrap());
    });
}

#[test]
fn items_sent_while_others_are_taken_arrive_once_and_in_order() {
    model(|| {
        let (mut sender, mut receiver) = bounded(tiny(HandOver::Adaptive));
        let sending = thread::spawn(move || {
            for item in 1..=3 {
                sender.send(item).unwrap();
            }
            sender
        });
        assert_eq!(receive(&mut receiver, 3), [1, 2, 3]);
        drop(sending.join().unwrap());
    });
}

#[test]
fn a_sender_that_waits_for_room_is_woken() {
    for hand_over in [HandOver::Every(1), HandOver::Adaptive] {
        model(move || {
            let (mut sender, mut receiver) = bounded(tiny(hand_over).batch_items(1));
            let sending = thread::spawn(move || {
                for item in 1..=3 {
                    sender.send(item).unwrap();
                }
            });
            let received: Vec<u8> = receiver.batches().flatten().collect();
            assert_eq!(received, [1, 2, 3]);
            sending.join().unwrap();
        });
    }
}

#[test]
fn two_senders_lose_nothing() {
    model(|| {
        let (mut one, mut receiver) = bounded(tiny(HandOver::Adaptive));
        let mut other = one.clone();
        let first = thread::spawn(move || one.send(1).map(|()| one));
        let second = thread::spawn(move || other.send(2).map(|()| other));
        let mut received = receive(&mut receiver, 2);
        received.sort_unstable();
        assert_eq!(received, [1, 2]);
        drop((first.join().unwrap(), second.join().unwrap()));
    });
}

#[test]
fn two_receivers_share_the_messages_and_both_see_the_end() {
    model(|| {
        let (mut sender, mut one) = bounded(tiny(HandOver::Every(1)));
        let mut other = one.clone();
        let receiving = thread::spawn(move || other.batches().flatten().count());
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        drop(sender);
        let own = one.batches().flatten().count();
        assert_eq!(own + receiving.join().unwrap(), 2);
    });
}

#[test]
fn a_receiver_going_to_sleep_sees_the_last_sender_end() {
    model(|| {
        let (sender, mut receiver) = bounded::<u8>(tiny(HandOver::Adaptive));
        let ending = thread::spawn(move || drop(sender));
        assert_eq!(receiver.receive().map(|_| ()), Err(Closed));
        ending.join().unwrap();
    });
}

#[test]
fn a_sender_going_to_sleep_sees_the_last_receiver_end() {
    model(|| {
        let (mut sender, receiver) = bounded(tiny(HandOver::Adaptive).batch_items(1));
        let ending = thread::spawn(move || drop(receiver));
        let unsent = (1..=3_u8).find_map(|item| sender.send(item).err());
        // Items handed over before the end may have been dropped with the queue. Only the latest item comes back.
        if let Some(error) = unsent {
            assert!(error.unsent.is_sorted() && !error.unsent.is_empty());
        }
        ending.join().unwrap();
        assert!(sender.is_closed());
    });
}
