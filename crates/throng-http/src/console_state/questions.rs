//! Long requests of administration. A thread of its own answers each, so that no other caller waits for it.

use crate::{
    places::Places,
    problem::{Answered, Problem},
};
use bytes::Bytes;
use serde_json::Value;
use std::{sync::Arc, thread, time::Duration};
use tokio::{
    runtime,
    sync::{Semaphore, oneshot},
};

/// Questions that are answered at once.
const AT_ONCE: usize = 2;
/// Questions that are answered or wait.
const PLACES: usize = 32;
/// The pause suggested to an operator whose request found no place.
const RETRY: Duration = Duration::from_secs(1);

/// The places for long requests, one set for each gateway.
pub(crate) struct Questions {
    places: Places,
    turns: Arc<Semaphore>,
}

impl Default for Questions {
    fn default() -> Self {
        Self {
            places: Places::new(PLACES),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

fn overloaded() -> Box<Problem> {
    let detail = format!("{PLACES} long questions of administration are on their way already. Ask again later.");
    Problem::overloaded(detail, RETRY).boxed()
}

impl Questions {
    /// Answers a request on another thread. If the client leaves, the thread continues, and keeps its place until its end.
    pub(crate) async fn ask<S: Send + Sync + 'static>(
        &self,
        shared: &Arc<S>,
        question: impl AsyncFnOnce(&S) -> Answered<Value> + Send + 'static,
    ) -> Answered<Bytes> {
        let place = self.places.take().ok_or_else(overloaded)?;
        let turn = self.turns.clone().acquire_owned().await;
        let (tell, told) = oneshot::channel();
        let shared = shared.clone();
        let answer = move || {
            let _places = (place, turn);
            let runtime = runtime::Builder::new_current_thread().enable_time().build();
            let answered = match runtime {
                Ok(runtime) => runtime.block_on(question(&shared)),
                Err(_) => Err(overloaded()),
            };
            // The client may have left.
            drop(tell.send(answered.map(|value| value.to_string().into())));
        };
        let started = thread::Builder::new().name("throng-http-question".into()).spawn(answer);
        started.map_err(|_| overloaded())?;
        let crashed = |_| Problem::crashed("the question panicked").boxed();
        told.await.map_err(crashed)?
    }
}
