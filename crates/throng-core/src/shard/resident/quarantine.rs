//! Entities that cannot be loaded. Each is quarantined by itself, with the reason, and delays no others.
//!
//! The shard quarantines an entity whose events cannot be applied; the driver one whose rows cannot be read. Its commands and queries get
//! [`Error::Quarantined`](crate::model::Error::Quarantined), messages to it are dead with the reason, its timers wait, and checkpoints go
//! on without its state. It is loaded again once it is [released](Shard::release), or after it was passivated.
//!
//! An [operator](crate::shard::timers::operator_quarantine) quarantines an entity that could go on.

use super::{
    Entities,
    slot::{Body, Broken, Slot},
};
use crate::{
    model::{Entity, Family},
    shard::{Common, Quarantined, Shard, Unloadable, inspect::views::QuarantinedEntities},
};
use throng_journal::Address;

/// Entities that [`Shard::count_quarantined`] names at most.
const NAMED_MAX: usize = 3;

impl Quarantined {
    pub(crate) fn of<E: Entity>(slot: &Slot<E>) -> Option<Self> {
        let Body::Quarantined(aside) = &slot.body else {
            return None;
        };
        Some(Self {
            address: Address::new(E::KIND, slot.text.clone()),
            seq: aside.seq,
            reason: aside.reason.clone(),
            since: aside.since,
            refused: aside.refused,
            by: None,
        })
    }
}

impl Shard {
    /// Quarantines an entity that cannot be loaded; `false`, and no change, if it was loaded meanwhile.
    pub fn quarantine(&mut self, kind: usize, hash: u64, id: &str, why: &Unloadable<'_>) -> bool {
        self.tables[kind].quarantine(&mut self.common, hash, id, why)
    }

    /// Ends a quarantine: the next command loads the entity again. `false` if it is not quarantined.
    pub fn release(&mut self, kind: usize, hash: u64, id: &str) -> bool {
        self.tables[kind].release(&mut self.common, hash, id)
    }

    /// Returns the entities of a kind that an operator has quarantined, and those in memory that cannot be loaded, at most `limit` of each,
    /// in no order.
    #[must_use]
    pub fn quarantined(&self, kind: usize, limit: usize) -> Vec<Quarantined> {
        let mut found = self.quarantined_of_kind(kind, limit);
        found.extend(self.tables[kind].quarantined(limit));
        found
    }

    /// Counts the quarantined entities, by kind and by who quarantined them. An entity that cannot be loaded counts from the time when that
    /// was found, perhaps by an earlier epoch, and also while it is not in memory.
    #[must_use]
    pub fn count_quarantined(&self) -> Vec<QuarantinedEntities> {
        let named = |id: &str, reason: &str| format!("{id}: {reason}");
        let named_of = |some: Vec<Quarantined>| some.iter().map(|one| named(&one.address.id, &one.reason)).collect();
        let kinds = self.registry.kinds().iter().zip(&self.tables).enumerate();
        let counted = kinds.flat_map(|(at, (kind, table))| {
            let mut noted: Vec<String> = Vec::new();
            let mut all_noted = 0;
            for (address, reason) in self.common.unloadables.of_kind(kind.name) {
                all_noted += 1;
                if noted.len() < NAMED_MAX {
                    noted.push(named(&address.id, reason));
                }
            }
            let by_operator = QuarantinedEntities {
                kind: kind.name,
                by_operator: true,
                entities: self.quarantined_number(at),
                named: named_of(self.quarantined_of_kind(at, NAMED_MAX)),
            };
            let set_aside = QuarantinedEntities {
                kind: kind.name,
                by_operator: false,
                // More than are noted may be in memory.
                entities: table.resident().1.max(all_noted),
                named: noted,
            };
            [by_operator, set_aside]
        });
        counted.filter(|counted| counted.entities > 0).collect()
    }

    /// Returns the noted entities that this epoch has not tried to load, as kind and address. Loading one keeps or removes its note.
    #[must_use]
    pub fn noted_untried(&self) -> Vec<(usize, Address)> {
        let untried = self.common.unloadables.untried();
        let known = untried.filter_map(|address| Some((self.registry.find(&address.kind)?, address.clone())));
        known.collect()
    }
}

impl<E: Entity> Entities<E> {
    //= promise 8: a panic costs one command
    pub(crate) fn set_aside(&mut self, common: &mut Common, hash: u64, id: &str, why: &Unloadable<'_>) -> bool {
        let at = match self.find(hash, id) {
            Some(at) if !matches!(self.slot(at).body, Body::Passivated(_)) => return false,
            Some(at) => at,
            None => self.insert(common, hash, id, Body::Passivated(None)),
        };
        let slot = self.slot(at);
        let stored = why
            .family
            .and_then(|row| serde_json::from_slice::<Box<Family>>(row).ok());
        slot.family = super::load::merged(stored, slot.family.take());
        let broken = Broken {
            seq: 0,
            reason: why.reason.into(),
        };
        self.quarantine_at(common, at, broken, 0);
        true
    }

    pub(crate) fn end_quarantine(&mut self, common: &mut Common, hash: u64, id: &str) -> bool {
        let at = self.find(hash, id);
        let Some((at, since)) = at.and_then(|at| match &self.peek(at).body {
            Body::Quarantined(aside) => Some((at, aside.since)),
            _ => None,
        }) else {
            return false;
        };
        common.unloadables.release(Address::new(E::KIND, id), since);
        self.forget(common, at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{super::LOOKED_AT, *};
    use crate::{
        limits,
        model::{Error, Timestamp},
        shard::{
            Cause, Input, Output, Ran, Recalled,
            checkpoint::notes,
            tests::{Bench, Command, FIRST},
        },
    };
    use std::collections::BTreeSet;

    const UNREADABLE: Unloadable<'_> = Unloadable {
        reason: "its row is damaged",
        family: None,
    };

    fn hash(id: &str) -> u64 {
        limits::hash("account", id)
    }

    /// Adds an entity that exists only in the store, in an unreadable form.
    fn unloadable(bench: &mut Bench, id: &str) {
        bench.store_has(id);
        assert!(matches!(
            bench.run(id, Command::Deposit { amount: 1 }, None).0,
            Ran::Load
        ));
        assert!(bench.shard.quarantine(0, hash(id), id, &UNREADABLE));
    }

    #[test]
    fn commands_are_answered_with_the_reason_until_it_is_released() {
        let mut bench = Bench::new();
        unloadable(&mut bench, "a");
        let answer = bench.ask("a", Command::Deposit { amount: 1 });
        assert_eq!(
            answer.as_ref().map_err(ToString::to_string),
            Err("account/a is quarantined: its row is damaged".to_owned())
        );
        assert_eq!(bench.ask("b", Command::Deposit { amount: 1 }), Ok(1), "nobody else");
        let listed = bench.shard.quarantined(0, 9);
        assert_eq!(listed.len(), 1);
        let counted = bench.shard.count_quarantined();
        assert_eq!((counted.len(), counted[0].kind, counted[0].entities), (1, "account", 1));
        assert!(bench.shard.take_unresolved_changed() && !bench.shard.take_unresolved_changed());
        assert_eq!(
            (&*listed[0].address.id, &*listed[0].reason, listed[0].refused),
            ("a", "its row is damaged", 1)
        );
        assert!(listed[0].since.micros > 0);

        assert!(bench.shard.release(0, hash("a"), "a"));
        assert!(bench.shard.take_unresolved_changed() && bench.shard.count_quarantined().is_empty());
        assert!(!bench.shard.release(0, hash("a"), "a"), "once");
        assert!(!bench.shard.release(0, hash("b"), "b"), "it is not quarantined");
        assert!(bench.shard.quarantined(0, 9).is_empty());
        assert!(matches!(
            bench.run("a", Command::Deposit { amount: 1 }, None).0,
            Ran::Load
        ));
        bench.shard.loaded(0, hash("a"), "a", Recalled::default());
        assert_eq!(bench.ask("a", Command::Deposit { amount: 1 }), Ok(1));
    }

    #[test]
    fn vain_release_keeps_the_first_time_of_the_quarantine() {
        let mut bench = Bench::new();
        unloadable(&mut bench, "a");
        let since = |bench: &Bench| bench.shard.quarantined(0, 9)[0].since.micros;
        let first = since(&bench);
        let fails_again = |bench: &mut Bench, micros| {
            bench.shard.common.now = Timestamp { micros };
            assert!(bench.shard.quarantine(0, hash("a"), "a", &UNREADABLE));
        };
        assert!(bench.shard.release(0, hash("a"), "a"));
        fails_again(&mut bench, first + 1_000);
        assert_eq!(since(&bench), first);
    }

    #[test]
    fn counting_and_listing_read_only_the_rows_they_return() {
        let mut bench = Bench::new();
        for id in (0..10_000).map(|id| format!("a{id}")) {
            bench.shard.loaded(0, hash(&id), &id, Recalled::default());
            bench.ask(&id, Command::Deposit { amount: 1 }).unwrap();
        }
        for id in ["x", "y", "z"] {
            unloadable(&mut bench, id);
        }
        let looked = |look: &mut dyn FnMut()| {
            LOOKED_AT.set(0);
            look();
            LOOKED_AT.get()
        };
        let at_count = looked(&mut || assert_eq!(bench.shard.resident(0), (10_003, 3)));
        let at_list = looked(&mut || assert_eq!(bench.shard.quarantined(0, 2).len(), 2));
        let at_glance = looked(&mut || assert!(bench.shard.glance(0, hash("a7"), "a7").is_some()));
        assert!(
            at_count == 0 && at_list == 2 && at_glance < 10,
            "{at_count} {at_list} {at_glance}"
        );
        assert!(bench.shard.release(0, hash("x"), "x"));
        assert_eq!(bench.shard.resident(0), (10_002, 2));
        bench.shard.passivate(usize::MAX, throng_journal::CommitNo(0));
        let (resident, quarantined) = bench.shard.resident(0);
        assert_eq!(resident, bench.shard.load().entities);
        assert_eq!(quarantined, bench.shard.quarantined(0, 9).len());
    }

    #[test]
    fn one_that_was_brought_back_meanwhile_is_left_as_it_is() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("a", Command::Deposit { amount: 5 }), Ok(5));
        assert!(!bench.shard.quarantine(0, hash("a"), "a", &UNREADABLE));
        assert_eq!(bench.ask("a", Command::Deposit { amount: 1 }), Ok(6));
    }

    #[test]
    fn messages_to_it_are_dead_until_retried_after_its_release() {
        let mut bench = Bench::new();
        let pay = Command::Pay {
            to: "a".into(),
            amount: 3,
        };
        assert_eq!(bench.ask("b", pay), Ok(-3));
        let mut delivery = bench.shard.take_outbox().remove(0);
        unloadable(&mut bench, "a");
        let (input, taking) = delivery.parts();
        assert!(matches!(
            bench.execute("a", input, Output::Nobody, Cause::Message(taking), false),
            Ran::Done { .. }
        ));
        assert!(bench.shard.is_taken(&delivery.taking), "it stops nobody");
        let dead = bench.shard.fresh_dead(&crate::shard::dead_rows(None), &[], 9);
        let (row, Some(value)) = &dead[0] else {
            panic!("it is dead")
        };
        let message = crate::shard::DeadMessage::read(row, value).unwrap();
        assert!(message.reason.contains("its row is damaged"), "{}", message.reason);

        bench.shard.release(0, hash("a"), "a");
        bench.shard.loaded(0, hash("a"), "a", Recalled::default());
        let mut again = crate::shard::Delivery::again(row, value).unwrap();
        let (input, taking) = again.parts();
        bench.execute("a", input, Output::Nobody, Cause::Message(taking), false);
        assert_eq!(bench.ask("a", Command::Withdraw { amount: 3 }), Ok(0));
    }

    #[test]
    fn its_timers_wait() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("a", Command::Remind { at: 9 }), Ok(0));
        let due = bench.shard.due(Timestamp { micros: 9 }, 9).remove(0);
        unloadable(&mut bench, "a");
        let staged = bench.open.staged;
        let input = Input::Json {
            name: &due.command,
            body: &due.body,
        };
        assert!(matches!(
            bench.execute("a", input, Output::Nobody, Cause::Timer(&due), false),
            Ran::Done { .. }
        ));
        assert!(bench.shard.is_due(&due));
        assert_eq!(bench.open.staged, staged);
    }

    #[test]
    fn a_checkpoint_goes_on_without_it_and_keeps_its_whole_family() {
        let mut bench = Bench::new();
        let child = |id: &str| ("account".to_owned(), id.to_owned());
        assert_eq!(bench.ask("a", Command::Deposit { amount: 5 }), Ok(5));
        assert_eq!(bench.ask("a", Command::Child { id: "new".into() }), Ok(5));
        bench.ask("b", Command::Deposit { amount: 1 }).unwrap();
        // After a restart the child is only in the log, and the rest is in the store.
        let mut again = Bench::new();
        for record in bench.finish().records().map(Result::unwrap) {
            again
                .shard
                .replay(limits::hash(record.kind, record.id), &record)
                .unwrap();
        }
        assert_eq!(again.shard.families_to_load(), [(0, hash("a"), "a".into())]);
        let stored = Family {
            parent: None,
            children: BTreeSet::from([child("old")]),
        };
        let why = Unloadable {
            family: Some(&serde_json::to_vec(&stored).unwrap()),
            ..UNREADABLE
        };
        assert!(again.shard.quarantine(0, hash("a"), "a", &why));

        assert!(again.shard.families_to_load().is_empty(), "no checkpoint waits for it");
        let mut rows = crate::shard::Rows::default();
        again.shard.checkpoint(Timestamp::default(), &mut rows);
        assert!(rows.states.iter().all(|state| &*state.address.id != "a"));
        let named = notes::row_of(&Address::new("account", "a"));
        let row = rows.system.iter().find(|(name, _)| *name == named).unwrap();
        let noted = notes::read_note(row.1.as_deref().unwrap()).unwrap();
        assert_eq!(
            noted.family.unwrap().children,
            BTreeSet::from([child("old"), child("new")])
        );
        again.shard.checkpointed(FIRST);
        let answer = again.ask("a", Command::Deposit { amount: 1 });
        assert!(matches!(answer, Err(Error::Quarantined { .. })));
    }
}
