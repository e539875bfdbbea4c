//! The end of a turn: the open commit is appended, what is durable advances, who waits is woken.

use crate::{
    engine::{Engine, Inner, Status},
    life::{Flight, Life},
    share::{self, Share},
};
use std::{
    cell::RefCell,
    future::Future,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    task::{Context, Poll, Waker},
};
use throng_journal::{Append, Appended, CommitNo, Stamp};
use throng_turn::Candidate;

thread_local! {
    /// The gateway's loop that runs on this thread.
    static LOOP: RefCell<Option<Loop>> = const { RefCell::new(None) };
}

struct Loop {
    /// Whose engine it serves.
    engine: usize,
    committer: Waker,
    share: Arc<Share>,
}

impl Engine {
    /// The committer of one gateway's loop: run it as a task of that loop. The first record of a turn wakes it, and so
    /// it runs behind all connections that are ready: the turn's records become one commit. Ends when the engine stops.
    pub fn committer(&self) -> impl Future<Output = ()> + Send + 'static {
        let inner = &self.inner;
        let leaves = Leaves {
            inner: inner.clone(),
            candidate: Candidate::new(),
            share: Arc::new(Share::new(inner.options.entity_turn, inner.options.wait_max)),
        };
        std::future::poll_fn(move |context| {
            let Leaves { inner, share, .. } = &leaves;
            LOOP.with_borrow_mut(|own| {
                let engine = Arc::as_ptr(inner) as usize;
                if !own
                    .as_ref()
                    .is_some_and(|own| own.engine == engine && own.committer.will_wake(context.waker()))
                {
                    share.begin();
                    *own = Some(Loop {
                        engine,
                        committer: context.waker().clone(),
                        share: share.clone(),
                    });
                }
            });
            let end = share.turn_ends();
            if end.more {
                context.waker().wake_by_ref();
            }
            if !end.early {
                inner.lead(leaves.candidate, context);
            }
            if inner.is_stopped() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}

/// Takes the loop's committer off its thread when it is dropped.
struct Leaves {
    inner: Arc<Inner>,
    candidate: Candidate,
    share: Arc<Share>,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.share.close();
        share::leave();
        let _ = LOOP.try_with(|own| own.try_borrow_mut().map(|mut own| own.take()));
        if let Status::Running(life) = &*self.inner.status() {
            life.lead.leave(self.candidate);
        }
        // Whatever this loop was woken for, or would have been: a commit it staged, an append it polled last.
        self.inner.foreign.wake();
    }
}

/// Leads for all callers outside a gateway's loops.
pub(crate) async fn foreign(inner: Weak<Inner>) {
    let candidate = Candidate::new();
    std::future::poll_fn(|context| {
        let Some(inner) = inner.upgrade() else {
            return Poll::Ready(());
        };
        inner.foreign.look(context.waker());
        inner.lead(candidate, context);
        // What came between the look and the lead.
        if inner.foreign.look(context.waker()) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

impl Inner {
    fn is_stopped(&self) -> bool {
        self.is_stopping() && matches!(*self.status(), Status::Down(_))
    }

    /// There is something to commit: wakes this loop's committer, or the one for all others.
    pub(crate) fn kick(self: &Arc<Self>) {
        let here = self.here(|own| own.committer.wake_by_ref());
        if here.is_none() {
            self.foreign.wake();
        }
    }

    /// Looks at this engine's loop on this thread, if there is one.
    fn here<R>(&self, look: impl FnOnce(&Loop) -> R) -> Option<R> {
        LOOP.with_borrow(|own| {
            let own = own
                .as_ref()
                .filter(|own| own.engine == std::ptr::from_ref(self) as usize);
            own.map(look)
        })
    }

    /// A command of an entity that may have had its share of this turn: when it may go.
    pub(crate) fn enter_hot(&self, hash: u64) -> share::Entry {
        let entry = self.here(|own| {
            let entry = own.share.enter(hash);
            if matches!(entry, share::Entry::Wait(_)) {
                self.metrics.deferred.inc();
                own.committer.wake_by_ref();
            }
            entry
        });
        entry.unwrap_or(share::Entry::Go)
    }

    /// A command was executed that took so long.
    pub(crate) fn charge(&self, hash: u64, micros: u64) {
        if share::charge(hash, micros) {
            self.here(|own| own.share.charge(hash, micros));
        }
    }

    /// Leads one commit, if nobody else leads: what has landed is told, what is open is appended. More than that is for
    /// those who asked meanwhile, and for this one behind all that is ready on its loop.
    fn lead(self: &Arc<Self>, candidate: Candidate, context: &mut Context<'_>) {
        let life = match &*self.status() {
            Status::Running(life) => life.clone(),
            Status::Down(_) => return,
        };
        let Some(mut term) = life.lead.ask(candidate, context.waker()) else {
            return;
        };
        self.poll_flights(&life, context);
        self.append_open(&life, context);
        if !life.is_over() && life.open.is_due(self.journal.depth()) {
            term.again(context.waker());
        }
        drop(term);
        if life.appended_bytes.load(Ordering::Relaxed) >= self.options.checkpoint_bytes {
            self.checkpoint.wake();
        }
    }

    /// Appends what is open, if the journal takes it.
    fn append_open(self: &Arc<Self>, life: &Arc<Life>, context: &mut Context<'_>) {
        if life.is_over() {
            return;
        }
        let Some((number, mut batch)) = life.open.take(self.journal.depth()) else {
            return;
        };
        life.staged_bytes.store(0, Ordering::Relaxed);
        let begun_micros = self.host.elapsed_micros();
        self.metrics.batch.observe(batch.records() as f64);
        let commit = batch.finish(Stamp {
            writer: life.writer,
            number: CommitNo(number),
            synced: CommitNo(life.open.durable()),
            at_micros: self.host.now().micros,
        });
        let bytes = commit.bytes().len() as u64;
        self.metrics.commit_bytes.inc_by(bytes);
        life.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.journal.append(commit) {
            Append::Done(appended) => self.landed(life, number, begun_micros, appended),
            Append::Later(append) => {
                let flight = Flight {
                    number,
                    begun_micros,
                    append,
                };
                life.flights.lock().unwrap_or_else(PoisonError::into_inner).push(flight);
                self.poll_flights(life, context);
            }
        }
    }

    fn poll_flights(self: &Arc<Self>, life: &Arc<Life>, context: &mut Context<'_>) {
        let mut landed = Vec::new();
        {
            let mut flights = life.flights.lock().unwrap_or_else(PoisonError::into_inner);
            flights.retain_mut(|flight| match flight.append.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(appended) => {
                    landed.push((flight.number, flight.begun_micros, appended));
                    false
                }
            });
        }
        for (number, begun_micros, appended) in landed {
            self.landed(life, number, begun_micros, appended);
        }
    }

    fn landed(self: &Arc<Self>, life: &Arc<Life>, number: u64, begun_micros: u64, appended: Appended) {
        match appended.result {
            Ok(()) => {
                let micros = self.host.elapsed_micros().saturating_sub(begun_micros);
                self.metrics.commits.inc();
                self.metrics.commit_seconds.observe(micros as f64 / 1e6);
                let average = life.commit_micros.load(Ordering::Relaxed);
                life.commit_micros.store((average * 7 + micros) / 8, Ordering::Relaxed);
                life.open.give(|open| open.recycle(appended.buffer));
                life.open.landed(number);
                self.publish_durable(life);
                self.wake_watchers();
            }
            Err(error) => self.writer_over(life, &error),
        }
    }
}
