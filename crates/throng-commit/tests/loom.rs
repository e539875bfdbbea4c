//! All interleavings of the engine's concurrency (feature `loom`).
#![cfg(feature = "loom")]

use loom::{
    future::block_on,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use std::{
    future::poll_fn,
    task::{Poll, Waker},
};
use throng_commit::{Candidate, Entered, Leader, Lost, OpenCommit, QueuedLock, Relay, Term};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// Runs a thread's work under a queued lock, in place or by the holder, exactly once.
fn add(queued_lock: &QueuedLock<Vec<usize>>, number: usize) {
    let entered = queued_lock.enter(
        number,
        |numbers: &mut Vec<usize>, number| numbers.push(number),
        |number| Box::new(move |numbers: &mut Vec<usize>| numbers.push(number)),
    );
    assert!(!matches!(entered, Entered::Full(_)));
}

//= promise 1: one command at a time
#[test]
fn no_work_brought_to_a_leader_is_lost_or_done_twice() {
    model(|| {
        let queued_lock = Arc::new(QueuedLock::new(Vec::new(), 8));
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let queued_lock = queued_lock.clone();
                thread::spawn(move || {
                    add(&queued_lock, number * 10);
                    add(&queued_lock, number * 10 + 1);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(queued_lock.waiting(), 0);
        let numbers = queued_lock.wait(|numbers| numbers.clone());
        assert_eq!(numbers.len(), 4);
        let of = |sender: usize| {
            numbers
                .iter()
                .filter(|n| **n / 10 == sender)
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of(0), of(1)),
            (vec![0, 1], vec![10, 11]),
            "each sender's order is kept"
        );
    });
}

/// Asks until it leads once, then does the work.
fn lead_once(leader: &Leader, candidate: Candidate, mut work: impl FnMut(&mut Term<'_>, &Waker)) {
    block_on(poll_fn(|context| {
        let Some(mut term) = leader.ask(candidate, context.waker()) else {
            return Poll::Pending;
        };
        work(&mut term, context.waker());
        Poll::Ready(())
    }));
}

#[test]
fn every_request_to_lead_is_followed_by_a_look() {
    model(|| {
        let (leader, work) = (Arc::new(Leader::new()), Arc::new(AtomicUsize::new(0)));
        let done = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (leader, work, done) = (leader.clone(), work.clone(), done.clone());
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::SeqCst);
                    lead_once(&leader, Candidate::new(), |_, _| {
                        done.store(work.load(Ordering::SeqCst), Ordering::SeqCst);
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(done.load(Ordering::SeqCst), 2);
    });
}

/// The action of one of two candidates.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// The candidate was told to wait.
    Waits(usize),
    Leads(usize),
    /// The candidate's term ends. Recorded before it hands over.
    Ends(usize),
}

/// Checks that no candidate leads twice in a row while another waits, unless it gave way in between.
fn check_that_leadership_was_handed_over(seen: &[Seen]) {
    let (mut waits, mut has_to_give_way) = ([false; 2], [false; 2]);
    for what in seen {
        match *what {
            Seen::Waits(who) => {
                waits[who] = true;
                has_to_give_way[who] = false;
            }
            Seen::Leads(who) => {
                assert!(!has_to_give_way[who], "{seen:?}");
                waits[who] = false;
                has_to_give_way[1 - who] = false;
            }
            Seen::Ends(who) => has_to_give_way[who] = waits[1 - who],
        }
    }
}

#[test]
fn no_leader_leads_twice_while_another_waits() {
    model(|| {
        let leader = Arc::new(Leader::new());
        let seen = Arc::new(loom::sync::Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..2)
            .map(|who| {
                let (leader, seen) = (leader.clone(), seen.clone());
                thread::spawn(move || {
                    let (candidate, mut terms) = (Candidate::new(), 0);
                    let note = |what| seen.lock().unwrap().push(what);
                    block_on(poll_fn(|context| {
                        let Some(mut term) = leader.ask(candidate, context.waker()) else {
                            note(Seen::Waits(who));
                            return Poll::Pending;
                        };
                        note(Seen::Leads(who));
                        note(Seen::Ends(who));
                        terms += 1;
                        if terms == 2 {
                            return Poll::Ready(());
                        }
                        term.again(context.waker());
                        Poll::Pending
                    }));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let seen = seen.lock().unwrap();
        assert_eq!(seen.iter().filter(|seen| matches!(seen, Seen::Leads(_))).count(), 4);
        check_that_leadership_was_handed_over(&seen);
    });
}

#[test]
fn requests_of_a_departed_loop_are_looked_at() {
    model(|| {
        let (leader, work) = (Arc::new(Leader::new()), Arc::new(AtomicUsize::new(0)));
        let done = Arc::new(AtomicUsize::new(0));
        let look = |work: &AtomicUsize, done: &AtomicUsize| {
            done.store(work.load(Ordering::SeqCst), Ordering::SeqCst);
        };
        let stays = {
            let (leader, work, done) = (leader.clone(), work.clone(), done.clone());
            thread::spawn(move || {
                work.fetch_add(1, Ordering::SeqCst);
                lead_once(&leader, Candidate::new(), |_, _| look(&work, &done));
            })
        };
        work.fetch_add(1, Ordering::SeqCst);
        let leaves = Candidate::new();
        match leader.ask(leaves, Waker::noop()) {
            Some(_term) => look(&work, &done),
            None if leader.leave(leaves) => lead_once(&leader, Candidate::new(), |_, _| look(&work, &done)),
            None => {}
        }
        stays.join().unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn waiters_are_woken_when_their_commit_lands() {
    model(|| {
        let open = Arc::new(OpenCommit::<Vec<u8>>::new(Default::default()));
        let place = open.stage(|batch| batch.push(1));
        assert!(place.first);
        let waiter = {
            let open = open.clone();
            thread::spawn(move || block_on(open.wait(1, 0)))
        };
        let (number, batch) = open.take(1).unwrap();
        assert_eq!((number, batch), (1, vec![1]));
        open.landed(number);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn waiters_for_room_wait_for_a_taken_commit() {
    model(|| {
        let open = Arc::new(OpenCommit::<Vec<u8>>::new(Default::default()));
        open.stage(|batch| batch.push(1));
        let waiter = {
            let open = open.clone();
            thread::spawn(move || match open.full(|batch| batch.len() == 1) {
                Some(number) => block_on(open.wait(number, 0)),
                None => Ok(()),
            })
        };
        let (number, _) = open.take(1).unwrap();
        open.landed(number);
        // No commit comes after it.
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_waker_is_woken_or_told_that_the_commit_has_landed() {
    model(|| {
        let open = Arc::new(OpenCommit::<Vec<u8>>::new(Default::default()));
        open.stage(|batch| batch.push(1));
        let waiter = {
            let open = open.clone();
            thread::spawn(move || {
                block_on(std::future::poll_fn(|context| {
                    if open.wake_at(1, 0, context.waker()) {
                        Poll::Pending
                    } else {
                        open.state(1)
                    }
                }))
            })
        };
        let (number, _) = open.take(1).unwrap();
        open.landed(number);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

/// Counts the wake-ups, and wakes its thread.
struct Count {
    woken: AtomicUsize,
    thread: Waker,
}

impl std::task::Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.wake_by_ref();
    }
}

/// Returns two tasks that wait for commit 1 on the calling thread.
fn two_wait(open: &OpenCommit<Vec<u8>>, thread: &Waker) -> [std::sync::Arc<Count>; 2] {
    std::array::from_fn(|_| {
        let count = std::sync::Arc::new(Count {
            woken: AtomicUsize::new(0),
            thread: thread.clone(),
        });
        if !open.wake_at(1, 0, &Waker::from(count.clone())) {
            count.woken.fetch_add(1, Ordering::SeqCst);
        }
        count
    })
}

/// Returns a relay, and a non-empty commit 1.
fn staged() -> (std::sync::Arc<Relay>, Arc<OpenCommit<Vec<u8>>>) {
    let relay = std::sync::Arc::new(Relay::default());
    let open = Arc::new(OpenCommit::new(relay.clone()));
    open.stage(|batch: &mut Vec<u8>| batch.push(1));
    (relay, open)
}

#[test]
fn the_end_of_a_relay_wakes_the_tasks_of_its_thread() {
    model(|| {
        let (relay, open) = staged();
        let other = {
            let open = open.clone();
            thread::spawn(move || {
                let end = relay.end();
                let mut tasks = None;
                block_on(poll_fn(|context| {
                    end.deliver(context.waker());
                    let tasks = tasks.get_or_insert_with(|| two_wait(&open, context.waker()));
                    if tasks.iter().all(|task| task.woken.load(Ordering::SeqCst) == 1) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                }));
            })
        };
        let (number, _) = open.take(1).unwrap();
        open.landed(number);
        other.join().unwrap();
    });
}

#[test]
fn an_end_that_is_dropped_leaves_nobody_asleep() {
    model(|| {
        let (relay, open) = staged();
        let other = {
            let open = open.clone();
            thread::spawn(move || {
                let end = relay.end();
                end.deliver(Waker::noop());
                two_wait(&open, Waker::noop())
            })
        };
        let (number, _) = open.take(1).unwrap();
        open.landed(number);
        for task in other.join().unwrap() {
            assert_eq!(task.woken.load(Ordering::SeqCst), 1);
        }
    });
}

#[test]
fn waiters_at_the_end_learn_whether_their_commit_is_lost() {
    model(|| {
        let open = Arc::new(OpenCommit::<Vec<u8>>::new(Default::default()));
        open.stage(|batch| batch.push(1));
        open.take(2).unwrap();
        open.stage(|batch| batch.push(2));
        open.take(2).unwrap();
        let waiters: Vec<_> = (1..=2)
            .map(|number| {
                let open = open.clone();
                thread::spawn(move || block_on(open.wait(number, 0)))
            })
            .collect();
        open.end(1);
        let ends: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_eq!(ends, [Ok(()), Err(Lost)]);
    });
}

//= promise 3: answers rest on durable events
#[test]
fn durability_never_passes_a_commit_in_flight() {
    model(|| {
        let open = Arc::new(OpenCommit::<Vec<u8>>::new(Default::default()));
        for number in 1..=2 {
            open.stage(|batch| batch.push(number));
            open.take(2).unwrap();
        }
        let late = {
            let open = open.clone();
            thread::spawn(move || {
                open.landed(2);
                assert!(open.durable() == 0 || open.durable() == 2);
            })
        };
        open.landed(1);
        late.join().unwrap();
        assert_eq!(open.durable(), 2);
    });
}

#[test]
fn records_staged_by_two_threads_are_all_taken_once() {
    model(|| {
        let open = Arc::new(OpenCommit::<Vec<u8>>::new(Default::default()));
        let (leader, taken) = (Arc::new(Leader::new()), Arc::new(loom::sync::Mutex::new(Vec::new())));
        let threads: Vec<_> = (0..2u8)
            .map(|record| {
                let (open, leader, taken) = (open.clone(), leader.clone(), taken.clone());
                thread::spawn(move || {
                    let place = open.stage(|batch| batch.push(record));
                    let candidate = Candidate::new();
                    block_on(poll_fn(|context| {
                        let Some(mut term) = leader.ask(candidate, context.waker()) else {
                            return Poll::Pending;
                        };
                        if let Some((number, batch)) = open.take(1) {
                            taken.lock().unwrap().push((number, batch));
                            open.landed(number);
                        }
                        if open.is_due(1) {
                            term.again(context.waker());
                            return Poll::Pending;
                        }
                        Poll::Ready(())
                    }));
                    place.number
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
        let taken = taken.lock().unwrap();
        let numbers: Vec<u64> = taken.iter().map(|(number, _)| *number).collect();
        assert_eq!(
            numbers,
            (1..=numbers.len() as u64).collect::<Vec<_>>(),
            "numbers have no gap"
        );
        assert_eq!(taken.iter().map(|(_, batch)| batch.len()).sum::<usize>(), 2);
        assert!(open.is_idle());
    });
}
