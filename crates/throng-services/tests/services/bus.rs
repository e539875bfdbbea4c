//! The bus: the receivers of each message, and the reports of losses.

use std::{
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};
use throng_services::{
    Context, Service,
    bus::{Bus, Heard},
    service,
};

const LONG: Duration = Duration::from_mins(2);

#[test]
fn subscribers_hear_every_event_and_a_group_hears_each_once() {
    let bus = Bus::new();
    let topic = bus.topic_with::<u32>("numbers", 10_000).unwrap();
    let (mut first, mut second) = (topic.subscribe(), topic.subscribe());
    let members: Vec<_> = (0..3).map(|_| topic.join("workers")).collect();
    let taking: Vec<_> = members
        .into_iter()
        .map(|mut member| {
            thread::spawn(move || {
                let mut taken = Vec::new();
                loop {
                    match member.next_within(LONG) {
                        Some(Heard::Event(0)) => return taken,
                        Some(Heard::Event(n)) => taken.push(n),
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for n in 1..=5_000 {
        bus.topic::<u32>("numbers").unwrap().publish(n);
    }
    (0..3).for_each(|_| topic.publish(0));
    let mut taken: Vec<u32> = taking.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, (1..=5_000).collect::<Vec<_>>());
    for n in (1..=5_000).chain([0; 3]) {
        assert_eq!(first.try_next(), Some(Heard::Event(n)));
        assert_eq!(second.next_blocking(), Some(Heard::Event(n)));
    }
    assert_eq!(first.try_next(), None);
}

#[test]
fn a_slow_subscriber_is_told_how_much_was_lost() {
    let topic = Bus::new().topic_with::<u32>("numbers", 4).unwrap();
    let (mut slow, mut group) = (topic.subscribe(), topic.join("slow"));
    (0..20).for_each(|n| topic.publish(n));
    let mut heard = std::iter::from_fn(|| slow.try_next());
    let Some(Heard::Lost(lost)) = heard.next() else {
        panic!("nothing was said to be lost");
    };
    let left: Vec<_> = heard.collect();
    assert_eq!(lost as usize + left.len(), 20);
    assert_eq!(left.last(), Some(&Heard::Event(19)), "a subscriber loses the oldest");
    let Some(Heard::Lost(lost)) = group.try_next() else {
        panic!("nothing was said to be lost");
    };
    let left: Vec<_> = std::iter::from_fn(|| group.try_next()).collect();
    assert_eq!(lost as usize + left.len(), 20);
    assert_eq!(left.first(), Some(&Heard::Event(0)), "a group loses the newest");
}

#[test]
fn a_topic_has_one_type() {
    let bus = Bus::new();
    bus.topic::<u32>("numbers").unwrap();
    let error = bus.topic::<String>("numbers").unwrap_err();
    assert!(error.to_string().contains("numbers"), "{error}");
}

#[test]
fn a_group_without_members_keeps_nothing() {
    let topic = Bus::new().topic::<u32>("numbers").unwrap();
    let first = topic.join("group");
    topic.publish(1);
    drop(first);
    topic.publish(2);
    let mut again = topic.join("group");
    topic.publish(3);
    assert_eq!(again.try_next(), Some(Heard::Event(3)));
    assert_eq!(again.try_next(), None);
}

#[test]
fn events_one_member_did_not_take_go_to_the_others() {
    let topic = Bus::new().topic::<u32>("numbers").unwrap();
    let (mut one, mut other) = (topic.join("group"), topic.join("group"));
    (1..=3).for_each(|n| topic.publish(n));
    assert_eq!(one.try_next(), Some(Heard::Event(1)));
    drop(one);
    assert_eq!(
        [other.try_next(), other.try_next()],
        [2, 3].map(|n| Some(Heard::Event(n)))
    );
}

#[test]
fn a_remote_bus_is_not_sent_its_own_events() {
    let (here, there) = (Bus::new(), Bus::new());
    let (local, remote) = (here.topic::<u32>("n").unwrap(), there.topic::<u32>("n").unwrap());
    let (mut to_there, mut to_here) = (local.subscribe_but("there"), remote.subscribe_but("here"));
    let mut heard_here = local.subscribe();
    local.publish(1);
    remote.publish(2);
    // The second round of forwarding has nothing to do.
    for round in 0..2 {
        let mut forwarded = 0;
        while let Some(Heard::Event(n)) = to_there.try_next() {
            remote.remote("here").publish(n);
            forwarded += 1;
        }
        while let Some(Heard::Event(n)) = to_here.try_next() {
            local.remote("there").publish(n);
            forwarded += 1;
        }
        assert_eq!(forwarded, if round == 0 { 2 } else { 0 });
    }
    assert_eq!(
        [heard_here.try_next(), heard_here.try_next()],
        [1, 2].map(|n| Some(Heard::Event(n)))
    );
}

struct Listener(Sender<(thread::ThreadId, u32)>);

impl Service for Listener {
    type Message = Heard<u32>;
    fn receive(&mut self, heard: Heard<u32>, _: &mut Context<Heard<u32>>) {
        if let Heard::Event(n) = heard {
            self.0.send((thread::current().id(), n)).unwrap();
        }
    }
}

#[test]
fn a_service_gets_events_as_messages_on_its_own_thread() {
    let topic = Bus::new().topic::<u32>("numbers").unwrap();
    let (heard, hears) = mpsc::channel();
    let running = service("listener", move || Listener(heard.clone())).start().unwrap();
    topic.deliver(running.address(), |heard| heard).unwrap();
    (0..100).for_each(|n| topic.publish(n));
    let heard: Vec<_> = (0..100).map(|_| hears.recv_timeout(LONG).unwrap()).collect();
    assert!(heard.iter().map(|(_, n)| *n).eq(0..100));
    assert!(heard.iter().all(|(thread, _)| *thread == heard[0].0));
    running.stop();
}

#[test]
fn tasks_wait_for_events() {
    let topic = Bus::new().topic::<u32>("numbers").unwrap();
    let (mut subscription, mut member) = (topic.subscribe(), topic.join("group"));
    let publishing = thread::spawn(move || topic.publish(7));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert_eq!(subscription.next().await, Some(Heard::Event(7)));
        assert_eq!(member.next().await, Some(Heard::Event(7)));
        publishing.join().unwrap();
        assert_eq!(subscription.next().await, None, "the topic has gone");
        assert_eq!(member.next().await, None, "the topic has gone");
    });
}
