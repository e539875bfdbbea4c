//! The batches of a gateway's loop: its committer ends them, and within one a hot entity has its share.

use super::share::{self, BatchEnd, Share};
use crate::{
    context::Context,
    spans::{Gathered, TraceContext},
};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    task::{self, Waker},
};

thread_local! {
    /// The loop that runs on this thread. Its committer sets it. Callers have no handle to pass (docs/decisions/028-committer-of-a-thread.md).
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

struct Current {
    /// The address of the engine that the loop serves.
    engine: usize,
    committer: Waker,
    share: Arc<Share>,
    /// Something was put into the open commit in this batch.
    has_staged: Cell<bool>,
    /// Messages delivered in this batch.
    deliveries: Cell<usize>,
    /// The span of this batch, once it has executed traced work.
    span: RefCell<Option<Gathered>>,
}

fn with<R>(context: &Context, look: impl FnOnce(&Current) -> R) -> Option<R> {
    CURRENT.with_borrow(|current| {
        let current = current.as_ref();
        current
            .filter(|current| current.engine == std::ptr::from_ref(context).addr())
            .map(look)
    })
}

/// There is something to commit: wakes this loop's committer, or the one of all callers outside of loops.
pub(crate) fn wake_committer(context: &Context) {
    if with(context, |current| current.committer.wake_by_ref()).is_none() {
        context.signals.commit.wake();
    }
}

/// Something was put into the open commit: the first time in a batch, this loop's committer is woken. Also if others have put
/// something into it before: their loop may be at work for long.
pub(super) fn has_staged(context: &Context) {
    let woken = with(context, |current| {
        if !current.has_staged.replace(true) {
            current.committer.wake_by_ref();
        }
    });
    if woken.is_none() {
        context.signals.commit.wake();
    }
}

/// Decides on a command of an entity that may have had its share of this batch.
pub(super) fn enter_share(context: &Context, hash: u64) -> share::Entry {
    let entry = with(context, |current| {
        let entry = current.share.enter(hash);
        if matches!(entry, share::Entry::Wait(_)) {
            context.metrics.deferred.inc();
            current.committer.wake_by_ref();
        }
        entry
    });
    entry.unwrap_or(share::Entry::Go)
}

/// A command of an entity was executed and took so long.
pub(super) fn charge(context: &Context, hash: u64, micros: u64) {
    if share::charge(hash, micros) {
        with(context, |current| current.share.charge(hash, micros));
    }
}

/// Counts one more delivery in this batch, if there may be one. Callers outside of loops have no batch, and no such bound.
pub(crate) fn may_deliver(context: &Context) -> bool {
    let may = with(context, |current| {
        let count = current.deliveries.get();
        current.deliveries.set(count + 1);
        count < context.options.deliveries_per_turn
    });
    may.unwrap_or(true)
}

/// Links this batch's span to traced work, which began then; returns the span. `None`: the caller is on no loop.
pub(super) fn add_traced(context: &Context, work: TraceContext, begun: u64) -> Option<TraceContext> {
    with(context, |current| {
        let mut span = current.span.borrow_mut();
        let span = span.get_or_insert_with(|| Gathered::of(work, begun));
        span.add(work);
        span.context
    })
}

/// Exports the span of a batch that ends now, if it has one.
fn export(context: &Context, span: &RefCell<Option<Gathered>>) {
    let Some(tracer) = &context.tracer else { return };
    if let Some(span) = span.take() {
        span.export(tracer, &*context.host, "batch", &[]);
    }
}

/// The batches of one loop, as its committer holds them. Dropped, the thread has no loop any more.
pub(crate) struct Batches {
    context: Arc<Context>,
    share: Arc<Share>,
}

impl Batches {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let share = Share::new(context.options.entity_turn);
        Self {
            context,
            share: Arc::new(share),
        }
    }

    /// The committer's task is polled: all that was ready has had its go.
    pub(crate) fn end(&self, context: &task::Context<'_>) -> BatchEnd {
        CURRENT.with_borrow_mut(|current| {
            let engine = Arc::as_ptr(&self.context).addr();
            let is_known = current
                .as_ref()
                .is_some_and(|known| known.engine == engine && known.committer.will_wake(context.waker()));
            if !is_known {
                self.share.begin();
                *current = Some(Current {
                    engine,
                    committer: context.waker().clone(),
                    share: self.share.clone(),
                    has_staged: Cell::new(false),
                    deliveries: Cell::new(0),
                    span: RefCell::default(),
                });
            } else if let Some(current) = current {
                current.has_staged.set(false);
                current.deliveries.set(0);
                export(&self.context, &current.span);
            }
        });
        self.share.batch_ends()
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.share.close();
        share::leave();
        let _ = CURRENT.try_with(|current| current.try_borrow_mut().map(|mut current| current.take()));
    }
}
