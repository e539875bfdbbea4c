//! Messages to shards whose locks are busy.
//!
//! The holder of a shard's lock executes what waits in the shard's inbox before it releases the lock. It may be a gateway's loop that only
//! looks at the shard. If each message that it executes were followed by another one, it would never finish. So a shard's inbox is given a
//! few messages, and no more until all of them are executed.

use super::{
    Outbox, Window,
    message::{Outgoing, hash_of},
};
use throng_core::limits;
use throng_journal::ShardId;

/// The most messages in the inbox of one shard: a few milliseconds of work for the holder of its lock.
const INBOX_MAX: i64 = 64;

impl Window {
    /// Returns the next message whose shard's inbox has room. Earlier messages are held back until their inbox is empty.
    pub(super) fn next(&mut self, shards: u16, slow: &mut usize) -> Option<Box<Outgoing>> {
        loop {
            let outgoing = self.next_in_turn(slow)?;
            if self.inboxes.shards.is_empty() {
                return Some(outgoing);
            }
            let shard = limits::shard_of(hash_of(&outgoing.delivery.to), shards);
            match self.inboxes.shards.get_mut(&shard) {
                Some(inbox) if inbox.messages >= INBOX_MAX || inbox.is_emptied || !inbox.held.is_empty() => {
                    self.inboxes.held_len += 1;
                    inbox.held.push_back(outgoing);
                }
                _ => return Some(outgoing),
            }
        }
    }
}

impl Outbox {
    /// Counts a message that was put into the inbox of a shard.
    pub(crate) fn move_to_inbox(&self, shard: ShardId) {
        self.with(|window| window.count_inbox(shard, 1));
    }

    /// Counts an executed message of a shard's inbox. After the last one, the messages held back for the inbox are next.
    pub(crate) fn out_of_inbox(&self, shard: ShardId) {
        self.with(|window| window.count_inbox(shard, -1));
    }
}

impl Window {
    fn count_inbox(&mut self, shard: ShardId, more: i64) {
        let inbox = self.inboxes.shards.entry(shard).or_default();
        inbox.messages += more;
        inbox.is_emptied |= more < 0;
        if inbox.messages == 0
            && let Some(inbox) = self.inboxes.shards.remove(&shard)
        {
            self.inboxes.held_len -= inbox.held.len();
            inbox
                .held
                .into_iter()
                .rev()
                .for_each(|outgoing| self.put_first(outgoing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use throng_core::shard::Delivery;
    use throng_journal::{Address, CommitNo, Position, WriterId};

    const SHARDS: u16 = 2;

    /// Returns the id of an entity in this shard.
    fn id(shard: u16) -> String {
        let is_there = |id: &String| limits::shard_of(limits::hash("kind", id), SHARDS) == ShardId(shard);
        (0..).map(|number: u32| number.to_string()).find(is_there).unwrap()
    }

    fn message(shard: u16, number: u64) -> Box<Outgoing> {
        let body = serde_json::to_vec(&serde_json::json!({ "to": ["kind", id(shard)], "command": {} })).unwrap();
        let sender = Address::new("kind", "sender");
        Box::new(Outgoing::new(
            Delivery::of_parts((ShardId(0), number), sender, "go", &body, number).unwrap(),
            Position::new(WriterId(1), CommitNo(number)),
        ))
    }

    fn outbox() -> Outbox {
        Outbox::new(SHARDS, (usize::MAX, usize::MAX), Arc::default())
    }

    /// Takes a message, and puts it into the inbox of its shard.
    fn move_to_inbox(outbox: &Outbox) -> u64 {
        let mut outgoing = outbox.take(&mut 1).unwrap();
        let to = &outgoing.delivery.to;
        outbox.move_to_inbox(limits::shard_of(limits::hash(&to.kind, &to.id), SHARDS));
        outbox.taken(&mut outgoing);
        outgoing.number().1
    }

    #[test]
    fn full_inbox_holds_its_shards_messages_and_no_others() {
        let (outbox, most) = (outbox(), INBOX_MAX.unsigned_abs());
        outbox.push((1..=most + 2).map(|number| message(0, number)));
        (1..=most).for_each(|number| assert_eq!(move_to_inbox(&outbox), number));
        outbox.push([message(1, 1), message(0, most + 3)]);
        let mut other = outbox.take(&mut 1).unwrap();
        assert_eq!(*other.delivery.to.id, *id(1));
        outbox.taken(&mut other);
        assert!(outbox.take(&mut 1).is_none() && !outbox.has_more() && !outbox.is_empty());
        assert_eq!(outbox.len(), 3);
        assert_eq!(outbox.oldest().unwrap().commit, CommitNo(most));
        // Messages being executed count as well.
        (1..most).for_each(|_| outbox.out_of_inbox(ShardId(0)));
        assert!(outbox.take(&mut 1).is_none());
        outbox.out_of_inbox(ShardId(0));
        let rest = [0; 3].map(|_| move_to_inbox(&outbox));
        assert_eq!(rest, [most + 1, most + 2, most + 3], "in their order");
    }

    #[test]
    fn inbox_that_is_being_emptied_is_not_filled_again() {
        let outbox = outbox();
        outbox.push((1..=3).map(|number| message(0, number)));
        assert_eq!([move_to_inbox(&outbox), move_to_inbox(&outbox)], [1, 2]);
        outbox.out_of_inbox(ShardId(0));
        assert!(outbox.take(&mut 1).is_none());
        outbox.out_of_inbox(ShardId(0));
        assert_eq!(move_to_inbox(&outbox), 3);
    }

    #[test]
    fn message_that_is_executed_before_it_is_counted_holds_nothing() {
        let outbox = outbox();
        outbox.out_of_inbox(ShardId(0));
        outbox.move_to_inbox(ShardId(0));
        outbox.push([message(0, 1)]);
        assert_eq!(move_to_inbox(&outbox), 1);
    }

    #[test]
    fn quarantine_leaves_held_messages_to_the_log() {
        let outbox = outbox();
        outbox.push((1..=3).map(|number| message(0, number)));
        move_to_inbox(&outbox);
        move_to_inbox(&outbox);
        outbox.out_of_inbox(ShardId(0));
        assert!(outbox.take(&mut 1).is_none());
        outbox.quarantine(&Address::new("kind", id(0)), "", Default::default());
        assert_eq!(outbox.len(), 0);
        outbox.out_of_inbox(ShardId(0));
        assert!(outbox.take(&mut 1).is_none() && outbox.is_empty());
    }
}
