//! The kit of the suites: runs futures and builds commits.

use crate::{Address, Append, AppendError, Commit, CommitBuilder, CommitNo, RecordKind, ShardId, Stamp, WriterId};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, parked while it waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// An event of a commit under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub id: String,
    pub seq: u64,
    pub body: Vec<u8>,
}

impl Event {
    pub(super) fn new(id: &str, seq: u64, body: impl Into<Vec<u8>>) -> Self {
        Self {
            id: id.into(),
            seq,
            body: body.into(),
        }
    }
}

pub(super) const KIND: &str = "section";

pub(super) fn address(id: &str) -> Address {
    Address::new(KIND, id)
}

/// When commit `number` was made.
pub(super) fn at_micros(writer: WriterId, number: u64) -> i64 {
    (writer.0 * 1_000_000 + number).cast_signed()
}

pub(super) fn commit(writer: WriterId, number: u64, events: &[Event]) -> Commit {
    commit_of(writer, number, events.iter().map(|event| (ShardId(1), event)))
}

/// Builds a commit like [`commit`], with events of entities of several shards.
pub(super) fn commit_of<'a>(
    writer: WriterId,
    number: u64,
    events: impl Iterator<Item = (ShardId, &'a Event)>,
) -> Commit {
    let mut open = CommitBuilder::default();
    for (shard, event) in events {
        open.push(
            RecordKind::Event,
            shard,
            &address(&event.id),
            event.seq,
            "Added",
            2,
            &event.body,
        );
    }
    open.finish(Stamp::after_synced(writer, CommitNo(number), at_micros(writer, number)))
}

/// Waits for what came of an append.
pub(super) fn outcome(
    append: Append,
    run: &dyn Fn(crate::Later<'static, crate::Appended>) -> crate::Appended,
) -> Result<(), AppendError> {
    match append {
        Append::Done(appended) => appended.result,
        Append::Later(later) => run(later).result,
    }
}
