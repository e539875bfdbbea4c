//! Appends: several are in flight, and their outcomes are reported in order.

use super::Inner;
use crate::{
    body::{self, Entry, Head},
    streams::{Landed, Trouble},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, PoisonError},
    time::Duration,
};
use throng_journal::{
    Append, AppendError, Appended, Commit, CommitNo, Loss, NodeId, Position, Witness, WriterId, commit::Buffer,
};
use tokio::sync::oneshot;

/// A writer opened by this process.
pub(super) struct Own {
    pub(super) name: u128,
    /// The number of the next commit.
    next: u64,
    /// The checksum of the commit before `next`, which may still be in flight.
    sum: u32,
    /// The last commit that has landed together with all before it.
    pub(super) acked: u64,
    acked_nonce: u128,
    flights: VecDeque<Flight>,
    /// Known outcomes of puts whose numbers follow one of unknown outcome.
    landed: BTreeMap<u64, Landed>,
    pub(super) end: Option<End>,
    /// The node whose beats are the lease of this writer. `None`: an engine that is alone, which checks the root instead.
    pub(super) node: Option<NodeId>,
    pub(super) lease: Duration,
    /// The send time of the last check of the root that found this writer open, by the boot clock.
    pub(super) looked: Duration,
}

struct Flight {
    number: u64,
    nonce: u128,
    buffer: Buffer,
    told: oneshot::Sender<Appended>,
}

/// The reason that a writer is over.
#[derive(Clone, Debug)]
pub(super) enum End {
    Sealed,
    /// The outcome of commits in flight is unknown; a seal will settle it.
    Doubt(String),
    /// An acknowledged commit is gone.
    Broken(String),
}

impl End {
    pub(super) fn error(&self) -> AppendError {
        match self {
            Self::Sealed => AppendError::Sealed,
            Self::Doubt(why) => AppendError::InDoubt(why.clone()),
            Self::Broken(why) => AppendError::RolledBack(why.clone()),
        }
    }
}

impl Own {
    pub(super) fn new(name: u128, node: Option<NodeId>, lease: Duration, looked: Duration) -> Self {
        Self {
            name,
            node,
            lease,
            next: 1,
            sum: 0,
            acked: 0,
            acked_nonce: 0,
            flights: VecDeque::new(),
            landed: BTreeMap::new(),
            end: None,
            looked,
        }
    }

    /// Reports known outcomes in order. Returns true if the writer is over because of one.
    fn settle(&mut self) -> bool {
        while let Some(flight) = self.flights.front() {
            let Some(landed) = self.landed.remove(&flight.number) else {
                return false;
            };
            let Some(flight) = self.flights.pop_front() else {
                return false;
            };
            match landed {
                // Commits behind a seal do not count, whether they landed or not.
                Landed::Mine if self.end.is_none() => {
                    (self.acked, self.acked_nonce) = (flight.number, flight.nonce);
                    flight.tell(Ok(()));
                }
                Landed::Mine => flight.tell(Err(AppendError::InDoubt("the stream is being sealed".into()))),
                Landed::Sealed => {
                    self.end = Some(End::Sealed);
                    flight.tell(Err(AppendError::Sealed));
                    self.drop_flights();
                    return true;
                }
                Landed::Taken | Landed::Stop(_) => {
                    let why = match landed {
                        Landed::Stop(why) => why,
                        _ => format!("another commit {} stands in the stream", flight.number),
                    };
                    flight.tell(Err(AppendError::InDoubt(why.clone())));
                    self.end = Some(End::Doubt(why));
                    self.drop_flights();
                    return true;
                }
            }
        }
        false
    }

    /// Drops the flights behind the end, and reports that.
    fn drop_flights(&mut self) {
        let Some(end) = &self.end else { return };
        for flight in self.flights.drain(..) {
            flight.tell(Err(end.error()));
        }
    }
}

impl Flight {
    fn tell(mut self, result: Result<(), AppendError>) {
        self.buffer.clear();
        // The caller of the append may be gone.
        _ = self.told.send(Appended {
            result,
            buffer: self.buffer,
        });
    }
}

fn refused(why: AppendError) -> Append {
    Append::Done(Appended {
        result: Err(why),
        buffer: Buffer::default(),
    })
}

impl Inner {
    pub(super) fn append(self: &Arc<Self>, mut commit: Commit) -> Append {
        let stamp = commit.stamp();
        let mut writers = self.own();
        let Some(own) = writers.get_mut(&stamp.writer) else {
            let why = format!("writer {} was not opened here", stamp.writer);
            return refused(AppendError::InDoubt(why));
        };
        if let Some(end) = &own.end {
            return refused(end.error());
        }
        if stamp.number.0 != own.next {
            let why = format!("commit {} does not follow commit {}", stamp.number, own.next - 1);
            return refused(AppendError::InDoubt(why));
        }
        // The commit carries the last acknowledged number. `Streams::look_again` uses it to find a commit lost behind a seal.
        commit.set_synced(CommitNo(own.acked));
        commit.seal(&[]);
        let head = Head {
            name: own.name,
            nonce: self.host().random(),
            number: own.next,
            before: own.sum,
        };
        let (body, sum) = body::of_commit(head, commit.bytes());
        (own.next, own.sum) = (own.next + 1, sum);
        let (told, outcome) = oneshot::channel();
        own.flights.push_back(Flight {
            number: head.number,
            nonce: head.nonce,
            buffer: commit.into_buffer(),
            told,
        });
        drop(writers);
        let inner = Arc::clone(self);
        self.host().spawn(Box::pin(async move {
            let landed = inner.streams.put(head, body).await;
            inner.landed(stamp.writer, head.number, landed).await;
        }));
        Append::Later(Box::pin(async move {
            outcome.await.unwrap_or_else(|_| Appended {
                result: Err(AppendError::InDoubt("the process ends".into())),
                buffer: Buffer::default(),
            })
        }))
    }

    async fn landed(&self, writer: WriterId, number: u64, landed: Landed) {
        let acked = {
            let mut writers = self.own();
            let Some(own) = writers.get_mut(&writer) else { return };
            own.landed.insert(number, landed);
            own.settle().then_some((own.name, own.acked, own.acked_nonce))
        };
        if let Some((name, acked, nonce)) = acked {
            self.check_acked(writer, name, acked, nonce).await;
        }
    }

    /// Checks after a writer's end that its last acknowledged commit still exists. If the store let a seal win too, that is reported.
    async fn check_acked(&self, writer: WriterId, name: u128, acked: u64, nonce: u128) {
        if acked == 0 {
            return;
        }
        let found = match self.streams.get_until_known(name, acked).await {
            Ok(entry) if entry.nonce() == nonce => return,
            Ok(Entry::Seal { .. }) => "a seal stands in its place".to_owned(),
            Ok(Entry::Commit { .. }) => "another commit stands in its place".to_owned(),
            // This proves nothing; the seal will settle it.
            Err(Trouble::Store(_)) => return,
            Err(Trouble::Damaged(why)) => why,
        };
        let position = Position::new(writer, CommitNo(acked));
        // Retention may have removed it since.
        let is_pruned = |segmented: u64| segmented >= acked;
        if let Ok(root) = self.roots.read().await
            && root.writer(writer).is_some_and(|entry| is_pruned(entry.segmented()))
        {
            return;
        }
        let why = format!("commit {position} was acknowledged, and {found}: the store let two puts of one key win");
        self.broken(writer, why);
    }

    /// Ends a writer because the store broke its promise, and reports that to people.
    pub(super) fn broken(&self, writer: WriterId, why: String) {
        let covered = {
            let mut writers = self.own();
            let Some(own) = writers.get_mut(&writer) else { return };
            own.end = Some(End::Broken(why));
            own.drop_flights();
            Position::new(writer, CommitNo(own.acked))
        };
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).push(Loss {
            covered,
            held: Position::new(writer, CommitNo(covered.commit.0.saturating_sub(1))),
            witness: Witness::Engine,
        });
    }

    /// Ends a writer of this process. It appends nothing more, and no commit in flight is reported as landed.
    pub(super) fn end_own(&self, writer: WriterId, end: End) {
        if let Some(own) = self.own().get_mut(&writer)
            && own.end.is_none()
        {
            own.end = Some(end);
        }
    }
}
