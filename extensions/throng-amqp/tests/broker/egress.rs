//! Events become messages, and none is lost.

use crate::{
    counter::{Command, Counter, CounterEvent},
    kit::{self, SERVER, broker, depth, get, header, look, until},
};
use servers::{RabbitMq, RabbitMqOptions, Stop};
use std::collections::BTreeMap;
use throng::{
    journal::{MemoryJournal, MemoryStore},
    projection::{DurableEvent, ProjectionState},
};
use throng_amqp::{Egress, ExchangeTarget, Message, Outbound, Publisher, PublisherOptions, Topology};

pub(crate) struct HitsOut {
    pub(crate) queue: String,
}

impl Outbound for HitsOut {
    const NAME: &'static str = "hits-out";
    type Of = Counter;
    type Item = Message;

    fn map(&self, seen: &DurableEvent<Counter>) -> Option<Message> {
        let CounterEvent::Hit { by } = seen.event else {
            return None;
        };
        Some(Message {
            body: format!("{} {} {by}", seen.id, seen.seq).into_bytes(),
            // The routing key of a grant is too long for any broker.
            routing_key: if by > 1 { "x".repeat(300) } else { self.queue.clone() },
            ..Message::default()
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_published_despite_broker_kills_copies_share_ids() {
    const EACH: u64 = 400;
    let mut server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let queue = kit::name();
    let outbound = HitsOut { queue: queue.clone() };
    let egress = Egress::new(outbound, ExchangeTarget::new(kit::publisher(&server, &queue)));
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = kit::builder().sink(egress).start(journal, store).await.unwrap();
    let hit = async || {
        for _ in 0..EACH / 4 {
            for counter in ["a", "b"] {
                engine.entity::<Counter>(counter).ask(Command::Hit {}).await.unwrap();
            }
        }
    };
    hit().await;
    server.stop(Stop::Immediate);
    hit().await;
    server.resume().unwrap();
    hit().await;
    server.restart(Stop::Immediate).unwrap();
    hit().await;
    // The offset stored with the engine shows that everything is confirmed.
    until("all is published", async || {
        let progress = &engine.projections()[0];
        progress.lag_commits == 0 && progress.events >= 2 * EACH
    })
    .await;
    let connection = look(&server).await;
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut last = BTreeMap::new();
    while let Some(message) = get(&connection, &queue).await {
        let id = message.properties.message_id().clone().unwrap().to_string();
        let body = String::from_utf8(message.data.clone()).unwrap();
        let (counter, seq) = body.split_once(' ').unwrap();
        let seq: u64 = seq.split(' ').next().unwrap().parse().unwrap();
        if let Some(before) = seen.insert(id, body.clone()) {
            assert_eq!(before, body, "a second copy");
        } else {
            let last = last.entry(counter.to_owned()).or_insert(0);
            assert_eq!(seq, *last + 1, "in order");
            *last = seq;
        }
    }
    assert_eq!(seen.len() as u64, 2 * EACH);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_refused_for_good_goes_to_the_dead_letters() {
    let (queue, dead) = (kit::name(), kit::name());
    let letters = Publisher::start(PublisherOptions {
        topology: Topology::default().with_dead_letters(&dead),
        mandatory: true,
        ..PublisherOptions::new(broker(&SERVER), &*dead)
    });
    let outbound = HitsOut { queue: queue.clone() };
    let target = ExchangeTarget::new(kit::publisher(&SERVER, &queue)).with_dead_letters(letters.unwrap());
    let egress = Egress::new(outbound, target);
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = kit::builder().sink(egress).start(journal, store).await.unwrap();
    for command in [Command::Hit {}, Command::Grant {}, Command::Hit {}] {
        engine.entity::<Counter>("a").ask(command).await.unwrap();
    }
    let connection = look(&SERVER).await;
    until("the others are published", async || {
        depth(&connection, &queue).await == 2
    })
    .await;
    until("it is put aside", async || depth(&connection, &dead).await == 1).await;
    let letter = get(&connection, &dead).await.unwrap();
    assert_eq!(letter.data, b"a 2 1000");
    assert!(header(&letter, "x-throng-reason").is_some());
    assert!(letter.properties.message_id().is_some());
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_refused_for_good_stops_a_sink_without_dead_letters() {
    let queue = kit::name();
    let outbound = HitsOut { queue: queue.clone() };
    let egress = Egress::new(outbound, ExchangeTarget::new(kit::publisher(&SERVER, &queue)));
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = kit::builder().sink(egress).start(journal, store).await.unwrap();
    engine.entity::<Counter>("a").ask(Command::Grant {}).await.unwrap();
    until("it stops at the event", async || {
        matches!(
            &engine.projections()[0].state,
            ProjectionState::Stopped { at: Some(_), .. }
        )
    })
    .await;
    engine.stop().await;
}
