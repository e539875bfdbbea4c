//! A command takes effect once, whichever way a gateway asks.

use crate::{Command, ask, player::PASSES, quiet_options, service};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use throng::Engine;
use throng_core::tagged;

/// Asks as a gateway does: immediately if possible, otherwise with a wait.
async fn ask_as_a_gateway_does(engine: Engine, id: &str, command: &Command) -> u64 {
    let mut body = Vec::new();
    let name = tagged::to_parts(command, &mut body).unwrap();
    let driver = engine.driver();
    let answer = driver.answer(driver.command(0, id, name, body).unwrap()).await;
    serde_json::from_slice(&answer.unwrap()).unwrap()
}

#[test]
fn a_forwarded_command_publishes_once() {
    service(0).options(quiet_options()).run(|sim| async move {
        for id in ["passer", "receiver"] {
            ask(&sim, id, Command::Hit).await.unwrap();
        }
        let published = Arc::new(AtomicUsize::new(0));
        let heard = published.clone();
        let hits = sim.call(move |engine| async move {
            let topic = engine.topic(&PASSES).unwrap();
            let mut passes = topic.subscribe();
            let to = "receiver".to_owned();
            let hits = ask_as_a_gateway_does(engine, "passer", &Command::Pass { to }).await;
            while passes.try_next().is_some() {
                heard.fetch_add(1, Ordering::Relaxed);
            }
            hits
        });
        assert_eq!(hits.await.unwrap(), 2);
        assert_eq!(published.load(Ordering::Relaxed), 1);
    });
}
