//! A message in memory, and the part of the messages that is only in the log.

use crate::executor::answer::{AnswerSlot, ForwardedReply};
use throng_core::{credit::Credit, limits, shard::Delivery};
use throng_journal::{Address, CommitNo, Position, ShardId};
use tokio::sync::oneshot;

/// A message in memory.
pub(crate) struct Outgoing {
    pub(crate) delivery: Delivery,
    pub(crate) waiter: Option<Waiter>,
    /// The commit that sent it: of this writer, or of an earlier one whose log was read.
    pub(crate) sent: Position,
    /// True for the first of the messages that wait for its receiver.
    pub(crate) is_first_in_line: bool,
    /// True while it is [taken](super::Outbox::take) out of the outbox for delivery. The outbox keeps room for it.
    pub(crate) is_in_hand: bool,
    /// Counts against its sender's [credit](super::Window::credit).
    pub(crate) is_charged: bool,
}

/// A task that waits for the answer to a command that was forwarded as a message.
pub(crate) struct Waiter {
    pub(crate) answer: AnswerSlot,
    pub(crate) tell: oneshot::Sender<ForwardedReply>,
}

/// A message on its way, to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The sending shard, and the message's number there.
    pub number: (ShardId, u64),
    /// The entity that gets its reply or refusal.
    pub sender: Address,
    /// May not exist, or may be unable to load.
    pub receiver: Address,
    /// The command it carries.
    pub name: String,
    /// The place in the journal of the commit that sent it.
    pub sent: Position,
}

impl Outgoing {
    pub(crate) fn new(delivery: Delivery, sent: Position) -> Self {
        Self {
            delivery,
            waiter: None,
            sent,
            is_first_in_line: false,
            is_in_hand: false,
            is_charged: false,
        }
    }

    /// Returns the sending shard, and the message's number from there to its receiver's shard.
    pub(super) fn number(&self) -> (ShardId, u64) {
        (self.delivery.taking.from, self.delivery.taking.number)
    }

    pub(super) fn view(&self) -> Pending {
        let taking = &self.delivery.taking;
        Pending {
            number: self.number(),
            sender: taking.sender.clone(),
            receiver: self.delivery.to.clone(),
            name: taking.name.clone().into_owned(),
            sent: self.sent,
        }
    }

    /// Returns about how many bytes it takes in memory, recorded and typed form together.
    pub(super) fn bytes(&self) -> usize {
        2 * self.delivery.taking.command.get().len() + 512
    }

    /// Gives its sender the credit for it back.
    pub(super) fn give_back(&mut self, credit: &mut Credit) {
        if std::mem::take(&mut self.is_charged) {
            credit.give_back(hash_of(&self.delivery.taking.sender), self.bytes() as u64);
        }
    }
}

/// A part of the log whose messages are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The position up to which it has been read.
    pub(crate) read: Position,
    /// Messages of later commits are in memory.
    pub(crate) upto: Position,
}

impl Behind {
    /// A message of this commit.
    pub(super) fn of(sent: Position) -> Self {
        Self {
            read: before(sent),
            upto: sent,
        }
    }

    /// Extends it to the commit of another message.
    pub(super) fn add(&mut self, sent: Position) {
        self.read = self.read.min(before(sent));
        self.upto = self.upto.max(sent);
    }

    /// Notes that the log was read up to here, starting from `seen`. Returns true if nothing is left.
    pub(super) fn has_read(&mut self, seen: Self, read: Position, is_end: bool) -> bool {
        if self.read < seen.read {
            // An earlier message was left to the log meanwhile.
            return false;
        }
        self.read = read;
        // Everything up to the end known at that time has been read; more may have been sent since.
        read >= self.upto || (is_end && self.upto == seen.upto)
    }
}

/// Returns the position of the commit before.
pub(super) fn before(at: Position) -> Position {
    Position::new(at.writer, CommitNo(at.commit.0.saturating_sub(1)))
}

pub(super) fn hash_of(address: &Address) -> u64 {
    limits::hash(&address.kind, &address.id)
}
