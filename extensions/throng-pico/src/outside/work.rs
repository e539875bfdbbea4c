//! Answers events that wait in their picos: those that came by message or by timer, where nobody asks again.

use super::{Picos, places::Places};
use crate::{
    ask::Ask,
    pico::{Answers, Pico, PicoCommand, WAITING, WaitsFor},
    rulesets,
};
use std::{future::Future, thread};
use throng::model::Error;
use tokio::{sync::oneshot, task::LocalSet};

/// Events that are answered at a time; no pico takes more than half of these places.
const AT_ONCE: usize = 256;
/// Events that wait for a place. Half of it is room for more than one pico lets wait. Beyond it an event is looked at again after a minute.
const WAITING_MAX: usize = 2_048;

impl Picos {
    /// Begins to answer events that wait. What it gives back ends that.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn work(&self) -> std::io::Result<Box<dyn FnOnce() + Send>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let picos = self.clone();
        // Before it returns, so that nothing is published to nobody.
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

/// Answers until the engine has gone.
async fn serve(picos: &Picos, topic: throng::services::bus::Topic<WaitsFor>) {
    let mut waiting = topic.subscribe();
    if let Err(error) = picos.root().await {
        tracing::warn!("the root pico cannot be made or read: {error}");
    }
    let places = Places::new(AT_ONCE, WAITING_MAX);
    while let Some(heard) = waiting.next().await {
        // What was lost is looked at again after a minute.
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

/// Forgets the programs after another engine had the journal: they may be old.
async fn forget(picos: &Picos, taken_over: impl Future<Output = bool>) {
    if taken_over.await
        && let Ok(root) = picos.root().await
    {
        rulesets::forget(root.realm);
    }
    std::future::pending::<()>().await;
}
