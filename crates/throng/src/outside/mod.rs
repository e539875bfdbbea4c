//! Calls of providers outside: a pool of attempts for each worker, beside the engine.

mod admission;
mod pool;
mod traced;
mod worker;

pub use worker::{Answering, MakesCalls};
pub(crate) use worker::{Link, Owned};

use crate::context::Context;
use pool::Pool;
use std::{sync::Arc, time::Duration};
use throng_core::model::Outside;
use worker::AnyPool;

/// A worker that was given to a builder.
pub(crate) struct GivenWorker {
    pub(crate) name: &'static str,
    start: Box<StartPool>,
}

type StartPool = dyn FnOnce(&Context) -> Arc<dyn AnyPool> + Send;

impl GivenWorker {
    pub(crate) fn of<W: Outside>(worker: Arc<dyn MakesCalls<W>>) -> Self {
        Self {
            name: W::NAME,
            start: Box::new(|context| Pool::start(worker, context)),
        }
    }
}

/// The pools of an engine.
pub(crate) struct Pools(Vec<Arc<dyn AnyPool>>);

impl Pools {
    /// Has the pools hear of calls from now on; before [`begin`](Self::begin) they only wait.
    pub(crate) fn start(workers: impl Iterator<Item = GivenWorker>, context: &Context) -> Self {
        Self(workers.map(|worker| (worker.start)(context)).collect())
    }

    /// Begins attempts; each pool asks its own calls, in the order the workers were given.
    pub(crate) fn begin(&self, links: impl Iterator<Item = Link>) {
        for (pool, link) in self.0.iter().zip(links) {
            pool.clone().begin(link);
        }
    }

    /// Begins no further attempt, and waits for those under way until a time of the engine's clock.
    pub(crate) async fn stop(&self, context: &Context) {
        let host = &context.host;
        self.0.iter().for_each(|pool| pool.close());
        let until = context.until(Some(context.options.drain));
        while self.0.iter().any(|pool| pool.under_way() > 0) && host.elapsed_micros() < until {
            host.sleep(Duration::from_millis(2)).await;
        }
    }
}
