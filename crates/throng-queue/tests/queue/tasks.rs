//! The behaviour of the queue with tasks.

#![cfg(not(feature = "loom"))]

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};
use throng_queue::{Closed, HandOver, Options, Receiver, Sender, bounded};

const BOTH: [HandOver; 2] = [HandOver::Adaptive, HandOver::Every(3)];

fn small(hand_over: HandOver) -> Options {
    Options::default().batch_items(4).batches(2).hand_over(hand_over)
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakes))))
}

fn fill(sender: &mut Sender<usize>) -> usize {
    (0..)
        .find(|item| sender.try_send(*item).is_err())
        .expect("it is bounded")
}

fn all<T>(receiver: &mut Receiver<T>) -> Vec<T> {
    let mut items = Vec::new();
    while let Ok(batch) = receiver.try_receive() {
        items.extend(batch);
    }
    items
}

#[test]
fn a_task_that_waits_for_items_is_woken_once_for_them() {
    let (mut sender, mut receiver) = bounded(Options::default());
    let wakes = Arc::new(Wakes::default());
    let mut received;
    {
        let mut receiving = pin!(receiver.receive_async());
        assert!(poll(receiving.as_mut(), &wakes).is_pending());
        sender.send_all(0..3).unwrap();
        assert_eq!(
            wakes.count(),
            1,
            "the first item wakes it, the others find it on its way"
        );
        let Poll::Ready(Ok(batch)) = poll(receiving.as_mut(), &wakes) else {
            panic!("it was woken for something")
        };
        received = batch.into_vec();
    }
    received.extend(all(&mut receiver));
    assert_eq!(received, [0, 1, 2]);
}

#[test]
fn a_task_that_waits_for_room_is_woken_for_it() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let sent = fill(&mut sender);
        let wakes = Arc::new(Wakes::default());
        let mut received;
        {
            let mut sending = pin!(sender.send_async(sent));
            assert!(poll(sending.as_mut(), &wakes).is_pending());
            received = receiver.receive().unwrap().into_vec();
            assert_eq!(wakes.count(), 1);
            assert!(matches!(poll(sending.as_mut(), &wakes), Poll::Ready(Ok(()))));
        }
        received.extend(all(&mut receiver));
        sender.try_flush().unwrap();
        received.extend(all(&mut receiver));
        assert_eq!(received, Vec::from_iter(0..=sent), "{hand_over:?}");
    }
}

#[test]
fn a_receive_that_is_given_up_loses_nothing() {
    let (mut sender, mut receiver) = bounded(Options::default());
    let wakes = Arc::new(Wakes::default());
    {
        let mut receiving = pin!(receiver.receive_async());
        assert!(poll(receiving.as_mut(), &wakes).is_pending());
        sender.send(1).unwrap();
        assert_eq!(wakes.count(), 1);
    }
    sender.send(2).unwrap();
    assert_eq!(all(&mut receiver), [1, 2]);
}

#[test]
fn a_receive_that_is_given_up_after_its_wake_passes_it_on() {
    let (mut sender, mut first) = bounded(Options::default());
    let mut second = first.clone();
    let (first_wakes, second_wakes) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let mut second_receiving = pin!(second.receive_async());
    {
        let mut receiving = pin!(first.receive_async());
        assert!(poll(receiving.as_mut(), &first_wakes).is_pending());
        assert!(poll(second_receiving.as_mut(), &second_wakes).is_pending());
        sender.send(1).unwrap();
        assert_eq!((first_wakes.count(), second_wakes.count()), (1, 0));
    }
    assert_eq!(second_wakes.count(), 1);
    assert!(poll(second_receiving.as_mut(), &second_wakes).is_ready());
}

#[test]
fn a_send_that_is_given_up_takes_its_item_along_and_no_other() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let sent = fill(&mut sender);
        let wakes = Arc::new(Wakes::default());
        {
            let mut sending = pin!(sender.send_async(1_000));
            assert!(poll(sending.as_mut(), &wakes).is_pending());
        }
        let mut received = all(&mut receiver);
        assert_eq!(wakes.count(), 0, "nobody waits any more");
        sender.try_flush().unwrap();
        received.extend(all(&mut receiver));
        assert_eq!(received, Vec::from_iter(0..sent), "{hand_over:?}");
    }
}

#[test]
fn ready_means_that_the_next_item_finds_room() {
    for hand_over in BOTH {
        let (mut sender, mut receiver) = bounded(small(hand_over));
        let sent = fill(&mut sender);
        let wakes = Arc::new(Wakes::default());
        {
            let mut ready = pin!(sender.ready());
            assert!(poll(ready.as_mut(), &wakes).is_pending());
            all(&mut receiver);
            assert_eq!(wakes.count(), 1);
            assert!(poll(ready.as_mut(), &wakes).is_ready());
        }
        sender.try_send(sent).unwrap();
    }
}

#[test]
fn a_flush_waits_for_room() {
    let (mut sender, mut receiver) = bounded(small(HandOver::Every(4)));
    sender.send(1_000).unwrap();
    let sent = fill(&mut sender.clone());
    let wakes = Arc::new(Wakes::default());
    let mut flushing = pin!(sender.flush_async());
    assert!(poll(flushing.as_mut(), &wakes).is_pending());
    let mut received = all(&mut receiver);
    assert!(matches!(poll(flushing.as_mut(), &wakes), Poll::Ready(Ok(()))));
    received.extend(all(&mut receiver));
    assert_eq!(received, Vec::from_iter((0..sent).chain([1_000])));
}

#[test]
fn tasks_hear_that_the_other_side_is_gone() {
    let (sender, mut receiver) = bounded::<usize>(Options::default());
    let wakes = Arc::new(Wakes::default());
    let mut receiving = pin!(receiver.receive_async());
    assert!(poll(receiving.as_mut(), &wakes).is_pending());
    drop(sender);
    assert_eq!(wakes.count(), 1);
    assert!(matches!(poll(receiving.as_mut(), &wakes), Poll::Ready(Err(Closed))));

    let (mut sender, receiver) = bounded(small(HandOver::Every(3)));
    let sent = fill(&mut sender);
    let mut sending = pin!(sender.send_async(sent));
    assert!(poll(sending.as_mut(), &wakes).is_pending());
    drop(receiver);
    assert_eq!(wakes.count(), 2);
    let Poll::Ready(Err(error)) = poll(sending.as_mut(), &wakes) else {
        panic!("nobody receives")
    };
    assert_eq!(error.unsent.last(), Some(&sent));
}

#[test]
#[cfg_attr(miri, ignore = "tokio's threads are beyond the interpreter's patience")]
fn tasks_and_threads_mix_on_both_sides() {
    const ITEMS: usize = 5_000;
    for hand_over in BOTH {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let (sender, mut receiver) = bounded(small(hand_over));
        let tasks: Vec<_> = (0..3)
            .map(|of| {
                let mut sender = sender.clone();
                runtime.spawn(async move {
                    for item in 0..ITEMS {
                        sender.send_async((of, item)).await.unwrap();
                    }
                })
            })
            .collect();
        let mut last = sender;
        let sending = thread::spawn(move || last.send_all((0..ITEMS).map(|item| (3, item))));
        let receiving = runtime.spawn(async move {
            let mut next = [0; 4];
            while let Ok(batch) = receiver.receive_async().await {
                for (of, item) in batch {
                    assert_eq!(item, next[of]);
                    next[of] += 1;
                }
            }
            next
        });
        sending.join().unwrap().unwrap();
        let next = runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
            receiving.await.unwrap()
        });
        assert_eq!(next, [ITEMS; 4], "{hand_over:?}");
    }
}
