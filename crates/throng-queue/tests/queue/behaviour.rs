//! The behaviour of the queue with threads.

#![cfg(not(feature = "loom"))]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use throng_queue::{
    Backlog, Closed, HandOver, IntervalSender, Options, ReceiveTimeoutError, Receiver, TryFlushError, TryReceiveError,
    TrySendError, bounded,
};

const BOTH: [HandOver; 3] = [HandOver::Adaptive, HandOver::Every(1), HandOver::Every(3)];

fn small(hand_over: HandOver) -> Options {
    Options::default().batch_items(4).batches(2).hand_over(hand_over)
}

/// Receives all available items.
fn all<T>(receiver: &mut Receiver<T>) -> Vec<T> {
    let mut items = Vec::new();
    while let Ok(batch) = receiver.try_receive() {
        items.extend(batch);
    }
    items
}

/// Sends numbers until the queue is full. Returns the number of items taken.
fn fill(sender: &mut throng_queue::Sender<usize>) -> usize {
    (0..)
        .find(|item| sender.try_send(*item).is_err())
        .expect("it is bounded")
}

#[test]
fn an_adaptive_item_needs_no_flush() {
    let (mut sender, mut receiver) = bounded(Options::default());
    sender.send(7).unwrap();
    assert_eq!(*receiver.try_receive().unwrap(), [7]);
}

#[test]
fn a_waiting_receiver_gets_the_first_item_at_once() {
    let (mut sender, mut receiver) = bounded(Options::default());
    let waiting = thread::spawn(move || receiver.receive().map(Vec::from_iter));
    sender.send(7).unwrap();
    // The sender lives on but sends nothing more. A receiver that waits for a full batch would wait for ever.
    assert_eq!(waiting.join().unwrap(), Ok(vec![7]));
    drop(sender);
}

#[test]
fn messages_sent_to_a_busy_receiver_are_one_batch() {
    let (mut sender, mut receiver) = bounded(Options::default());
    sender.send_all(0..700).unwrap();
    assert_eq!(receiver.receive().unwrap().len(), 700);
}

#[test]
fn a_slow_senders_item_is_not_forgotten_behind_a_fast_ones() {
    let (mut slow, mut receiver) = bounded(small(HandOver::Adaptive));
    let mut fast = slow.clone();
    fast.send_all(0..4).unwrap();
    slow.send(1_000).unwrap();
    let found = (0..100).find(|_| {
        let batch = receiver.receive().unwrap();
        fast.send_all(0..4).unwrap();
        batch.contains(&1_000)
    });
    assert!(found.is_some(), "a hundred batches of the fast sender went before it");
}

#[test]
fn a_fixed_batch_waits_until_it_is_full_or_flushed() {
    let (mut sender, mut receiver) = bounded(small(HandOver::Every(3)));
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(receiver.try_receive().unwrap_err(), TryReceiveError::Empty);
    assert_eq!(sender.gathered(), 2);
    sender.send(3).unwrap();
    assert_eq!(all(&mut receiver), [1, 2, 3]);
    sender.send(4).unwrap();
    sender.flush().unwrap();
    assert_eq!(all(&mut receiver), [4]);
    sender.try_flush().unwrap();
    assert_eq!(receiver.try_receive().unwrap_err(), TryReceiveError::Empty);
}

#[test]
fn a_dropped_sender_hands_over_its_messages_to_a_full_queue() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let mut late = sender.clone();
        late.send(1_000).unwrap();
        let sent = fill(&mut sender);
        drop(sender);
        drop(late);
        let received = all(&mut receiver);
        assert_eq!(received.len(), sent + 1, "{hand_over:?}");
        assert_eq!(receiver.receive().map(|_| ()), Err(Closed));
    }
}

#[test]
fn a_full_queue_takes_no_more_than_its_bound() {
    for hand_over in BOTH {
        let (mut sender, receiver) = bounded(small(hand_over));
        let sent = fill(&mut sender);
        // The queue holds two batches of three or four, and the sender perhaps one.
        assert!((6..=12).contains(&sent), "{sent} items were taken with {hand_over:?}");
        assert!(receiver.backlog().batches <= 2);
        assert!(matches!(sender.try_send(9), Err(TrySendError::Full(9))));
    }
}

#[test]
fn a_full_queue_lets_no_new_sender_begin_a_batch() {
    let (mut sender, receiver) = bounded(small(HandOver::Every(4)));
    fill(&mut sender);
    for _ in 0..100 {
        let mut other = sender.clone();
        assert!(matches!(other.try_send(9), Err(TrySendError::Full(9))));
    }
    assert!(receiver.backlog().batches <= 2);
}

#[test]
fn senders_that_come_and_go_cannot_fill_a_queue_without_end() {
    for hand_over in BOTH {
        let (sender, receiver) = bounded(small(hand_over));
        let sent = (0..100).filter(|item| sender.clone().try_send(*item).is_ok()).count();
        assert!(sent <= 12, "{sent} items were taken with {hand_over:?}");
        assert_eq!(receiver.backlog().items, sent);
    }
}

#[test]
fn a_full_queue_refuses_a_flush_and_keeps_the_items() {
    let (mut sender, mut receiver) = bounded(small(HandOver::Every(4)));
    sender.send(1_000).unwrap();
    let sent = fill(&mut sender.clone());
    assert!(matches!(sender.try_flush(), Err(TryFlushError::Full)));
    let mut received = all(&mut receiver);
    sender.try_flush().unwrap();
    received.extend(all(&mut receiver));
    assert_eq!(received, Vec::from_iter((0..sent).chain([1_000])));
}

#[test]
fn a_sender_that_waits_for_room_goes_on_when_there_is_some() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let sending = thread::spawn(move || sender.send_all(0..100));
        let received: Vec<_> = receiver.batches().flatten().collect();
        sending.join().unwrap().unwrap();
        assert_eq!(received, Vec::from_iter(0..100), "{hand_over:?}");
    }
}

#[test]
fn many_senders_lose_duplicate_and_reorder_nothing() {
    let items = if cfg!(miri) { 50 } else { 20_000 };
    for hand_over in [
        HandOver::Adaptive,
        HandOver::Every(1),
        HandOver::Every(7),
        HandOver::Every(64),
    ] {
        let options = Options::default().batch_items(64).batches(3).hand_over(hand_over);
        let (sender, mut receiver) = bounded(options);
        let senders: Vec<_> = (0..4)
            .map(|of| {
                let mut sender = sender.clone();
                thread::spawn(move || {
                    for item in 0..items {
                        sender.send((of, item)).unwrap();
                    }
                })
            })
            .collect();
        drop(sender);
        let mut next = [0; 4];
        for (of, item) in receiver.batches().flatten() {
            assert_eq!(item, next[of]);
            next[of] += 1;
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(next, [items; 4], "{hand_over:?}");
    }
}

#[test]
fn several_receivers_share_the_work() {
    let items: usize = if cfg!(miri) { 100 } else { 20_000 };
    for hand_over in BOTH {
        let (sender, receiver) = bounded(small(hand_over));
        let receivers: Vec<_> = (0..3)
            .map(|_| {
                let mut receiver = receiver.clone();
                thread::spawn(move || {
                    let items: Vec<(usize, usize)> = receiver.batches().flatten().collect();
                    for of in 0..3 {
                        let own: Vec<_> = items.iter().filter(|item| item.0 == of).collect();
                        assert!(own.is_sorted(), "a receiver sees each sender's order");
                    }
                    items
                })
            })
            .collect();
        drop(receiver);
        let senders: Vec<_> = (0..3)
            .map(|of| {
                let mut sender = sender.clone();
                thread::spawn(move || sender.send_all((0..items).map(|item| (of, item))))
            })
            .collect();
        drop(sender);
        senders.into_iter().for_each(|sender| sender.join().unwrap().unwrap());
        let mut received: Vec<_> = receivers
            .into_iter()
            .flat_map(|receiver| receiver.join().unwrap())
            .collect();
        received.sort_unstable();
        let sent: Vec<_> = (0..3).flat_map(|of| (0..items).map(move |item| (of, item))).collect();
        assert_eq!(received, sent, "{hand_over:?}");
    }
}

#[test]
fn messages_a_dropped_receiver_held_go_to_the_others() {
    let (mut sender, mut first) = bounded(small(HandOver::Every(4)));
    sender.send_all(0..8).unwrap();
    assert_eq!(*first.receive().unwrap(), [0, 1, 2, 3]);
    let mut second = first.clone();
    drop(first);
    assert_eq!(*second.receive().unwrap(), [4, 5, 6, 7]);
}

#[test]
fn senders_without_receiver_get_unreceived_messages_back() {
    let (mut sender, receiver) = bounded(small(HandOver::Every(3)));
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.send(3).unwrap_err().unsent, [1, 2, 3]);
    assert_eq!(sender.send(4).unwrap_err().unsent, [4]);
    sender.flush().unwrap_err();

    let (mut sender, receiver) = bounded(small(HandOver::Adaptive));
    sender.send(1).unwrap();
    drop(receiver);
    match sender.try_send(2) {
        Err(TrySendError::Closed(unsent)) => assert_eq!(unsent, [1, 2]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sender_that_waits_for_room_hears_that_the_receiver_is_gone() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let sending = thread::spawn(move || {
            let mut item = 0;
            loop {
                match sender.send(item) {
                    Ok(()) => item += 1,
                    Err(error) => return (item, error.unsent),
                }
            }
        });
        receiver.receive().unwrap();
        drop(receiver);
        let (last, unsent) = sending.join().unwrap();
        let first = last + 1 - unsent.len();
        assert_eq!(
            unsent,
            Vec::from_iter(first..=last),
            "the unsent are the last ones, in order"
        );
    }
}

#[test]
fn a_receiver_gets_the_rest_and_then_the_end() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        sender.send_all(0..5).unwrap();
        drop(sender);
        assert_eq!(all(&mut receiver), [0, 1, 2, 3, 4]);
        assert_eq!(receiver.try_receive().unwrap_err(), TryReceiveError::Closed);
        assert_eq!(
            receiver.receive_timeout(Duration::MAX).unwrap_err(),
            ReceiveTimeoutError::Closed
        );
    }
}

#[test]
fn a_waiting_receiver_hears_that_the_last_sender_is_gone() {
    let (sender, mut receiver) = bounded::<u8>(Options::default());
    let waiting = thread::spawn(move || receiver.receive().map(Vec::from_iter));
    drop(sender.clone());
    drop(sender);
    assert_eq!(waiting.join().unwrap(), Err(Closed));
}

#[test]
fn a_wait_with_a_limit_ends() {
    let (mut sender, mut receiver) = bounded(Options::default());
    let begun = Instant::now();
    let limit = Duration::from_millis(2);
    assert_eq!(
        receiver.receive_timeout(limit).unwrap_err(),
        ReceiveTimeoutError::TimedOut
    );
    assert!(begun.elapsed() >= limit, "it waited");
    sender.send(1).unwrap();
    assert_eq!(*receiver.receive_timeout(limit).unwrap(), [1]);
    sender.send(2).unwrap();
    assert_eq!(*receiver.receive_timeout(Duration::ZERO).unwrap(), [2]);
}

#[test]
fn the_backlog_is_told() {
    let (mut sender, mut receiver) = bounded(small(HandOver::Every(4)));
    sender.send_all(0..8).unwrap();
    assert_eq!(receiver.backlog(), Backlog { batches: 2, items: 8 });
    receiver.receive().unwrap();
    assert_eq!(receiver.backlog(), Backlog { batches: 0, items: 0 });
}

#[test]
fn buffers_go_round() {
    let (mut sender, mut receiver) = bounded(small(HandOver::Every(4)));
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..100 {
        sender.send_all(0..4).unwrap();
        places.insert(receiver.receive().unwrap().as_ptr());
    }
    assert!(places.len() <= 2, "{} buffers for one batch at a time", places.len());
}

#[test]
fn a_batch_can_be_read_changed_taken_and_kept() {
    let (mut sender, mut receiver) = bounded(small(HandOver::Every(4)));
    let mut batch = || {
        sender.send_all(["a", "b", "c", "d"].map(String::from)).unwrap();
        receiver.receive().unwrap()
    };
    let mut read = batch();
    assert_eq!((&read).into_iter().count(), 4);
    (&mut read).into_iter().for_each(|item| item.push('!'));
    assert_eq!(format!("{read:?}"), r#"["a!", "b!", "c!", "d!"]"#);
    assert_eq!(read.drain().next_back().unwrap(), "d!");
    assert!(read.is_empty());
    assert_eq!(batch().into_vec(), ["a", "b", "c", "d"]);
    let mut half = batch().into_iter();
    assert_eq!((half.next().unwrap().as_str(), half.len()), ("a", 3));
}

/// Counts its drops, and panics in the chosen ones.
struct Counted {
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "as told");
    }
}

#[test]
fn every_item_is_dropped_once_wherever_it_is() {
    for hand_over in BOTH {
        let drops = Arc::new(AtomicUsize::new(0));
        let item = || Counted {
            drops: Arc::clone(&drops),
            panics: false,
        };
        let (mut sender, mut receiver) = bounded(small(hand_over));
        sender.send_all((0..6).map(|_| item())).unwrap();
        let mut batch = receiver.receive().unwrap();
        drop(batch.drain().next());
        sender.send(item()).unwrap();
        drop((batch, receiver));
        drop(sender.send(item()));
        drop(sender);
        assert_eq!(drops.load(Ordering::Relaxed), 8, "{hand_over:?}");
    }
}

#[test]
fn gathered_items_drop_with_a_sender_without_receivers() {
    for hand_over in BOTH {
        let drops = Arc::new(AtomicUsize::new(0));
        let item = || Counted {
            drops: Arc::clone(&drops),
            panics: false,
        };
        let (mut sender, receiver) = bounded(Options::default().hand_over(hand_over).batch_items(8));
        sender.send(item()).unwrap();
        sender.send(item()).unwrap();
        let gathered = sender.gathered();
        drop(receiver);
        assert_eq!(sender.gathered(), gathered, "{hand_over:?}");
        drop(sender);
        assert_eq!(drops.load(Ordering::Relaxed), 2, "{hand_over:?}");
    }
}

#[test]
fn an_item_that_panics_when_dropped_leaves_the_queue_sane() {
    for hand_over in BOTH {
        let drops = Arc::new(AtomicUsize::new(0));
        let item = |panics| Counted {
            drops: Arc::clone(&drops),
            panics,
        };
        let (mut sender, mut receiver) = bounded(small(hand_over));
        sender.send_all([item(false), item(true), item(false)]).unwrap();
        while let Ok(batch) = receiver.try_receive() {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(batch)));
        }
        assert_eq!(drops.load(Ordering::Relaxed), 3);
        sender.send_all([item(false), item(false), item(false)]).unwrap();
        sender.flush().unwrap();
        assert_eq!(all(&mut receiver).len(), 3, "{hand_over:?}");
    }
}

#[test]
fn an_iterator_that_panics_loses_nothing_it_gave_before() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let items = (0..3).map(|item| if item == 2 { panic!("as told") } else { item });
        let sending = catch_unwind(AssertUnwindSafe(|| sender.send_all(items)));
        assert!(sending.is_err());
        sender.send(7).unwrap();
        sender.flush().unwrap();
        assert_eq!(all(&mut receiver), [0, 1, 7], "{hand_over:?}");
    }
}

#[test]
fn items_without_a_size_are_counted_too() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        sender.send_all([(); 5]).unwrap();
        sender.flush().unwrap();
        assert_eq!(all(&mut receiver).len(), 5, "{hand_over:?}");
    }
}

#[test]
fn an_interval_sender_flushes_by_the_clock_and_at_its_end() {
    let (sender, mut receiver) = bounded(Options::default().hand_over(HandOver::Every(1_000)));
    let sender = IntervalSender::new(sender, Duration::from_millis(1));
    sender.send(1).unwrap();
    assert_eq!(
        *receiver.receive().unwrap(),
        [1],
        "nothing but the clock could flush it"
    );
    let long = Duration::from_secs(3_600);
    let (other, mut other_receiver) = bounded(Options::default().hand_over(HandOver::Every(1_000)));
    let other = IntervalSender::new(other, long);
    other.send_all([1, 2]).unwrap();
    other.flush().unwrap();
    other.try_send(3).unwrap();
    drop(other);
    assert_eq!(all(&mut other_receiver), [1, 2, 3]);
    assert_eq!(other_receiver.receive().map(|_| ()), Err(Closed));
    drop(receiver);
    assert_eq!(sender.send(2).unwrap_err().unsent, [2]);
}
