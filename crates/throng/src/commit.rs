//! The end of a turn: the open commit is appended, what is durable advances, who waits is woken.

use crate::{
    engine::{Engine, Inner, Status},
    life::{Flight, Life},
};
use std::{
    cell::RefCell,
    future::Future,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    task::{Context, Poll, Waker},
};
use throng_journal::{Append, Appended, CommitNo, Stamp};

thread_local! {
    /// The committer of the gateway's loop that runs on this thread, and whose engine it serves.
    static LOOP: RefCell<Option<(usize, Waker)>> = const { RefCell::new(None) };
}

impl Engine {
    /// The committer of one gateway's loop: run it as a task of that loop. The first record of a turn wakes it, and so
    /// it runs behind all connections that are ready: the turn's records become one commit. Ends when the engine stops.
    pub fn committer(&self) -> impl Future<Output = ()> + Send + 'static {
        let inner = self.inner.clone();
        let _leaves = Leaves;
        std::future::poll_fn(move |context| {
            let _ = &_leaves;
            LOOP.with_borrow_mut(|own| {
                let key = Arc::as_ptr(&inner) as usize;
                if !own
                    .as_ref()
                    .is_some_and(|(of, waker)| *of == key && waker.will_wake(context.waker()))
                {
                    *own = Some((key, context.waker().clone()));
                }
            });
            inner.clone().lead(context);
            if inner.is_stopped() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}

/// Takes the loop's committer off its thread when it is dropped.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        let _ = LOOP.try_with(|own| own.try_borrow_mut().map(|mut own| own.take()));
    }
}

/// Leads for all callers outside a gateway's loops.
pub(crate) async fn foreign(inner: Weak<Inner>) {
    std::future::poll_fn(|context| {
        let Some(inner) = inner.upgrade() else {
            return Poll::Ready(());
        };
        inner.foreign.look(context.waker());
        inner.clone().lead(context);
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
        let here = LOOP.with_borrow(|own| match own {
            Some((of, waker)) if *of == Arc::as_ptr(self) as usize => {
                waker.wake_by_ref();
                true
            }
            _ => false,
        });
        if !here {
            self.foreign.wake();
        }
    }

    /// Appends what is open, as far as the journal takes it.
    fn lead(self: &Arc<Self>, context: &mut Context<'_>) {
        let life = match &*self.status() {
            Status::Running(life) => life.clone(),
            Status::Down(_) => return,
        };
        life.lead.lead(|| {
            self.poll_flights(&life, context);
            while !life.is_over()
                && let Some((number, mut batch)) = life.open.take(self.journal.depth())
            {
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
                    Append::Done(appended) => self.landed(&life, number, begun_micros, appended),
                    Append::Later(append) => {
                        let flight = Flight {
                            number,
                            begun_micros,
                            append,
                        };
                        life.flights.lock().unwrap_or_else(PoisonError::into_inner).push(flight);
                        self.poll_flights(&life, context);
                    }
                }
            }
        });
        if life.appended_bytes.load(Ordering::Relaxed) >= self.options.checkpoint_bytes {
            self.checkpoint.wake();
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
                self.wake_watchers();
            }
            Err(error) => self.writer_over(life, &error),
        }
    }
}
