//! Pools: each message goes to exactly one worker, the right one.

use proptest::prelude::*;
use std::{collections::BTreeMap, thread, time::Duration};
use throng_services::{Context, PoolSetup, Reply, Service, coordinate::wait_all, key_of, pool};

const LONG: Duration = Duration::from_mins(2);

#[derive(Default)]
struct Worker {
    number: usize,
    seen: BTreeMap<u64, Vec<u64>>,
}

enum Message {
    Take(u64, u64),
    Who(u64, Reply<usize>),
    Seen(Reply<BTreeMap<u64, Vec<u64>>>),
}

impl Service for Worker {
    type Message = Message;
    fn receive(&mut self, message: Message, _: &mut Context<Message>) {
        match message {
            Message::Take(key, n) => self.seen.entry(key).or_default().push(n),
            Message::Who(_, reply) => reply.send(self.number),
            Message::Seen(reply) => reply.send(self.seen.clone()),
        }
    }
}

fn workers() -> PoolSetup<Worker> {
    pool("worker", |number| Worker {
        number,
        ..Worker::default()
    })
}

fn sharded() -> PoolSetup<Worker> {
    workers().shard_by(|message: &Message| match message {
        Message::Take(key, _) | Message::Who(key, _) => key_of(key),
        Message::Seen(_) => 0,
    })
}

#[test]
fn round_robin_gives_every_worker_its_part() {
    let running = workers().workers(3).start().unwrap();
    let mut address = running.address();
    for n in 0..300 {
        address.send(Message::Take(0, n)).unwrap();
    }
    let who: Vec<_> = (0..3)
        .map(|key| address.ask(|reply| Message::Who(key, reply)))
        .collect();
    let mut who: Vec<usize> = wait_all(who, LONG).into_iter().map(Result::unwrap).collect();
    who.sort_unstable();
    assert_eq!(who, [0, 1, 2]);
    let received: Vec<u64> = running.stop().iter().map(|counts| counts.received).collect();
    assert_eq!(received, [101; 3]);
}

#[test]
fn where_nobody_says_there_is_a_worker_a_core() {
    let running = workers().start().unwrap();
    assert_eq!(running.workers().len(), thread::available_parallelism().unwrap().get());
    running.stop();
}

#[test]
fn in_place_the_workers_of_a_pool_run_on_the_threads_that_send() {
    let running = sharded().workers(4).in_place().start().unwrap();
    let senders: Vec<_> = (0..2)
        .map(|sender| {
            let mut address = running.address();
            thread::spawn(move || {
                for n in 0..1_000 {
                    address.send(Message::Take(n % 10 + sender * 10, n)).unwrap();
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let seen = wait_all(running.address().ask_all(Message::Seen), Duration::ZERO);
    let seen: BTreeMap<u64, Vec<u64>> = seen.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(seen.len(), 20);
    assert!(seen.values().all(|of| of.len() == 100 && of.is_sorted()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn messages_of_one_key_reach_one_worker_in_order(
        keys in prop::collection::vec(0..50_u64, 0..500), count in 1..6_usize
    ) {
        let running = sharded().workers(count).start().unwrap();
        let mut expected = BTreeMap::<u64, Vec<u64>>::new();
        let (mut one, mut other) = (running.address(), running.address());
        for (n, key) in (0..).zip(&keys) {
            // A key has one sender, so its order is defined.
            let address = if key % 2 == 0 { &mut one } else { &mut other };
            address.send(Message::Take(*key, n)).unwrap();
            expected.entry(*key).or_default().push(n);
        }
        drop((one, other));
        let mut seen = BTreeMap::new();
        let asked = running.address().ask_all(Message::Seen);
        // The last message has another sender, so only the stop ensures that everything was received.
        drop(wait_all(asked, LONG));
        let mut address = running.address();
        while seen.values().map(Vec::len).sum::<usize>() < keys.len() {
            seen.clear();
            for of in wait_all(address.ask_all(Message::Seen), LONG) {
                for (key, values) in of.unwrap() {
                    prop_assert!(seen.insert(key, values).is_none(), "two workers have the key {}", key);
                }
            }
        }
        prop_assert_eq!(seen, expected);
    }
}
