//! Messages become commands, each exactly once.

use crate::{
    counter::{self, Command, Counter, ask},
    kit::{self, SERVER, depth, get, header, hits, hits_of, look, message, until},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use throng_amqp::{FrameOptions, Frames, Message, frame};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_takes_effect_once_and_is_acknowledged() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    let mut published = JoinSet::new();
    for number in 0..2_000_u64 {
        let (publisher, queue) = (publisher.clone(), queue.clone());
        published.spawn(async move {
            let counter = (number % 7).to_string();
            let message = message(&queue, &number.to_string(), ask(&counter, "Hit"));
            publisher.publish(message).await
        });
    }
    published
        .join_all()
        .await
        .into_iter()
        .collect::<Result<(), _>>()
        .unwrap();
    let counters = || (0..7).map(|counter: u64| counter.to_string());
    until("all are counted", async || hits(&engine, counters()).await >= 2_000).await;
    // Messages taken before the stop are acknowledged.
    ingress.stop();
    assert_eq!(depth(&look(&SERVER).await, &queue).await, 0);
    assert_eq!(hits(&engine, counters()).await, 2_000);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_together_travel_in_frames_and_count_each() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    let frames = Frames::start(publisher, queue.clone(), FrameOptions::default());
    let mut published = JoinSet::new();
    for _ in 0..1_000 {
        let frames = frames.clone();
        published.spawn(async move { frames.publish(ask("a", "Hit")).await });
    }
    published
        .join_all()
        .await
        .into_iter()
        .collect::<Result<(), _>>()
        .unwrap();
    let waiting = depth(&look(&SERVER).await, &queue).await;
    assert!((1..500).contains(&waiting), "{waiting} frames for 1,000 messages");
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("all are counted", async || hits_of(&engine, "a").await == 1_000).await;
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_again_under_its_id_takes_effect_once() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    let batch = Message {
        content_type: Some(frame::CONTENT_TYPE.into()),
        ..message(&queue, "batch", frame::encode(&[ask("a", "Hit"), ask("b", "Hit")]))
    };
    for _ in 0..3 {
        publisher
            .publish(message(&queue, "one", ask("a", "Hit")))
            .await
            .unwrap();
        publisher.publish(batch.clone()).await.unwrap();
    }
    publisher
        .publish(message(&queue, "last", ask("last", "Hit")))
        .await
        .unwrap();
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("the last is counted", async || hits_of(&engine, "last").await == 1).await;
    assert_eq!(hits_of(&engine, "a").await, 2);
    assert_eq!(hits_of(&engine, "b").await, 1);
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untakable_messages_are_dead_letters_and_hold_up_no_other() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    engine.entity::<Counter>("a").ask(Command::Hit {}).await.unwrap();
    let publisher = kit::publisher(&SERVER, &queue);
    let batch = Message {
        content_type: Some(frame::CONTENT_TYPE.into()),
        ..message(
            &queue,
            "batch",
            frame::encode(&[ask("a", "Hit"), ask("a", "Refuse"), ask("b", "Hit")]),
        )
    };
    let broken = Message {
        content_type: Some(frame::CONTENT_TYPE.into()),
        ..message(&queue, "broken", b"[1,".to_vec())
    };
    let sent = [
        message(&queue, "unreadable", b"{".to_vec()),
        message(&queue, "refused", ask("a", "Refuse")),
        message(&queue, "panics", ask("a", "Panic")),
        message(&queue, "crashed", ask("a", "Crash")),
        message(&queue, "unknown command", ask("a", "Fly")),
        message(&queue, "unknown kind", ask("a", "Nothing")),
        message(&queue, "no id", ask("", "Hit")),
        batch,
        broken,
        message(&queue, "good", ask("good", "Hit")),
    ];
    for message in sent {
        publisher.publish(message).await.unwrap();
    }
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("the last is counted", async || hits_of(&engine, "good").await == 1).await;
    let (connection, dead) = (look(&SERVER).await, format!("{queue}-dead"));
    until("all are put aside", async || depth(&connection, &dead).await == 9).await;
    let mut reasons = BTreeMap::new();
    let mut refused = None;
    while let Some(letter) = get(&connection, &dead).await {
        let id = letter.properties.message_id().clone().unwrap().to_string();
        assert_eq!(header(&letter, "x-throng-queue").as_ref(), Some(&queue));
        refused = refused.or_else(|| header(&letter, "x-throng-refused"));
        reasons.insert(id, header(&letter, "x-throng-reason").unwrap());
    }
    let says = |id: &str, part: &str| assert!(reasons[id].contains(part), "{id}: {}", reasons[id]);
    says("unreadable", "cannot be read");
    says("refused", "does not like that");
    says("panics", "panicked");
    says("crashed", "fell over");
    says("unknown command", "Fly");
    says("unknown kind", "no kind \"nothing\"");
    says("no id", "id is empty");
    says("batch", "does not like that");
    says("broken", "no JSON array");
    assert_eq!(refused.as_deref(), Some("1"), "of the frame");
    assert_eq!(
        hits(&engine, ["a", "b"].into_iter().map(str::to_owned)).await,
        3,
        "the rest of the frame counts"
    );
    ingress.stop();
    assert_eq!(depth(&connection, &queue).await, 0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_command_runs_only_where_the_intake_says_so() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    for (id, command) in [("stolen", "Grant"), ("own", "private Grant"), ("none", "Fly")] {
        publisher.publish(message(&queue, id, ask(id, command))).await.unwrap();
    }
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("the service's own takes effect", async || {
        hits_of(&engine, "own").await == 1_000
    })
    .await;
    let (connection, dead) = (look(&SERVER).await, format!("{queue}-dead"));
    until("the others are dead", async || depth(&connection, &dead).await == 2).await;
    assert_eq!(hits_of(&engine, "stolen").await, 0);
    while let Some(letter) = get(&connection, &dead).await {
        let reason = header(&letter, "x-throng-reason").unwrap();
        assert!(
            reason.contains("no public command") && reason.contains("Hit, Begin, Close, Refuse, Crash"),
            "{reason}"
        );
    }
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_part_of_a_frame_is_dead_alone() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    let parts = [ask("a", "Hit"), b"{}".to_vec(), ask("b", "Hit")];
    let batch = Message {
        content_type: Some("application/vnd.throng.batch+json; charset=utf-8".into()),
        ..message(&queue, "batch", frame::encode(&parts))
    };
    publisher.publish(batch).await.unwrap();
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    let (connection, dead) = (look(&SERVER).await, format!("{queue}-dead"));
    until("it is put aside", async || depth(&connection, &dead).await == 1).await;
    let letter = get(&connection, &dead).await.unwrap();
    assert_eq!(header(&letter, "x-throng-refused").as_deref(), Some("1"));
    let reason = header(&letter, "x-throng-reason").unwrap();
    assert!(reason.contains("cannot be read"), "{reason}");
    for counter in ["a", "b"] {
        assert_eq!(hits_of(&engine, counter).await, 1, "{counter}");
    }
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frame_under_the_longest_id_takes_effect_once() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    for id in ["x".repeat(255), "x".repeat(255), format!("{}y", "x".repeat(254))] {
        let batch = Message {
            content_type: Some(frame::CONTENT_TYPE.into()),
            ..message(&queue, &id, frame::encode(&[ask("a", "Hit"), ask("b", "Hit")]))
        };
        publisher.publish(batch).await.unwrap();
    }
    publisher
        .publish(message(&queue, "last", ask("last", "Hit")))
        .await
        .unwrap();
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("the last is counted", async || hits_of(&engine, "last").await == 1).await;
    for counter in ["a", "b"] {
        assert_eq!(hits_of(&engine, counter).await, 2, "{counter}");
    }
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_of_a_message_are_read_as_they_were_published() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    let sent = Message {
        content_type: Some("application/json".into()),
        content_encoding: Some("gzip".into()),
        message_type: Some("Hit".into()),
        correlation_id: Some("request 7".into()),
        reply_to: Some("answers".into()),
        headers: vec![("tenant".into(), "acme".into())],
        ..message(&queue, "1", ask("a", "Hit"))
    };
    publisher.publish(sent.clone()).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let read = {
        let seen = seen.clone();
        move |message: &Message| {
            seen.lock().unwrap().push(message.clone());
            counter::read(message)
        }
    };
    let options = kit::ingress_options(kit::broker(&SERVER), &queue);
    let ingress = kit::start(&engine, options, read).unwrap();
    until("it is counted", async || hits_of(&engine, "a").await == 1).await;
    ingress.stop();
    engine.stop().await;
    assert_eq!(*seen.lock().unwrap(), [sent]);
}
