//! Messages to and from entities of other nodes, and messages that wait for a newer program.
//!
//! A message leaves once it is durable, in the order of its queue, and is sent again until it was taken. The receiver's shard knows by
//! the number whether it was, whichever node owns the shard by then. A message that the receiver's program does not
//! understand is not taken while a newer release is alive; it stays with its sender, in a separate queue.

use super::{
    Deliverer,
    deliver::{self, READ_BYTES},
};
use crate::{
    executor::{AnswerSlot, Attempt, Behind, Carried, ForwardedReply, Next, Outgoing, PeerQueue},
    host::Slice,
    remote::{PeerMessage, RemoteError, Reply, Request, TakenAs},
};
use serde_bytes::ByteBuf;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use throng_core::{
    limits,
    shard::{Delivery, JsonReply, OperatorDecision},
};
use throng_journal::{Address, Position, ShardId, features::WAITS};

/// The most messages of one queue sent at a time.
const MESSAGES_MAX: usize = 256;
/// The most messages of one queue read from the log at a time, beyond those of one commit.
const WINDOW_MAX: usize = 4 * MESSAGES_MAX;
/// The longest time that an owner may take.
const WITHIN: Duration = Duration::from_secs(5);
/// The first and the longest pause before messages that were not taken are sent again. Each pause is twice the one before.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// The same for messages that wait for a newer program.
const RETRY_NEWER: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

impl Deliverer {
    /// Sends the messages of a queue until it is empty.
    pub(super) async fn deliver_queue(self: Arc<Self>, queue: PeerQueue) {
        let Some(peers) = self.context.peers.clone() else {
            return;
        };
        let group_commit = &self.executor.group_commit;
        let pauses = if queue.pair.is_some() { RETRY_NEWER } else { RETRY };
        let mut pause = pauses.0;
        while !group_commit.is_over() {
            let mut last = 0;
            let next = self.outbox.next_of(&queue, MESSAGES_MAX, |outgoing| {
                if outgoing.sent.writer == group_commit.writer {
                    last = outgoing.sent.commit.0.max(last);
                }
                message(outgoing)
            });
            match next {
                Next::Nothing => return,
                Next::Read(behind) => {
                    if self.read_queue(&queue, behind).await {
                        continue;
                    }
                }
                Next::Send(messages) => {
                    let numbers: Vec<_> = messages.iter().map(number).collect();
                    if group_commit.wait(last).await.is_err() || group_commit.is_over() {
                        return;
                    }
                    // A pair may be of two shards of this node.
                    let reply = match group_commit.shards.contains(queue.to) {
                        true => self.take(messages).await,
                        false => peers.ask(queue.to, Request::Take(messages), WITHIN).await,
                    };
                    if let Reply::Taken(taken) = reply
                        && self.have_come(&queue, numbers.into_iter().zip(taken))
                    {
                        pause = pauses.0;
                        continue;
                    }
                    self.not_taken(&queue, pause == pauses.1);
                }
            }
            self.context.host.sleep(pause).await;
            pause = (pause * 2).min(pauses.1);
        }
    }

    /// Continues after the outcomes of a queue's first messages. `false`: none was taken.
    fn have_come(self: &Arc<Self>, queue: &PeerQueue, taken: impl Iterator<Item = ((ShardId, u64), Taken)>) -> bool {
        let mut has_gone_on = false;
        for (number, (what, answer)) in taken {
            if what == TakenAs::Waits {
                let why = match answer {
                    Some(Err(RemoteError::Unavailable(why))) => why,
                    _ => String::new(),
                };
                let now = self.context.host.now();
                match self.outbox.first_waits(queue, number, (&why, now)) {
                    Ok(pair) => self.begin(pair),
                    Err(()) => break,
                }
            } else {
                self.taken_of(queue, number, what, answer.map(|answer| answer.map(ByteBuf::into_vec)));
            }
            has_gone_on = true;
        }
        has_gone_on
    }

    /// Handles messages that were not taken. After a while, or if they fill the memory for messages, later ones are left to the log.
    fn not_taken(&self, queue: &PeerQueue, is_long: bool) {
        if (is_long || queue.pair.is_some() || self.outbox.is_full()) && self.outbox.set_unreachable(queue) {
            match &queue.pair {
                None => tracing::warn!(
                    "messages to shard {} wait in the log: the node that owns it takes none",
                    queue.to
                ),
                Some((sender, receiver)) => {
                    tracing::warn!("messages of {sender} to {receiver} wait: its node does not let it take them now")
                }
            }
        }
    }

    /// Reads the messages that were left to the log; `false` if they cannot be read.
    async fn read_queue(&self, queue: &PeerQueue, behind: Behind) -> bool {
        let group_commit = &self.executor.group_commit;
        if behind.upto.writer == group_commit.writer && group_commit.wait(behind.upto.commit.0).await.is_err() {
            return false;
        }
        // Many queues are active at once, but only one of them reads.
        let _reading = self.reading_lines.lock().await;
        let (commits, mut reached) = match group_commit.read_after(behind.read, READ_BYTES).await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!("messages to shard {} wait, it is tried again: {error}", queue.to);
                return false;
            }
        };
        let is_of_queue = |message: &Delivery| match &queue.pair {
            None => self.executor.shard_of(limits::hash(&message.to.kind, &message.to.id)) == queue.to,
            Some((sender, receiver)) => message.to == *receiver && message.taking.sender == *sender,
        };
        let mut found = VecDeque::new();
        for commit in &commits {
            found.extend(deliver::messages(commit, &group_commit.shards, is_of_queue));
            if found.len() >= WINDOW_MAX {
                reached = commit.position();
                break;
            }
        }
        self.outbox
            .has_read_of(queue, behind, found, (reached, commits.is_empty()));
        true
    }

    fn taken_of(
        &self,
        queue: &PeerQueue,
        number: (ShardId, u64),
        what: TakenAs,
        answer: Option<Result<Vec<u8>, RemoteError>>,
    ) {
        let Some(outgoing) = self.outbox.taken_of(queue, number) else {
            return;
        };
        self.context.metrics.messages.inc();
        if what == TakenAs::Dead {
            self.context.metrics.dead.inc();
        }
        let registry = &self.context.registry;
        if let (Some(mut waiter), Some(answer)) = (outgoing.waiter, answer) {
            waiter.answer.put(answer.map_err(|error| error.into_error(registry)));
            let rests_on = outgoing.sent;
            drop(waiter.tell.send(ForwardedReply {
                answer: waiter.answer,
                rests_on,
            }));
        }
    }

    /// Takes the first messages of another node's queue, as many as can be taken now. A message that this node's program
    /// does not understand delays only later ones of the same sender to the same receiver.
    pub(crate) async fn take(self: &Arc<Self>, messages: Vec<PeerMessage>) -> Reply {
        let mut taken = Vec::new();
        let mut waiting: HashMap<(Address, Address), String> = HashMap::new();
        let mut newer = None;
        let mut is_final = self
            .context
            .peers
            .as_ref()
            .is_none_or(|peers| peers.without_feature(WAITS).is_some());
        // A sender of an older release, which does not know such waits, is told that nothing was taken.
        let knows_waits = !is_final;
        let slice = Slice::new(&*self.context.host);
        for message in messages {
            slice.pause().await;
            let wants_answer = message.wants_answer;
            let Some(mut attempt) = self.attempt_of(message) else {
                break;
            };
            let Some(pair) = attempt.pair() else { break };
            if let Some(why) = waiting.get(&pair) {
                taken.push(waits(why.clone()));
                continue;
            }
            attempt.is_final = is_final;
            let one = match self.take_one(attempt, wants_answer).await {
                Err((_, Waiting::ForRelease(_))) if !knows_waits => None,
                Err((_, Waiting::ForRelease(why))) => {
                    waiting.insert(pair, why.clone());
                    Some(waits(why))
                }
                Err((mut attempt, Waiting::ForUpgrade(why))) => {
                    // One look suffices, and the senders do not wait for another: all messages had arrived before it began.
                    if newer.is_none() {
                        newer = self.context.waits_for().await;
                    }
                    match &newer {
                        Some(newer) => {
                            let why = format!("{why}; {newer}");
                            waiting.insert(pair, why.clone());
                            Some(waits(why))
                        }
                        None => {
                            is_final = true;
                            attempt.is_final = true;
                            self.take_one(attempt, wants_answer).await.unwrap_or(None)
                        }
                    }
                }
                Ok(one) => one,
            };
            match one {
                Some(one) => taken.push(one),
                None => break,
            }
        }
        // This includes messages taken earlier, for a request whose answer was lost: their records may still be on the way to the disk.
        let group_commit = &self.executor.group_commit;
        let last = group_commit.last();
        crate::executor::batch::wake_committer(&self.context);
        if taken.is_empty() || group_commit.wait(last).await.is_err() {
            return Reply::NotHere;
        }
        Reply::Taken(taken)
    }

    /// Drops the messages of this node's shards to an entity that an operator has quarantined on another node, and returns their number.
    /// `None`: some could not be dropped.
    pub(crate) async fn drop_sent(self: &Arc<Self>, to: &Address, by: &OperatorDecision<'_>) -> Option<u64> {
        let (peers, group_commit) = (self.context.peers.clone()?, &self.executor.group_commit);
        // Later messages are not meant.
        let upto = group_commit.position(group_commit.last());
        let mut dropped = 0;
        for queue in self.outbox.pairs_to(to) {
            // A queue to one of this node's own shards is skipped: the shard's owner has read the log.
            while !group_commit.shards.contains(queue.to) {
                let mut last = 0;
                let next = self.outbox.next_of(&queue, MESSAGES_MAX, |outgoing| {
                    if outgoing.sent.writer == group_commit.writer {
                        last = outgoing.sent.commit.0.max(last);
                    }
                    (outgoing.sent <= upto).then(|| message(outgoing))
                });
                let messages: Vec<PeerMessage> = match next {
                    Next::Nothing => break,
                    Next::Read(behind) => match self.read_queue(&queue, behind).await {
                        true => continue,
                        false => return None,
                    },
                    Next::Send(messages) => messages.into_iter().map_while(|message| message).collect(),
                };
                if messages.is_empty() {
                    break;
                }
                let numbers: Vec<_> = messages.iter().map(number).collect();
                group_commit.wait(last).await.ok()?;
                let request = Request::DropMessages {
                    messages,
                    by: by.by.clone().into_owned(),
                    reason: by.reason.clone().into_owned(),
                };
                let Reply::Taken(taken) = peers.ask(queue.to, request, WITHIN).await else {
                    return None;
                };
                for (number, (what, _)) in numbers.into_iter().zip(taken) {
                    self.taken_of(&queue, number, what, None);
                    dropped += 1;
                }
            }
        }
        Some(dropped)
    }

    /// Drops messages from another node to an entity of this node that an operator has quarantined.
    pub(crate) async fn drop_messages(&self, messages: Vec<PeerMessage>, (by, reason): (String, String)) -> Reply {
        let number = messages.len();
        let outgoing: Option<Vec<_>> = messages.iter().map(outgoing_of).collect();
        let Some(outgoing) = outgoing else {
            return Reply::NotHere;
        };
        let Some(to) = outgoing.first().map(|first| first.delivery.to.clone()) else {
            return Reply::Taken(Vec::new());
        };
        let by = OperatorDecision::new(by, reason);
        self.room_to_remove().await;
        let dropped = self.executor.drop_waiting(&to, outgoing, by).await;
        let group_commit = &self.executor.group_commit;
        let last = group_commit.last();
        match dropped {
            Ok(Some(_)) if group_commit.wait(last).await.is_ok() => {
                Reply::Taken(vec![(TakenAs::Refused, None); number])
            }
            _ => Reply::NotHere,
        }
    }

    /// Returns a message as an attempt, the next in its queue; `None` if it cannot be read.
    fn attempt_of(&self, message: PeerMessage) -> Option<Attempt<'static>> {
        let wants_answer = message.wants_answer;
        let outgoing = outgoing_of(&message)?;
        let mut attempt = deliver::attempt(&self.context, outgoing);
        if wants_answer {
            attempt.answer = AnswerSlot::Json(JsonReply::default());
        }
        Some(attempt)
    }

    /// Takes one message; `None` if neither it nor later ones can be taken now.
    ///
    /// # Errors
    /// The message is not understood, or its receiver is quarantined by an operator.
    async fn take_one(
        &self,
        mut attempt: Attempt<'static>,
        wants_answer: bool,
    ) -> Result<Option<Taken>, (Attempt<'static>, Waiting)> {
        let progress = self.executor.try_now(&mut attempt);
        let (mut attempt, outcome) = match self.executor.carry(attempt, progress).await {
            Ok((attempt, Carried::Done(outcome))) => (attempt, outcome),
            Ok((attempt, Carried::NotUnderstood(why))) => return Err((attempt, Waiting::ForUpgrade(why))),
            Ok((attempt, Carried::Quarantined(why))) => return Err((attempt, Waiting::ForRelease(why))),
            _ => return Ok(None),
        };
        if std::mem::take(&mut attempt.has_sent) {
            self.context.signals.deliver.wake();
        }
        let answer = match attempt.answer {
            AnswerSlot::Json(JsonReply { error: Some(error), .. }) => Some(Err((*error).into())),
            AnswerSlot::Json(reply) if wants_answer => Some(Ok(ByteBuf::from(reply.body))),
            _ => None,
        };
        Ok(Some((outcome.into(), answer)))
    }
}

/// The reason why a message waits at its sender.
enum Waiting {
    /// A newer program may understand it.
    ForUpgrade(String),
    /// An operator has quarantined its receiver.
    ForRelease(String),
}

/// The outcome of a message, and its answer.
type Taken = (TakenAs, Option<Result<ByteBuf, RemoteError>>);

fn waits(why: String) -> Taken {
    (TakenAs::Waits, Some(Err(RemoteError::Unavailable(why))))
}

fn number(message: &PeerMessage) -> (ShardId, u64) {
    (ShardId(message.from), message.number)
}

/// A message as the message that it is; `None`: it cannot be read.
fn outgoing_of(message: &PeerMessage) -> Option<Box<Outgoing>> {
    let sender = Address::new(&*message.sender.0, &*message.sender.1);
    match Delivery::of_parts(number(message), sender, &message.name, &message.body, 0) {
        Ok(delivery) => Some(Box::new(Outgoing {
            delivery,
            waiter: None,
            sent: Position::default(),
            // Messages come in order, so none is before this one.
            is_first_in_line: true,
            is_in_hand: false,
            is_charged: false,
        })),
        Err(why) => {
            tracing::error!("a message of another node cannot be read, it waits there: {why}");
            None
        }
    }
}

fn message(outgoing: &Outgoing) -> PeerMessage {
    let (delivery, taking) = (&outgoing.delivery, &outgoing.delivery.taking);
    PeerMessage {
        from: taking.from.0,
        number: taking.number,
        sender: (taking.sender.kind.to_string(), taking.sender.id.to_string()),
        name: taking.name.clone().into_owned(),
        body: serde_json::to_vec(&delivery.envelope()).unwrap_or_default(),
        wants_answer: outgoing.waiter.is_some(),
    }
}
