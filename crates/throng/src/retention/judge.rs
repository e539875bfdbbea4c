//! Decides which records are no longer needed, one record at a time, without I/O.

use std::collections::{HashMap, HashSet};
use throng_core::{
    limits,
    model::Timestamp,
    shard::{Envelope, MessageCounts, dead_row, is_key_over, timer_print, undoes_what_was_left},
};
use throng_journal::{Address, CommitNo, Position, Positions, Record, RecordKind, ShardId, ShardSet, Stamp};

/// The part of one entity's history to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Going {
    /// Events up to this number.
    pub(super) upto: u64,
    /// The event whose resulting state is in the log, and that state's position.
    pub(super) base: (u64, Position),
    /// True if the entity has ended and is to be removed completely.
    pub(super) is_gone: bool,
}

/// The end of an entity that is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Erasing {
    /// Its last event.
    pub(super) seq: u64,
    /// The commit of that end.
    pub(super) at: Position,
}

/// The progress of erasures that the journal cut off.
pub(super) type CutOff = HashMap<Address, (Erasing, Positions)>;

impl Erasing {
    /// True if a record belongs to the entity before its erasure, and not to one created anew since.
    fn reaches(self, record: &Record<'_>, at: Position) -> bool {
        at < self.at || (at == self.at && record.seq <= self.seq)
    }

    /// Returns the position at which a later attempt continues after this one reached `reached`. A repeated request ends the entity
    /// again. Records written between both ends were not overwritten, so the later attempt goes back to the first end.
    pub(super) fn left_by(self, reached: Positions, later: Self) -> Positions {
        let Position { writer, commit } = self.at;
        let is_begun = reached.positions().any(|at| at.writer >= writer);
        if self == later || !is_begun {
            return reached;
        }
        let before_end = CommitNo(commit.0.saturating_sub(1));
        let before_end = reached.upto_of(writer).map_or(before_end, |upto| upto.min(before_end));
        let before = reached.positions().filter(|at| at.writer < writer);
        let last = Position::new(writer, before_end);
        before.chain([last]).collect()
    }
}

/// The facts by which records are judged. They were durable when collected, and stay true.
#[derive(Default)]
pub(super) struct Plan {
    /// Only records of these shards are judged by their age. The owners of other shards judge those.
    pub(super) shards: ShardSet,
    /// The positions up to which records of a kind are examined. Records of other kinds stay.
    pub(super) horizons: HashMap<Box<str>, Position>,
    /// True if the pass examines the whole journal, from its beginning.
    pub(super) is_whole: bool,
    pub(super) entities: HashMap<Address, Going>,
    /// The erased entities: everything of them up to that position is removed, whatever their kinds keep.
    pub(super) erased: HashMap<Address, Erasing>,
    /// The number of messages that each shard has taken, and the position of the record that says so.
    pub(super) counts: HashMap<ShardId, (MessageCounts, Position)>,
    /// The positions up to which each shard's messages were taken, durably and covered by a checkpoint. Set in a cluster, where a shard's
    /// messages may go to other nodes.
    pub(super) taken_upto: Option<Vec<Position>>,
    /// The timers that are set.
    pub(super) timers: HashSet<u64>,
    /// The rows of messages that are dead.
    pub(super) dead: HashSet<Vec<u8>>,
    pub(super) now: Timestamp,
    /// All of this is true of the history up to this commit.
    pub(super) known_at: Position,
}

impl Plan {
    pub(super) fn is_over(&self, record: &Record<'_>, stamp: Stamp) -> bool {
        let at = stamp.position();
        match record.record {
            RecordKind::Ended | RecordKind::Erasure | RecordKind::Loss | RecordKind::Removed => return false,
            RecordKind::Numbers => return self.counts_of(record.shard).is_some_and(|(_, since)| at < *since),
            _ => {}
        }
        if !self.erased.is_empty() && self.is_of_erased(record, at) {
            return record.record != RecordKind::Sent || self.was_taken(record, at);
        }
        let is_looked_at =
            self.shards.contains(record.shard) && self.horizons.get(record.kind).is_some_and(|horizon| at <= *horizon);
        is_looked_at && self.is_over_by_age(record, at)
    }

    fn is_over_by_age(&self, record: &Record<'_>, at: Position) -> bool {
        let own = || Address::new(record.kind, record.id);
        let going = || self.entities.get(&own());
        match record.record {
            RecordKind::Event => going().is_some_and(|going| record.seq <= going.upto),
            RecordKind::State => going().is_some_and(|going| going.is_gone || at < going.base.1),
            RecordKind::Family => going().is_some_and(|going| going.is_gone || at < going.base.1),
            RecordKind::Key => is_key_over(record.body, self.now),
            RecordKind::TimerSet => {
                let print = |at| timer_print((record.kind, record.id, record.name), record.body, at);
                !self.timers.contains(&print(None)) && !self.timers.contains(&print(Some(at)))
            }
            RecordKind::Command => true,
            RecordKind::Sent => self.was_taken(record, at),
            RecordKind::Taken if record.name == "dead" => {
                let number = (ShardId(record.version), record.seq);
                !self.dead.contains(&dead_row(&own(), number))
            }
            // Such a record is removed after the one that it cancels. Otherwise that one would count again if the store is lost.
            RecordKind::TimerCleared | RecordKind::Taken => self.is_whole || !undoes_what_was_left(record),
            _ => false,
        }
    }

    fn counts_of(&self, shard: ShardId) -> Option<&(MessageCounts, Position)> {
        self.counts.get(&shard)
    }

    fn was_taken(&self, record: &Record<'_>, at: Position) -> bool {
        if let Some(upto) = &self.taken_upto {
            return upto.get(usize::from(record.shard.0)).is_some_and(|upto| at <= *upto);
        }
        let Some((kind, id)) = receiver(record) else {
            return false;
        };
        let shards = u16::try_from(self.counts.len()).unwrap_or(u16::MAX);
        let shard = limits::shard_of(limits::hash(&kind, &id), shards.max(1));
        self.counts_of(shard)
            .is_some_and(|(counts, _)| counts.has_taken(record.shard, record.seq))
    }

    /// True for an erased entity's own records, and for messages to it.
    fn is_of_erased(&self, record: &Record<'_>, at: Position) -> bool {
        let is_erased = |address: &Address, seq_counts: bool| {
            self.erased.get(address).is_some_and(|erasing| match seq_counts {
                true => erasing.reaches(record, at),
                false => at <= erasing.at,
            })
        };
        if is_erased(&Address::new(record.kind, record.id), record.record != RecordKind::Sent) {
            return true;
        }
        record.record == RecordKind::Sent
            && receiver(record).is_some_and(|(kind, id)| {
                let to = Address::new(&*kind, &*id);
                // Streams of other nodes' shards are neither before nor after the end in this one's. Messages taken there are no longer
                // needed.
                is_erased(&to, false) || self.taken_upto.is_some() && self.erased.contains_key(&to)
            })
    }
}

fn receiver(record: &Record<'_>) -> Option<(String, String)> {
    let envelope: Envelope<'_> = serde_json::from_slice(record.body).ok()?;
    Some((envelope.to.0.into_owned(), envelope.to.1.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{CommitBuilder, WriterId};

    fn at(writer: u64, commit: u64) -> Position {
        Position::new(WriterId(writer), CommitNo(commit))
    }

    /// Returns the expired records of a commit, in a stream that ended with the shards 1 and 2: shard, kind of record and number.
    fn over(plan: &Plan, stands: Position) -> Vec<(u16, RecordKind, u64)> {
        let mut open = CommitBuilder::default();
        let message = br#"{"to":["diary","gone"],"command":null}"#;
        for shard in [1, 2] {
            let own = Address::new("diary", format!("of {shard}"));
            let mut push = |record, seq, body: &[u8]| open.push(record, ShardId(shard), &own, seq, "", 0, body);
            push(RecordKind::Event, 6, b"");
            push(RecordKind::Event, 7, b"");
            push(RecordKind::State, 5, b"");
            push(RecordKind::Sent, 1, message);
            push(RecordKind::Taken, 1, b"");
            push(RecordKind::TimerSet, 0, b"");
            push(RecordKind::Numbers, 0, b"");
        }
        let commit = open.finish(Stamp::new(stands.writer, stands.commit, 5));
        let records = commit.records().flatten();
        let over = records.filter(|record| plan.is_over(record, commit.stamp()));
        over.map(|record| (record.shard.0, record.record, record.seq)).collect()
    }

    /// Returns the plan of a node that owns shard 1 and writes the ninth stream.
    fn plan() -> Plan {
        let going = Going {
            upto: 6,
            base: (6, at(9, 3)),
            is_gone: false,
        };
        Plan {
            shards: [ShardId(1)].into_iter().collect(),
            horizons: [("diary".into(), at(8, 40))].into(),
            // This node knows nothing of the entity in shard 2. Such knowledge would have to be ignored.
            entities: [1, 2]
                .map(|shard| (Address::new("diary", format!("of {shard}")), going))
                .into(),
            counts: [(ShardId(1), (MessageCounts::default(), at(9, 4)))].into(),
            taken_upto: Some(vec![at(0, 0), at(8, 20), at(0, 0)]),
            ..Plan::default()
        }
    }

    #[test]
    fn node_judges_only_records_of_its_shards() {
        let own = |record, seq| (1, record, seq);
        let of_timers = own(RecordKind::TimerSet, 0);
        let (event, state) = (own(RecordKind::Event, 6), own(RecordKind::State, 5));
        let (sent, taken, numbers) = (
            own(RecordKind::Sent, 1),
            own(RecordKind::Taken, 1),
            own(RecordKind::Numbers, 0),
        );
        assert_eq!(
            over(&plan(), at(8, 20)),
            [event, state, sent, taken, of_timers, numbers]
        );
        // A message not yet taken, as far as covered, stays.
        assert_eq!(over(&plan(), at(8, 21)), [event, state, taken, of_timers, numbers]);
        // In commits that have not expired, only records superseded by newer numbers may go.
        assert_eq!(over(&plan(), at(8, 41)), [numbers]);
        assert_eq!(over(&plan(), at(9, 4)), []);
    }

    #[test]
    fn undoing_records_go_only_after_the_undone_ones() {
        let mut open = CommitBuilder::default();
        let own = Address::new("diary", "of 1");
        let mut push = |record, seq, shape: (&str, u16), body: &[u8]| {
            open.push(record, ShardId(1), &own, seq, shape.0, shape.1, body);
        };
        push(RecordKind::TimerCleared, 0, ("left", 0), b"");
        push(RecordKind::TimerCleared, 0, ("gone", 1), b"");
        push(RecordKind::Taken, 1, ("done", 1), b"");
        push(RecordKind::Taken, 2, ("done", 1), br#"{"retried":true,"reason":""}"#);
        push(RecordKind::Taken, 3, ("dropped", 1), br#"{"by":"a","reason":"b"}"#);
        let commit = open.finish(Stamp::new(WriterId(8), CommitNo(35), 5));
        let stays = |is_whole| {
            let plan = Plan { is_whole, ..plan() };
            let records = commit.records().flatten();
            let stays = records.filter(|record| !plan.is_over(record, commit.stamp()));
            stays
                .map(|record| (record.name.to_owned(), record.seq))
                .collect::<Vec<_>>()
        };
        let named = |name: &str, seq| (name.to_owned(), seq);
        assert_eq!(stays(false), [named("left", 0), named("done", 2), named("dropped", 3)]);
        assert_eq!(stays(true), []);
    }

    #[test]
    fn erasure_reaches_messages_sent_by_other_nodes() {
        let erased = [(Address::new("diary", "gone"), Erasing { seq: 3, at: at(9, 1) })];
        let plan = Plan {
            erased: erased.into(),
            taken_upto: Some(vec![at(0, 0), at(8, 20), at(7, 5)]),
            ..Plan::default()
        };
        let sent = |shard| (shard, RecordKind::Sent, 1);
        assert_eq!(over(&plan, at(7, 5)), [sent(1), sent(2)]);
        assert_eq!(over(&plan, at(8, 3)), [sent(1)]);
    }

    #[test]
    fn later_erasure_goes_on_from_the_cut_to_its_end() {
        let (first, later) = (Erasing { seq: 5, at: at(2, 8) }, Erasing { seq: 7, at: at(3, 1) });
        let left = |reached: &str, later| first.left_by(reached.parse().unwrap(), later).to_string();
        assert_eq!(left("3.0", first), "3.0");
        assert_eq!(left("1.4", later), "1.4");
        assert_eq!(left("3.0", later), "2.7");
        assert_eq!(left("2.5", later), "2.5");
        // Earlier streams of other nodes are processed only from the position reached before.
        assert_eq!(left("1.4,2.9,3.6", later), "1.4,2.7");
    }
}
