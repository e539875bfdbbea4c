//! Messages between entities: in the turn that sent them if their receiver is at hand, else soon after. The log holds
//! them; memory holds the next ones.

use crate::{
    engine::{Inner, Status},
    life::Life,
    run::{Reply, forwarded},
};
use std::convert::Infallible;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak, atomic::Ordering},
};
use throng_core::{
    limits,
    model::Error,
    shard::{Call, Cause, Delivery, Outcome, Ran, Shard},
};
use throng_journal::{Address, CommitNo, Position, RecordKind};
use throng_turn::{Entered, Job};

/// Somebody waits for what a forwarded command answers.
pub(crate) struct Asker {
    reply: Reply,
    tell: tokio::sync::oneshot::Sender<(Reply, u64)>,
}

impl Asker {
    pub(crate) fn new(reply: Reply) -> (Self, tokio::sync::oneshot::Receiver<(Reply, u64)>) {
        let (tell, told) = tokio::sync::oneshot::channel();
        (Self { reply, tell }, told)
    }
}

/// A message in memory.
pub(crate) struct Outgoing {
    delivery: Delivery,
    asker: Option<Asker>,
    /// The commit it was sent with: this writer's, or an earlier one's it was read from.
    sent: Position,
}

impl Outgoing {
    /// A message this life sends.
    pub(crate) fn new(life: &Life, delivery: Delivery, asker: Option<Asker>) -> Self {
        let sent = Position {
            writer: life.writer,
            commit: CommitNo(delivery.commit),
        };
        Self { delivery, asker, sent }
    }

    /// What it takes in memory, about: as it was recorded, and typed.
    fn bytes(&self) -> usize {
        2 * self.delivery.taking.command.get().len() + 512
    }
}

/// How much of the outbox may be in memory.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    messages: usize,
    bytes: usize,
}

/// Messages on their way: a window over the log.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Outgoing>,
    /// Behind a receiver that is being loaded, in order.
    parked: HashMap<Address, VecDeque<Outgoing>>,
    parked_len: usize,
    /// Of those queued and parked.
    bytes: usize,
    /// The commits of messages in somebody's hands, neither queued nor taken.
    in_hand: Vec<Position>,
    /// Messages that are only in the log: to be read from here on.
    behind: Option<Behind>,
}

#[derive(Clone, Copy, Debug)]
struct Behind {
    /// Read up to here.
    read: Position,
    /// Messages of later commits are in memory.
    upto: Position,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.parked_len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.in_hand.is_empty() && self.behind.is_none()
    }

    /// So much waits that no more is let in from outside.
    fn is_full(&self, room: Room) -> bool {
        self.behind.is_some() || self.has_no(room)
    }

    fn has_no(&self, room: Room) -> bool {
        self.len() >= room.messages || self.bytes > room.bytes
    }

    /// Some messages up to here are only in the log, after that position.
    pub(crate) fn fall_behind(&mut self, read: Position, upto: Position) {
        self.behind = Some(Behind { read, upto });
    }

    /// The commit before the oldest message that was not taken, if there is one.
    pub(crate) fn oldest(&self) -> Option<Position> {
        let queued = self.queue.iter().chain(self.parked.values().flatten());
        let held = queued.map(|outgoing| outgoing.sent).chain(self.in_hand.iter().copied());
        held.map(before).chain(self.behind.map(|behind| behind.read)).min()
    }

    fn take(&mut self) -> Option<Outgoing> {
        let outgoing = self.queue.pop_front()?;
        self.bytes -= outgoing.bytes();
        self.in_hand.push(outgoing.sent);
        Some(outgoing)
    }

    /// Gives it back, unless others for the same receiver are parked: then it waits behind them.
    fn unless_parked(&mut self, outgoing: Outgoing) -> Option<Outgoing> {
        if !self.parked.contains_key(&outgoing.delivery.to) {
            return Some(outgoing);
        }
        self.park(outgoing);
        None
    }

    /// Waits for its receiver, in the order of its sender. `true`: it is the first to.
    fn park(&mut self, outgoing: Outgoing) -> bool {
        self.let_go(outgoing.sent);
        self.parked_len += 1;
        self.bytes += outgoing.bytes();
        let parked = self.parked.entry(outgoing.delivery.to.clone()).or_default();
        let is_first = parked.is_empty();
        let (from, number) = (outgoing.delivery.taking.from, outgoing.delivery.taking.number);
        let later = |other: &Outgoing| other.delivery.taking.from == from && other.delivery.taking.number > number;
        match parked.iter().position(later) {
            Some(at) => parked.insert(at, outgoing),
            None => parked.push_back(outgoing),
        }
        is_first
    }

    /// A message left the hands that held it: taken, or back in the outbox.
    fn let_go(&mut self, sent: Position) {
        if let Some(at) = self.in_hand.iter().position(|held| *held == sent) {
            self.in_hand.swap_remove(at);
        }
    }

    fn push(&mut self, outgoing: Outgoing, room: Room) {
        let at = outgoing.sent;
        if let Some(behind) = &mut self.behind {
            behind.upto = behind.upto.max(at);
        } else if self.has_no(room) {
            let read = before(at);
            self.behind = Some(Behind { read, upto: at });
        } else {
            self.append(outgoing);
        }
    }

    fn append(&mut self, outgoing: Outgoing) {
        self.bytes += outgoing.bytes();
        self.queue.push_back(outgoing);
    }
}

/// The commit before.
fn before(at: Position) -> Position {
    Position {
        commit: CommitNo(at.commit.0.saturating_sub(1)),
        ..at
    }
}

/// What came of trying to deliver.
#[allow(clippy::large_enum_variant, reason = "lives for one delivery")]
enum Tried {
    Taken {
        sent: Position,
        dead: bool,
    },
    /// Behind others whose receiver is being loaded.
    Parked,
    /// The receiver has to be loaded first.
    Load {
        outgoing: Outgoing,
        kind: usize,
        hash: u64,
        key: bool,
    },
}

impl Inner {
    /// An eighth of the memory.
    fn outbox_room(&self) -> Room {
        Room {
            messages: self.options.outbox_max,
            bytes: self.options.memory_bytes_max / 8,
        }
    }

    /// Takes messages over in the order they were sent. The sending shard's lock is held.
    pub(crate) fn enqueue(&self, life: &Life, deliveries: Vec<Delivery>, last: Option<Outgoing>) {
        if deliveries.is_empty() && last.is_none() {
            return;
        }
        let mut outbox = life.outbox();
        let room = self.outbox_room();
        for delivery in deliveries {
            outbox.push(Outgoing::new(life, delivery, None), room);
        }
        if let Some(last) = last {
            outbox.push(last, room);
        }
        life.is_outbox_full.store(outbox.is_full(room), Ordering::Relaxed);
    }

    /// Delivers up to this many; whoever else is at it is asked to go on.
    pub(crate) fn pump(self: &Arc<Self>, life: &Arc<Life>, limit: usize) {
        life.pump_lead.lead(|| {
            for _ in 0..limit {
                if life.is_over() {
                    return;
                }
                let Some(outgoing) = life.outbox().take() else { break };
                if !self.deliver(life, outgoing) {
                    break;
                }
            }
        });
        let more = {
            let outbox = life.outbox();
            let is_full = outbox.is_full(self.outbox_room());
            life.is_outbox_full.store(is_full, Ordering::Relaxed);
            !outbox.queue.is_empty() || (outbox.behind.is_some() && outbox.parked.is_empty())
        };
        if more {
            self.pump.wake();
        }
    }

    /// Tries to deliver one. `false`: its shard's inbox is full, it was put back.
    fn deliver(self: &Arc<Self>, life: &Arc<Life>, outgoing: Outgoing) -> bool {
        let to = &outgoing.delivery.to;
        let hash = limits::hash(&to.kind, &to.id);
        let kind = self.registry.find(&to.kind);
        let entered = life.shard_of(hash).enter(
            outgoing,
            |shard, outgoing| self.try_deliver(shard, life, outgoing, (kind, hash)),
            |outgoing| -> Job<Shard> {
                let (inner, life) = (self.clone(), life.clone());
                Box::new(move |shard| {
                    let tried = inner.try_deliver(shard, &life, outgoing, (kind, hash));
                    inner.tried(&life, tried);
                    inner.pump.wake();
                })
            },
        );
        match entered {
            Entered::Ran(tried) => self.tried(life, tried),
            Entered::Queued => {}
            Entered::Full(outgoing) => {
                let mut outbox = life.outbox();
                outbox.let_go(outgoing.sent);
                outbox.bytes += outgoing.bytes();
                outbox.queue.push_front(outgoing);
                return false;
            }
        }
        true
    }

    /// Runs the command of a message under its receiver's lock, and puts what it sends on its way. Also whether it put the
    /// first record into the open commit.
    pub(crate) fn run_message(
        &self,
        life: &Life,
        shard: &mut Shard,
        (kind, hash): (usize, u64),
        delivery: &mut Delivery,
        reply: &mut Reply,
    ) -> (Ran, bool) {
        let id = delivery.to.id.clone();
        let (input, taking) = delivery.parts();
        let mut staging = life.staging();
        let mut call = Call {
            kind,
            hash,
            id: &id,
            now: self.host.now(),
            entropy: self.host.entropy(),
            input,
            output: reply.output(),
            cause: Cause::Message(taking),
        };
        let ran = self.watched(life, shard, &mut call, self.host.elapsed_micros(), &mut staging);
        let first = staging.first;
        self.enqueue(life, shard.take_outbox(), None);
        (ran, first)
    }

    fn try_deliver(
        self: &Arc<Self>,
        shard: &mut Shard,
        life: &Life,
        outgoing: Outgoing,
        (kind, hash): (Option<usize>, u64),
    ) -> Tried {
        let sent = outgoing.sent;
        if life.is_over() || shard.is_taken(&outgoing.delivery.taking) {
            return Tried::Taken { sent, dead: false };
        }
        let Some(mut outgoing) = life.outbox().unless_parked(outgoing) else {
            return Tried::Parked;
        };
        let delivery = &mut outgoing.delivery;
        let Some(kind) = kind else {
            let mut staging = life.staging();
            let reason = format!("the engine was not given the kind {:?}", delivery.to.kind);
            shard.bury(delivery, self.host.now(), &reason, &mut staging);
            let first = staging.first;
            self.after(life, shard, first);
            return Tried::Taken { sent, dead: true };
        };
        let mut nobody = Reply::Nobody;
        let reply = outgoing.asker.as_mut().map_or(&mut nobody, |asker| &mut asker.reply);
        let (mut ran, first) = self.run_message(life, shard, (kind, hash), delivery, reply);
        // A forwarded message is a message of its own; the asker goes with it.
        if let Some(delivery) = forwarded(&mut ran) {
            let asker = outgoing.asker.take();
            self.enqueue(life, Vec::new(), Some(Outgoing::new(life, delivery, asker)));
        }
        let tried = match ran {
            Ran::Load => Tried::Load {
                outgoing,
                kind,
                hash,
                key: false,
            },
            Ran::LoadKey => Tried::Load {
                outgoing,
                kind,
                hash,
                key: true,
            },
            Ran::Done { rests_on, outcome } => {
                if let Some(asker) = outgoing.asker {
                    drop(asker.tell.send((asker.reply, rests_on)));
                }
                Tried::Taken {
                    sent,
                    dead: outcome == Outcome::Failed,
                }
            }
            // Taken before under its key: the asker asks again.
            Ran::Forward(_) | Ran::ForwardAgain(_) => Tried::Taken { sent, dead: false },
        };
        self.after(life, shard, first);
        tried
    }

    fn tried(self: &Arc<Self>, life: &Arc<Life>, tried: Tried) {
        match tried {
            Tried::Parked => {}
            Tried::Taken { sent, dead } => {
                life.outbox().let_go(sent);
                self.metrics.messages.inc();
                if dead {
                    self.metrics.dead.inc();
                }
            }
            Tried::Load {
                outgoing,
                kind,
                hash,
                key,
            } => {
                let to = outgoing.delivery.to.clone();
                let key = key.then(|| outgoing.delivery.taking.key.clone()).flatten();
                if !life.outbox().park(outgoing) {
                    return;
                }
                let (inner, life) = (self.clone(), life.clone());
                self.host.spawn(Box::pin(async move {
                    let loaded: Result<(), Error<Infallible>> = match &key {
                        Some(key) => inner.load_key(&life, hash, &to.id, key).await,
                        None => inner.load(&life, kind, hash, &to.id).await,
                    };
                    if let Err(error) = loaded {
                        tracing::error!("messages for {to} wait: {error}");
                        inner.host.sleep(std::time::Duration::from_secs(1)).await;
                    }
                    Self::unpark(&life, &to);
                    inner.pump.wake();
                }));
            }
        }
    }

    fn unpark(life: &Life, to: &Address) {
        let mut outbox = life.outbox();
        for outgoing in outbox.parked.remove(to).unwrap_or_default().into_iter().rev() {
            outbox.parked_len -= 1;
            outbox.queue.push_front(outgoing);
        }
    }

    /// Reads messages that are only in the log, once those in memory are delivered.
    async fn catch_up(self: &Arc<Self>, life: &Arc<Life>) -> Result<(), throng_journal::Error> {
        let behind = {
            let outbox = life.outbox();
            let Some(behind) = outbox.behind else { return Ok(()) };
            if !outbox.queue.is_empty() || outbox.parked_len > 0 {
                return Ok(());
            }
            behind
        };
        if behind.upto.writer == life.writer && life.open.wait(behind.upto.commit.0, u64::MAX).await.is_err() {
            return Ok(());
        }
        let (commits, mut read) = self.next_commits(life, behind.read).await?;
        let mut outbox = life.outbox();
        for commit in &commits {
            for record in commit
                .records()
                .flatten()
                .filter(|record| record.record == RecordKind::Sent)
            {
                match Delivery::read(&record) {
                    Ok(delivery) => outbox.append(Outgoing {
                        delivery,
                        asker: None,
                        sent: commit.position(),
                    }),
                    Err(why) => tracing::error!("a message of {} cannot be read: {why}", commit.position()),
                }
            }
            // No more than memory may hold; a commit is read whole.
            if outbox.has_no(self.outbox_room()) {
                read = commit.position();
                break;
            }
        }
        if let Some(now) = &mut outbox.behind {
            now.read = read;
            // Nothing was there up to where it was behind when it looked; more may have been sent since.
            if read >= now.upto || (commits.is_empty() && now.upto == behind.upto) {
                outbox.behind = None;
            }
        }
        life.is_outbox_full
            .store(outbox.is_full(self.outbox_room()), Ordering::Relaxed);
        Ok(())
    }
}

/// Delivers what the turns left over.
pub(crate) async fn task(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let life = match &*strong.status() {
            Status::Running(life) => Some(life.clone()),
            Status::Down(_) => None,
        };
        if let Some(life) = life {
            if let Err(error) = strong.catch_up(&life).await {
                tracing::error!("messages in the log cannot be read: {error}");
                strong.host.sleep(std::time::Duration::from_secs(1)).await;
                strong.pump.wake();
            }
            strong.pump(&life, strong.options.deliveries_per_turn);
        }
        let waker = Arc::downgrade(&strong);
        drop(strong);
        if !woken(&waker, |inner| &inner.pump).await {
            return;
        }
    }
}

/// Sleeps until woken; `false` when the engine is gone.
pub(crate) async fn woken(inner: &Weak<Inner>, which: impl Fn(&Inner) -> &crate::engine::Wake) -> bool {
    std::future::poll_fn(|context| match inner.upgrade() {
        None => std::task::Poll::Ready(false),
        Some(inner) if which(&inner).look(context.waker()) => std::task::Poll::Ready(true),
        Some(_) => std::task::Poll::Pending,
    })
    .await
}
