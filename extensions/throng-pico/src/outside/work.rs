//! The worker for waiting events. It answers events that arrived by message or by timer, since no client repeats those.

use super::{Picos, places::Places};
use crate::{
    ask::Ask,
    pico::{Answers, Pico, PicoCommand, WAITING, WaitsFor},
    rulesets,
};
use std::{future::Future, thread};
use throng::model::Error;
use tokio::{sync::oneshot, task::LocalSet};

/// The most events answered at a time. No pico takes more than half of these places.
const AT_ONCE: usize = 256;
/// The most events that wait for a place. Half of it is more than one pico can have waiting. Beyond it, an event is retried after a minute.
const WAITING_MAX: usize = 2_048;

impl Picos {
    /// Starts the worker. Call the returned function to stop it.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub fn work(&self) -> std::io::Result<Box<dyn FnOnce() + Send>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let picos = self.clone();
        // Subscribed before returning, so that no event is published without a subscriber.
        let topic = self.engine().topic(&WAITING).map_err(std::io::Error::other)?;
        let run = move || {
            let local = LocalSet::new();
            let taken_over = picos.engine().taken_over();
            local.block_on(&runtime, async {
                tokio::select! {
                    _ = ended => {}
                    () = serve(&picos, topic) => {}
                    () = forget(&picos, taken_over) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("throng-picos".into()).spawn(run)?;
        Ok(Box::new(move || {
            let _ = end.send(());
            let _ = thread.join();
        }))
    }
}

/// Answers waiting events until the engine ends.
async fn serve(picos: &Picos, topic: throng::services::bus::Topic<WaitsFor>) {
    let mut waiting = topic.subscribe();
    if let Err(error) = picos.root().await {
        tracing::warn!("the root pico cannot be made or read: {error}");
    }
    let places = Places::new(AT_ONCE, WAITING_MAX);
    while let Some(heard) = waiting.next().await {
        // A lost event is retried after a minute.
        let throng::services::bus::Heard::Event(waits) = heard else {
            continue;
        };
        let given = match places.enter(Some(waits.pico)) {
            Ok(given) => given,
            Err(full) => {
                tracing::debug!("pico {} is asked again later: {full}", waits.pico);
                continue;
            }
        };
        let picos = picos.clone();
        tokio::task::spawn_local(async move {
            let Ok(_place) = given.await else { return };
            resume(&picos, waits).await;
        });
    }
}

async fn resume(picos: &Picos, waits: WaitsFor) {
    let WaitsFor {
        pico,
        number,
        ask,
        answers,
    } = waits;
    let Answers { time_ms, seed, given } = answers;
    let answered = picos.answer(pico, &ask, 0).await;
    let given = given.into_iter().chain([(Ask::clone(&ask), answered)]).collect();
    let answers = Answers { time_ms, seed, given };
    let command = PicoCommand::Resume {
        waiting: number,
        answers,
    };
    match picos.engine().entity::<Pico>(pico).ask(command).await {
        Ok(_) | Err(Error::Ended { .. }) => {}
        Err(error) => tracing::debug!("pico {pico} is asked again later: {error}"),
    }
}

/// Drops the cached programs if another engine had the journal meanwhile, because they may be old.
async fn forget(picos: &Picos, taken_over: impl Future<Output = bool>) {
    if taken_over.await
        && let Ok(root) = picos.root().await
    {
        rulesets::forget(root.realm);
    }
    std::future::pending::<()>().await;
}
