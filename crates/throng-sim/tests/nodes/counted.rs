//! A read model of all counters, on any node.

use crate::{ERASED, counter::Counter};
use std::{future::Future, task::Poll};
use throng::{
    journal::{Applied, Error, Later, MemoryViews, ViewBatch, ViewOffset, ViewRange, ViewRow, Views},
    projection::{DurableEvent, Interrupt, Projection, Rows},
};

/// The number of each counter's events. Missing, repeated and early events are refused.
pub(crate) struct Counted;

impl Projection for Counted {
    const NAME: &'static str = "counted";
    type Of = Counter;
    fn apply(&self, seen: &DurableEvent<Counter>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        // Erased events may be gone before they are read.
        if seen.id >= ERASED {
            return Ok(());
        }
        let key = seen.id.to_string();
        let events = rows.json::<u64>(&key)?.unwrap_or_default();
        if seen.seq != events + 1 {
            return Err(Interrupt::poison(format!("event {} follows {events}", seen.seq)));
        }
        rows.put_json(&key, &seen.seq)
    }
}

/// Rows that outlive the nodes. Before and after each answer other tasks run, even another runner of the same projection.
#[derive(Clone, Default)]
pub(crate) struct SharedViews(pub(crate) MemoryViews);

fn slowly<'a, T: Send + 'a>(answer: impl Future<Output = T> + Send + 'a) -> Later<'a, T> {
    Box::pin(async move {
        others_run().await;
        let answer = answer.await;
        others_run().await;
        answer
    })
}

async fn others_run() {
    let mut polls = 3;
    std::future::poll_fn(move |context| {
        polls -= 1;
        if polls == 0 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Views for SharedViews {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        let view = view.to_owned();
        slowly(async move { self.0.offset(&view).await })
    }
    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        let view = view.to_owned();
        slowly(async move { self.0.apply(&view, batch).await })
    }
    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        let view = view.to_owned();
        slowly(async move { self.0.get(&view, keys).await })
    }
    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        self.0.scan(view, range)
    }
    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        let view = view.to_owned();
        slowly(async move { self.0.clear(&view).await })
    }
    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        self.0.names()
    }
}
