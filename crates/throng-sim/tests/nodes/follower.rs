//! A client that follows all counters, at one node after another, and resumes with its last cursor.

use crate::{Clients, ERASED, PAUSE, in_time};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use throng::{Cursor, Follow};

/// The longest stay at one node without an event.
const SILENCE: Duration = Duration::from_millis(700);

/// The events that a follower received.
#[derive(Default)]
pub(crate) struct Followed {
    /// The number of each counter's last event.
    pub(crate) told: Mutex<BTreeMap<String, u64>>,
}

/// The result of following for a while.
struct Positions {
    events: Vec<(String, u64)>,
    /// The cursor after them.
    place: Option<String>,
    /// The reason that there are no more.
    why: Option<String>,
}

impl Followed {
    pub(crate) async fn follow(self: Arc<Self>, clients: Arc<Clients>) {
        let mut place: Option<String> = None;
        while !clients.is_told.load(Ordering::Relaxed) {
            let node = clients.any_node().await;
            let (pages, from) = (1 + clients.sim.below(4), place.clone());
            let limit = usize::try_from(1 + clients.sim.below(9)).unwrap_or(1);
            let sim = clients.sim.clone();
            let called = clients.nodes.call(node, move |engine| async move {
                let begin = async {
                    let from = match &from {
                        None => engine.place(true).await?,
                        Some(from) => from.parse::<Cursor>().unwrap_or_default(),
                    };
                    engine.follow(Follow::Kind { kind: 0, from }).await
                };
                let mut follower = match begin.await {
                    Ok(follower) => follower,
                    Err(error) => return told(Vec::new(), None, Some(error.to_string())),
                };
                let mut events = Vec::new();
                for _ in 0..pages {
                    match in_time(&sim, SILENCE, follower.next(limit)).await {
                        Some(Ok(page)) => {
                            events.extend(page.iter().map(|event| (event.id.to_string(), event.event.seq)));
                        }
                        None => break,
                        Some(Err(error)) => {
                            let place = follower.place().to_string();
                            return told(events, Some(place), Some(error.to_string()));
                        }
                    }
                }
                told(events, Some(follower.place().to_string()), None)
            });
            let called = in_time(&clients.sim, Duration::from_secs(5), called).await;
            let Some(Ok(now)) = called else {
                clients.sim.sleep(PAUSE).await;
                continue;
            };
            self.note(&clients, node, &now);
            place = now.place.or(place);
            if now.why.is_some() {
                clients.sim.sleep(PAUSE).await;
            }
        }
    }

    /// Checks that each event follows the previous one of its counter.
    fn note(&self, clients: &Clients, node: usize, now: &Positions) {
        let mut told = self.told.lock().unwrap();
        let is_erased = |counter: &str| counter.parse::<u64>().is_ok_and(|counter| counter >= ERASED);
        for (counter, seq) in now.events.iter().filter(|(counter, _)| !is_erased(counter)) {
            let last = told.entry(counter.clone()).or_default();
            if *seq != *last + 1 {
                clients.sim.wrong(format!(
                    "the follower was told event {seq} of counter {counter} after {last}, by node {node}"
                ));
            }
            *last = *seq;
        }
        if let Some(why) = &now.why {
            clients.sim.note(format_args!("the follower at node {node}: {why}"));
            if why.contains("has no place") {
                clients
                    .sim
                    .wrong(format!("the follower's place was refused by node {node}: {why}"));
            }
        }
    }
}

fn told(events: Vec<(String, u64)>, place: Option<String>, why: Option<String>) -> Positions {
    Positions { events, place, why }
}
