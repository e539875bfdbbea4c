//! Wakes many tasks of a thread with one signal.

use crate::sync::{Mutex, lock, thread_number};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

/// Wakes tasks on the threads they wait on.
///
/// Waking a task on another thread costs much more than on the own thread: each wake-up locks the runtime's shared queue, which the runtime
/// checks only now and then while there is other work. So a thread that has an [`End`] gets one signal, and its end wakes all its tasks
/// there. Tasks on other threads, and a single task, are woken directly.
#[derive(Default)]
pub struct Relay {
    ends: Mutex<Vec<State>>,
}

struct State {
    number: u64,
    /// The thread that last polled the end; `None` before the first poll, when no task waits there.
    thread: Option<u64>,
    /// Wakes the end itself, if tasks wait for it.
    waker: Option<Waker>,
    woken: Vec<Waker>,
}

/// A waiting task, and the thread on which it was polled.
pub(crate) struct Parked {
    thread: u64,
    pub(crate) waker: Waker,
}

impl Parked {
    pub(crate) fn here(waker: Waker) -> Self {
        Self {
            thread: thread_number(),
            waker,
        }
    }
}

impl Relay {
    /// Returns an end for the thread that [delivers](End::deliver) it.
    #[must_use]
    pub fn end(self: &Arc<Self>) -> End {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.ends).push(State {
            number,
            thread: None,
            waker: None,
            woken: Vec::new(),
        });
        End {
            relay: self.clone(),
            number,
        }
    }

    /// Wakes these tasks, directly or through the ends of their threads.
    pub(crate) fn wake(&self, parked: impl Iterator<Item = Parked>) {
        let here = thread_number();
        let mut away: Vec<Parked> = Vec::new();
        for task in parked {
            if task.thread == here {
                task.waker.wake();
            } else {
                away.push(task);
            }
        }
        if away.is_empty() {
            return;
        }
        let mut wakers = Vec::new();
        {
            let mut ends = lock(&self.ends);
            for end in ends.iter_mut().filter(|end| end.thread.is_some()) {
                let of_end = away.extract_if(.., |task| Some(task.thread) == end.thread);
                end.woken.extend(of_end.map(|task| task.waker));
                match end.woken.len() {
                    0 => {}
                    1 if end.waker.is_some() => wakers.extend(end.woken.pop()),
                    _ => wakers.extend(end.waker.take()),
                }
            }
        }
        wakers.extend(away.into_iter().map(|task| task.waker));
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The end of a relay on one thread, which wakes the thread's tasks for other threads. After it is dropped, these tasks are woken directly.
pub struct End {
    relay: Arc<Relay>,
    number: u64,
}

impl End {
    /// Wakes the tasks of this thread that other threads wanted to wake; `waker` is woken when there are more. Returns true if there were
    /// some: work that should run after them has to wait for its next poll.
    pub fn deliver(&self, waker: &Waker) -> bool {
        let woken = {
            let mut ends = lock(&self.relay.ends);
            let Some(end) = ends.iter_mut().find(|end| end.number == self.number) else {
                return false;
            };
            end.thread = Some(thread_number());
            if !end.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                end.waker = Some(waker.clone());
            }
            std::mem::take(&mut end.woken)
        };
        let any = !woken.is_empty();
        woken.into_iter().for_each(Waker::wake);
        any
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let gone: Vec<State> = lock(&self.relay.ends)
            .extract_if(.., |end| end.number == self.number)
            .collect();
        gone.into_iter().flat_map(|end| end.woken).for_each(Waker::wake);
    }
}
