//! A person who lists dead messages, and retries or drops them. Sometimes two persons handle the same message.

use std::time::Duration;
use throng::{DeadMessage, Engine, OperatorDecision, Retried, model::Error};
use throng_sim::Sim;

/// Handles dead messages repeatedly, for a while.
pub(crate) async fn work(sim: Sim, times: usize) {
    for _ in 0..times {
        sim.sleep(Duration::from_micros(sim.below(200_000))).await;
        let (sim_in, page) = (sim.clone(), 1 + sim.below(3) as usize);
        sim.call(move |engine| look(sim_in, engine, page, 0.5)).await.ok();
    }
}

/// Retries every message that is dead now.
pub(crate) async fn clear(sim: &Sim) {
    let sim_in = sim.clone();
    sim.call(move |engine| look(sim_in, engine, 2, 1.0)).await.ok();
}

async fn look(sim: Sim, engine: Engine, page: usize, share: f64) {
    let mut after: Option<String> = None;
    let mut before: Option<DeadMessage> = None;
    loop {
        let Ok(found) = engine.dead_messages(None, after.as_deref(), page).await else {
            return;
        };
        for message in found.messages {
            if before.replace(message.clone()) == Some(message.clone()) {
                sim.wrong(format!("a page shows {message:?} again"));
            }
            sim.count("dead message listed");
            if sim.chance(share) {
                retry(&sim, &engine, &message).await;
            }
        }
        let Some(next) = found.next else { return };
        if after.as_ref() == Some(&next) {
            sim.wrong("a page of dead messages leads to itself".into());
            return;
        }
        after = Some(next);
    }
}

async fn retry(sim: &Sim, engine: &Engine, message: &DeadMessage) {
    let to = &message.receiver;
    if sim.chance(0.1) {
        match engine.retry_all_dead(&to.kind, &to.id, None).await {
            Ok((retried, _)) => {
                sim.count("all dead messages of one retried");
                retried.iter().for_each(|(_, retried)| came_of(sim, retried));
            }
            Err(error) => told(sim, &error),
        }
        return;
    }
    if sim.chance(0.1) {
        let by = OperatorDecision::new("janitor", "it is in the way");
        match engine.drop_dead(&to.kind, &to.id, message.number, by).await {
            Ok(()) => sim.count("dead message dropped"),
            Err(error) => told(sim, &error),
        }
        return;
    }
    if sim.chance(0.3) {
        let (sim_in, engine, message) = (sim.clone(), engine.clone(), message.clone());
        let twin = sim.spawn(async move {
            let to = &message.receiver;
            match engine.retry_dead(&to.kind, &to.id, message.number).await {
                Ok(retried) => came_of(&sim_in, &retried),
                Err(error) => told(&sim_in, &error),
            }
        });
        drop(twin);
    }
    match engine.retry_dead(&to.kind, &to.id, message.number).await {
        Ok(retried) => came_of(sim, &retried),
        Err(error) => told(sim, &error),
    }
}

fn came_of(sim: &Sim, retried: &Retried) {
    sim.count(match retried {
        Retried::Done => "dead message retried: done",
        Retried::Refused(_) => "dead message retried: refused",
        Retried::Dead(_) => "dead message retried: dead again",
    });
}

fn told<R>(sim: &Sim, error: &Error<R>) {
    match error {
        Error::Unknown { .. } => sim.count("retry of a message that is not dead"),
        Error::Malformed(why) => sim.wrong(format!("a retry is told: {why}")),
        _ => {}
    }
}
