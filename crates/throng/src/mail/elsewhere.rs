//! Messages to entities of other nodes, and from them.
//!
//! A message leaves once it is durable, in the order of its shard, and is sent again until it was taken: its receiver's shard knows by
//! its number whether it was, wherever that shard lives by then.

use super::{
    Mail,
    deliver::{self, READ_BYTES},
};
use crate::{
    door::{Answer, Behind, Carried, ForwardedReply, Next, Outgoing},
    driver::peers::{Letter, RemoteError, Reply, Request, TakenAs},
};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};
use throng_core::{
    limits,
    shard::{Delivery, JsonReply},
};
use throng_journal::{Address, Position, ShardId};

/// Messages of one shard sent at a time.
const LETTERS_MAX: usize = 256;
/// Messages of one shard read from the log at a time, and those of one commit more.
const WINDOW_MAX: usize = 4 * LETTERS_MAX;
/// How long an owner may take.
const WITHIN: Duration = Duration::from_secs(5);
/// How soon it is tried again when nobody has taken them; the pause doubles up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Mail {
    /// Sends what waits for a shard of another node, until nothing does.
    pub(super) async fn deliver_elsewhere(self: Arc<Self>, to: ShardId) {
        let Some(peers) = self.context.peers.clone() else {
            return;
        };
        let ledger = &self.door.ledger;
        let mut pause = RETRY.0;
        while !ledger.is_over() {
            let mut last = 0;
            let next = self.outbox.next_elsewhere(to, LETTERS_MAX, |outgoing| {
                if outgoing.sent.writer == ledger.writer {
                    last = outgoing.sent.commit.0.max(last);
                }
                letter(outgoing)
            });
            match next {
                Next::Nothing => return,
                Next::Read(behind) => {
                    if self.read_elsewhere(to, behind).await {
                        continue;
                    }
                }
                Next::Send(letters) => {
                    if ledger.wait(last).await.is_err() || ledger.is_over() {
                        return;
                    }
                    match peers.ask(to, Request::Take(letters), WITHIN).await {
                        Reply::Taken(taken) if !taken.is_empty() => {
                            pause = RETRY.0;
                            for (what, answer) in taken {
                                self.taken_elsewhere(to, what, answer.map(|answer| answer.map(ByteBuf::into_vec)));
                            }
                            continue;
                        }
                        _ => self.not_taken(to, pause),
                    }
                }
            }
            self.context.host.sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    /// Nobody has taken the next ones. After a while, or when they leave no room for others, those that follow are left to the log.
    fn not_taken(&self, to: ShardId, pause: Duration) {
        if (pause == RETRY.1 || self.outbox.is_full()) && self.outbox.set_unreachable(to) {
            tracing::warn!("messages to shard {to} wait in the log: the node that owns it takes none");
        }
    }

    /// Reads what was left to the log; `false`: it could not be read.
    async fn read_elsewhere(&self, to: ShardId, behind: Behind) -> bool {
        let ledger = &self.door.ledger;
        if behind.upto.writer == ledger.writer && ledger.wait(behind.upto.commit.0).await.is_err() {
            return false;
        }
        // Of many shards that are reached again, one at a time.
        let _reading = self.reading_elsewhere.lock().await;
        let (commits, mut reached) = match ledger.read_after(behind.read, READ_BYTES).await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!("messages to shard {to} wait, it is tried again: {error}");
                return false;
            }
        };
        let is_to = |receiver: &Address| self.door.shard_of(limits::hash(&receiver.kind, &receiver.id)) == to;
        for commit in &commits {
            let messages = deliver::messages(commit, &ledger.shards, is_to);
            if !self.outbox.append_elsewhere(to, messages, WINDOW_MAX) {
                reached = commit.position();
                break;
            }
        }
        self.outbox.has_read_elsewhere(to, behind, reached, commits.is_empty());
        true
    }

    fn taken_elsewhere(&self, to: ShardId, what: TakenAs, answer: Option<Result<Vec<u8>, RemoteError>>) {
        let Some(outgoing) = self.outbox.taken_elsewhere(to) else {
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

    /// Takes what an entity of another node has sent: the first ones, as many as can be taken now.
    pub(crate) async fn take(self: &Arc<Self>, letters: Vec<Letter>) -> Reply {
        let mut taken = Vec::new();
        for letter in letters {
            match self.take_one(letter).await {
                Some(one) => taken.push(one),
                None => break,
            }
        }
        // Also what was taken before, by a request whose answer was lost: its record may still be on its way to the disk.
        let ledger = &self.door.ledger;
        let last = ledger.last();
        crate::door::turn::wake_committer(&self.context);
        if taken.is_empty() || ledger.wait(last).await.is_err() {
            return Reply::NotHere;
        }
        Reply::Taken(taken)
    }

    /// `None`: it cannot be taken now, nor what follows it.
    async fn take_one(self: &Arc<Self>, letter: Letter) -> Option<(TakenAs, Option<Result<ByteBuf, RemoteError>>)> {
        let wants_answer = letter.wants_answer;
        let sender = Address::new(letter.sender.0, letter.sender.1);
        let number = (ShardId(letter.from), letter.number);
        let delivery = match Delivery::of_parts(number, sender, &letter.name, &letter.body, 0) {
            Ok(delivery) => delivery,
            Err(why) => {
                tracing::error!("a message of another node cannot be read, it waits there: {why}");
                return None;
            }
        };
        let outgoing = Box::new(Outgoing {
            delivery,
            waiter: None,
            sent: Position::default(),
            // It comes in order: nobody is before it.
            is_first_in_line: true,
        });
        let mut attempt = deliver::attempt(&self.context, outgoing);
        if wants_answer {
            attempt.answer = Answer::Json(JsonReply::default());
        }
        let progress = self.door.try_now(&mut attempt);
        let (mut attempt, Carried::Done(outcome)) = self.door.carry(attempt, progress).await.ok()? else {
            return None;
        };
        if std::mem::take(&mut attempt.has_sent) {
            self.context.signals.deliver.wake();
        }
        let answer = match attempt.answer {
            Answer::Json(JsonReply { error: Some(error), .. }) => Some(Err((*error).into())),
            Answer::Json(reply) if wants_answer => Some(Ok(ByteBuf::from(reply.body))),
            _ => None,
        };
        Some((outcome.into(), answer))
    }
}

fn letter(outgoing: &Outgoing) -> Letter {
    let (delivery, taking) = (&outgoing.delivery, &outgoing.delivery.taking);
    Letter {
        from: taking.from.0,
        number: taking.number,
        sender: (taking.sender.kind.to_string(), taking.sender.id.to_string()),
        name: taking.name.clone().into_owned(),
        body: serde_json::to_vec(&delivery.envelope()).unwrap_or_default(),
        wants_answer: outgoing.waiter.is_some(),
    }
}
