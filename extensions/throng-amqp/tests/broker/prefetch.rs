//! The prefetch, in messages and in bytes.

use crate::{
    counter::{self, ask},
    kit::{self, SERVER, broker, depth, hits, look, message, until},
};
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};
use throng_amqp::{Ingress, IngressOptions, Message, Metrics, QueueOptions, QueueSource};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefetch_is_bounded_by_the_bytes_of_messages() {
    const MESSAGES: u32 = 100;
    const BODY: usize = 64 << 10;
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = kit::publisher(&SERVER, &queue);
    for number in 0..MESSAGES {
        let mut body = ask("a", "Hit");
        body.resize(BODY, b' ');
        publisher
            .publish(message(&queue, &number.to_string(), body))
            .await
            .unwrap();
    }
    let metrics = Metrics::default();
    engine.metrics().register(|registry| metrics.register(registry));
    let options = QueueOptions {
        metrics,
        ..kit::ingress_options(broker(&SERVER), &queue)
    };
    // The second message is held until the test has checked.
    let (count, (release, held)) = (AtomicUsize::new(0), mpsc::channel::<()>());
    let held = Mutex::new(held);
    let read = move |message: &Message| {
        if count.fetch_add(1, Ordering::AcqRel) == 1 {
            let _ = held.lock().unwrap().recv();
        }
        counter::read(message)
    };
    let limits = IngressOptions {
        bytes_max: Some(9 * BODY),
        ..IngressOptions::default()
    };
    let ingress = Ingress::start(&engine, QueueSource::new(options), limits, read).unwrap();
    // If the test fails, this lets the consumer end.
    let release = release;
    let prefetch = format!("amqp_prefetch{{queue=\"{queue}\"}} 8\n");
    until("the prefetch follows from the first message", async || {
        let mut text = String::new();
        engine.metrics().encode(&mut text).unwrap();
        text.contains(&prefetch)
    })
    .await;
    let connection = look(&SERVER).await;
    until("so many are out", async || {
        depth(&connection, &queue).await <= MESSAGES - 9
    })
    .await;
    assert_eq!(depth(&connection, &queue).await, MESSAGES - 9, "the first, and eight");
    drop(release);
    until("all are counted", async || {
        hits(&engine, ["a".to_owned()].into_iter()).await == u64::from(MESSAGES)
    })
    .await;
    ingress.stop();
    assert_eq!(engine.driver().budget().held(), 0, "nothing is held any more");
    engine.stop().await;
}
