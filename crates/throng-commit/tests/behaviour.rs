//! Behaviour that needs no model checker.
#![cfg(not(feature = "loom"))]

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use throng_commit::{Candidate, Entered, Job, Leader, Lost, OpenCommit, QueuedLock, Relay};

//= promise 9: everything is bounded
#[test]
fn a_full_inbox_gives_the_work_back() {
    let queued_lock = QueuedLock::new(0, 1);
    let queue = |number: i32| -> Job<i32> { Box::new(move |value: &mut i32| *value += number) };
    queued_lock.wait(|_| {
        assert_eq!(queued_lock.enter(1, |_, _| (), queue), Entered::Queued);
        assert_eq!(queued_lock.enter(2, |_, _| (), queue), Entered::Full(2));
    });
    assert_eq!(queued_lock.wait(|value| *value), 1);
}

#[test]
fn waiting_inbox_items_go_first() {
    let queued_lock = QueuedLock::new(Vec::new(), 9);
    let push = |number: i32| -> Job<Vec<i32>> { Box::new(move |value: &mut Vec<i32>| value.push(number)) };
    queued_lock.wait(|_| assert_eq!(queued_lock.enter(1, |_, _| (), push), Entered::Queued));
    queued_lock.enter(2, |value: &mut Vec<i32>, number| value.push(number), push);
    assert_eq!(queued_lock.wait(|value| value.clone()), [1, 2]);
}

#[test]
fn try_lock_finds_the_lock_free_or_does_nothing() {
    let queued_lock = QueuedLock::new(Vec::new(), 9);
    let push = |number: i32| -> Job<Vec<i32>> { Box::new(move |value: &mut Vec<i32>| value.push(number)) };
    queued_lock.wait(|_| {
        assert_eq!(queued_lock.try_enter(|_| panic!("somebody else holds it")), None::<()>);
        assert_eq!(queued_lock.enter(1, |_, _| (), push), Entered::Queued);
    });
    assert_eq!(queued_lock.try_enter(|value| value.len()), Some(1), "after what waits");
}

struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_sweep_wakes_those_past_their_deadline_and_they_can_wait_on() {
    let open = OpenCommit::<Vec<u8>>::new(Arc::default());
    open.stage(|batch| batch.push(1));
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let mut wait = pin!(open.wait(1, 10));
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(open.waiting(), 1, "polling again does not register again");
    open.sweep(9);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    open.sweep(10);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
    let (number, _) = open.take(1).unwrap();
    open.landed(number);
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Ok(())));
}

#[test]
fn a_waker_is_kept_until_its_commit_or_its_deadline() {
    let open = OpenCommit::<Vec<u8>>::new(Arc::default());
    open.stage(|batch| batch.push(1));
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let woken = || count.0.load(Ordering::SeqCst);
    assert!(open.wake_at(1, 10, &waker));
    open.sweep(10);
    assert_eq!((woken(), open.waiting()), (1, 0));
    assert!(open.wake_at(1, 20, &waker));
    let (number, _) = open.take(1).unwrap();
    open.landed(number);
    assert_eq!(woken(), 2);
    assert!(!open.wake_at(1, 20, &waker), "it is durable");
    assert!(open.wake_at(2, 20, &waker));
    open.end(1);
    assert_eq!(woken(), 3);
    assert_eq!(open.state(2), Poll::Ready(Err(Lost)));
    assert!(!open.wake_at(2, 20, &waker), "it is lost");
    assert_eq!(open.waiting(), 0);
}

#[test]
fn a_thread_with_an_end_is_woken_once_for_all_its_tasks() {
    let relay = Arc::new(Relay::default());
    let open = OpenCommit::<Vec<u8>>::new(relay.clone());
    open.stage(|batch| batch.push(1));
    let count = || Arc::new(Count(AtomicUsize::new(0)));
    let (end_told, of_end, of_none) = (count(), count(), count());
    let woken = || [&end_told, &of_end, &of_none].map(|count| count.0.load(Ordering::SeqCst));
    std::thread::scope(|scope| {
        let with_end = scope.spawn(|| {
            let end = relay.end();
            assert!(!end.deliver(&end_told.clone().into()));
            for _ in 0..3 {
                assert!(open.wake_at(1, 0, &of_end.clone().into()));
            }
            end
        });
        let end = with_end.join().unwrap();
        scope.spawn(|| {
            for _ in 0..3 {
                assert!(open.wake_at(1, 0, &of_none.clone().into()));
            }
        });
        while open.waiting() < 6 {
            std::thread::yield_now();
        }
        let (number, _) = open.take(1).unwrap();
        open.landed(number);
        assert_eq!(woken(), [1, 0, 3], "a thread without an end is woken task by task");
        assert!(end.deliver(&end_told.clone().into()));
        assert_eq!(woken(), [1, 3, 3]);
        assert!(!end.deliver(&end_told.clone().into()), "each is woken once");
    });
}

#[test]
fn no_more_commits_are_taken_than_may_be_in_flight() {
    let open = OpenCommit::<Vec<u8>>::new(Arc::default());
    open.stage(|batch| batch.push(1));
    assert_eq!(open.take(1).unwrap().0, 1);
    open.stage(|batch| batch.push(2));
    assert!(open.take(1).is_none());
    assert_eq!(open.take(2).unwrap().0, 2);
    open.landed(2);
    assert_eq!(open.durable(), 0);
    open.landed(1);
    assert_eq!(open.durable(), 2);
}

/// A candidate, and the count of its wake-ups.
struct Loop {
    candidate: Candidate,
    count: Arc<Count>,
}

impl Loop {
    fn new() -> Self {
        Self {
            candidate: Candidate::new(),
            count: Arc::new(Count(AtomicUsize::new(0))),
        }
    }

    fn waker(&self) -> Waker {
        self.count.clone().into()
    }

    fn woken(&self) -> usize {
        self.count.0.load(Ordering::SeqCst)
    }

    fn leads<'a>(&self, leader: &'a Leader) -> Option<throng_commit::Term<'a>> {
        leader.ask(self.candidate, &self.waker())
    }
}

#[test]
fn a_later_request_leads_next_before_the_leader_again() {
    let (leader, first, second) = (Leader::new(), Loop::new(), Loop::new());
    let mut term = first.leads(&leader).unwrap();
    assert!(second.leads(&leader).is_none());
    assert!(second.leads(&leader).is_none(), "it has one place in line");
    term.again(&first.waker());
    drop(term);
    assert_eq!((first.woken(), second.woken()), (1, 1));
    assert!(first.leads(&leader).is_none(), "it gives way");
    let term = second.leads(&leader).unwrap();
    assert!(first.leads(&leader).is_none());
    drop(term);
    assert!(first.leads(&leader).is_some());
    assert!(first.leads(&leader).is_some(), "nobody else is in line");
}

#[test]
fn one_that_does_not_come_is_passed_over_and_keeps_its_place() {
    let (leader, busy, here) = (Leader::new(), Loop::new(), Loop::new());
    let term = here.leads(&leader).unwrap();
    assert!(busy.leads(&leader).is_none());
    drop(term);
    for _ in 0..3 {
        let before = here.woken();
        assert!(here.leads(&leader).is_none());
        assert_eq!(here.woken(), before + 1, "it comes again behind what is ready");
        assert!(here.leads(&leader).is_some());
    }
    assert!(here.leads(&leader).is_none());
    assert!(busy.leads(&leader).is_some(), "it is still the first in line");
}

#[test]
fn all_in_line_are_woken_so_no_absent_leader_is_awaited() {
    let (leader, busy, third) = (Leader::new(), Loop::new(), Loop::new());
    let term = Loop::new().leads(&leader);
    assert!(busy.leads(&leader).is_none() && third.leads(&leader).is_none());
    drop(term);
    assert_eq!((busy.woken(), third.woken()), (1, 1));
    assert!(third.leads(&leader).is_none());
    assert!(third.leads(&leader).is_some());
}

#[test]
fn one_that_leaves_says_whether_anybody_looks_in_its_stead() {
    let (leader, first, second) = (Leader::new(), Loop::new(), Loop::new());
    assert!(!leader.leave(first.candidate), "it asked for nothing");
    let term = Loop::new().leads(&leader);
    assert!(first.leads(&leader).is_none() && second.leads(&leader).is_none());
    assert!(!leader.leave(first.candidate), "the second looks");
    assert!(leader.leave(second.candidate), "nobody looks once this term is over");
    drop(term);
    assert_eq!(second.woken(), 0);
    assert!(first.leads(&leader).is_some());
}

#[test]
fn a_leader_that_panics_hands_over() {
    let (leader, other) = (Leader::new(), Loop::new());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _term = Loop::new().leads(&leader);
        assert!(other.leads(&leader).is_none());
        std::panic::resume_unwind(Box::new("a journal that panics"));
    }));
    assert!(panicked.is_err());
    assert_eq!(other.woken(), 1);
    assert!(other.leads(&leader).is_some());
}

#[test]
fn a_commit_is_due_when_it_may_be_taken() {
    let open = OpenCommit::<Vec<u8>>::new(Arc::default());
    assert!(!open.is_due(1), "it is empty");
    open.stage(|batch| batch.push(1));
    assert!(open.is_due(1));
    open.take(1).unwrap();
    open.stage(|batch| batch.push(2));
    assert!(!open.is_due(1), "one is in flight");
    assert!(open.is_due(2));
    open.end(1);
    assert!(!open.is_due(2), "the writer is over");
}
