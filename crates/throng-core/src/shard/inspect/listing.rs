//! The entities of a kind that have events the store may not have indexed, in the order of their ids.
//!
//! Nothing is kept for the listing until it is requested. The first page after a checkpoint sorts the ids that have changed since. Each
//! further page sorts only new ids, so it costs as much as it shows.

use crate::{model::Entity, shard::resident::Entities};
use std::{collections::BTreeMap, ops::Bound};
use throng_journal::Position;

impl<E: Entity> Entities<E> {
    /// Adds ids after this one to `found`, each with the number of its last durable event, as long as they are among the first `limit`.
    pub(crate) fn fresh_ids(
        &mut self,
        after: Option<&str>,
        limit: usize,
        found: &mut BTreeMap<Box<str>, u64>,
        durable: Position,
    ) {
        let mut listing = std::mem::take(&mut self.listing);
        for hash in &self.traces()[listing.traces..] {
            let changed = self.slots_of(*hash).filter(|slot| slot.trace.is_some());
            listing.ids.extend(changed.map(|slot| (slot.text.clone(), slot.hash)));
        }
        listing.traces = self.traces().len();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (id, hash) in listing.ids.range::<str, _>((from, Bound::Unbounded)) {
            if found.len() >= limit && found.last_key_value().is_none_or(|(last, _)| last <= id) {
                break;
            }
            let trace = self.find(*hash, id).and_then(|at| self.peek(at).trace.as_ref());
            let tail = trace.map_or(&[][..], |trace| &trace.tail);
            let last = tail.iter().rev().find(|event| event.place.position <= durable);
            if let Some(last) = last {
                found.insert(id.clone(), last.seq);
                if found.len() > limit {
                    found.pop_last();
                }
            }
        }
        self.listing = listing;
    }
}

#[cfg(test)]
mod tests {
    use crate::shard::{
        Recalled,
        tests::{Bench, Command, FIRST},
    };
    use std::collections::BTreeMap;
    use throng_journal::{CommitNo, Position};

    fn page(bench: &mut Bench, after: Option<&str>, limit: usize) -> Vec<String> {
        let mut found = BTreeMap::new();
        bench.shard.fresh(0, after, limit, &mut found, FIRST);
        found.into_keys().map(Into::into).collect()
    }

    /// Creates an account. If the filter may know the id, the store is asked first, and does not find it.
    fn open(bench: &mut Bench, id: &str) {
        let hash = crate::limits::hash("account", id);
        bench.shard.loaded(0, hash, id, Recalled::default());
        bench.ask(id, Command::Deposit { amount: 1 }).unwrap();
    }

    #[test]
    fn a_page_has_the_next_ids_up_to_its_limit() {
        let mut bench = Bench::new();
        let mut ids: Vec<String> = (0..500).map(|n| format!("a{n}")).collect();
        for id in &ids[..300] {
            open(&mut bench, id);
        }
        assert_eq!(page(&mut bench, None, 3), ["a0", "a1", "a10"]);
        assert!(page(&mut bench, None, 0).is_empty());
        for id in &ids[300..] {
            open(&mut bench, id);
        }
        ids.sort();
        let mut paged: Vec<String> = Vec::new();
        loop {
            let next = page(&mut bench, paged.last().map(String::as_str), 7);
            assert!(next.len() <= 7);
            if next.is_empty() {
                break;
            }
            paged.extend(next);
        }
        assert_eq!(paged, ids);
    }

    #[test]
    fn ids_of_several_shards_share_a_page() {
        let (mut one, mut other, mut found) = (Bench::new(), Bench::new(), BTreeMap::new());
        for (bench, ids) in [(&mut one, ["a", "c", "e"]), (&mut other, ["b", "d", "f"])] {
            for id in ids {
                bench.ask(id, Command::Many { events: 2 }).unwrap();
            }
            bench.shard.fresh(0, None, 3, &mut found, FIRST);
            assert_eq!(found.len(), 3);
        }
        assert_eq!(
            found,
            [("a", 2), ("b", 2), ("c", 2)].map(|(id, seq)| (id.into(), seq)).into()
        );
    }

    #[test]
    fn only_durable_entities_outside_the_store_are_listed() {
        let mut bench = Bench::new();
        bench.ask("a", Command::Deposit { amount: 1 }).unwrap();
        let (before, mut found) = (
            Position {
                commit: CommitNo(0),
                ..FIRST
            },
            BTreeMap::new(),
        );
        bench.shard.fresh(0, None, 9, &mut found, before);
        assert!(found.is_empty());
        assert_eq!(page(&mut bench, None, 9), ["a"]);
        let mut rows = crate::shard::Rows::default();
        bench.shard.checkpoint(crate::model::Timestamp::default(), &mut rows);
        bench.shard.checkpointed(FIRST);
        assert!(page(&mut bench, None, 9).is_empty());
    }
}
