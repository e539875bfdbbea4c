//! A simulated store with faults.

use crate::{
    faults::Lie,
    journal::{SimJournal, io},
    medium::{Inner, Rows},
};
use std::{ops::Bound, sync::atomic::Ordering};
use throng_journal::{
    Address, Checkpoint, Commit, CommitNo, Covered, Cut, EntityHead, Error, Later, Loaded, Maybe, MissingEvents,
    Position, Record, RecordKind, ShardSet, Store, StoredEvent, StoredState, begin_of_rows,
};

/// The store on the same medium as the journal.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) journal: SimJournal,
}

impl SimStore {
    /// Returns the delay of the next call, and whether it fails.
    fn weather(&self) -> (Option<std::time::Duration>, bool) {
        let (faults, world) = (self.journal.faults(), &self.journal.world);
        (world.dice(|rng| faults.wait(rng)), world.chance(faults.store_error))
    }

    fn slowly<'a, T: Send + 'a>(
        &'a self,
        (doing, counted): (&'static str, &'static str),
        work: impl FnOnce(&mut Inner) -> T + Send + 'a,
    ) -> Later<'a, Result<T, Error>> {
        let (wait, fails) = self.weather();
        Box::pin(async move {
            let world = &self.journal.world;
            if let Some(wait) = wait {
                world.sleep(wait).await;
            }
            if fails {
                world.count(counted);
                world.note(format_args!("{doing} fails"));
            }
            if fails || self.journal.state.dead.load(Ordering::Relaxed) {
                return Err(io(doing));
            }
            Ok(work(&mut self.journal.medium.lock()))
        })
    }

    fn maybe<'a, T: Send + 'a>(
        &'a self,
        (doing, counted): (&'static str, &'static str),
        (later, at_once): (&'static str, &'static str),
        work: impl FnOnce(&mut Inner) -> Result<T, Error> + Send + 'a,
    ) -> Maybe<'a, Result<T, Error>> {
        let (wait, fails) = self.weather();
        let world = &self.journal.world;
        if fails {
            world.count(counted);
        }
        world.count(if wait.is_some() { later } else { at_once });
        let Some(wait) = wait else {
            return Maybe::Ready(if fails {
                Err(io(doing))
            } else {
                work(&mut self.journal.medium.lock())
            });
        };
        Maybe::Later(Box::pin(async move {
            world.sleep(wait).await;
            if fails {
                return Err(io(doing));
            }
            work(&mut self.journal.medium.lock())
        }))
    }
}

impl Inner {
    fn check_checkpoint(&self, checkpoint: &Checkpoint) -> Option<String> {
        let covers = self.rows.covers;
        if covers.is_some_and(|covers| checkpoint.upto < covers) {
            return Some(format!(
                "a checkpoint up to {} came after one up to {}",
                checkpoint.upto,
                covers.unwrap_or_default()
            ));
        }
        let before = |end: &&Position| covers.is_some_and(|covers| end.writer < covers.writer);
        if let Some(end) = checkpoint.sealed.iter().find(before) {
            return Some(format!(
                "a checkpoint names the stream that ends at {end}, which is covered up to {} already",
                covers.unwrap_or_default()
            ));
        }
        for state in &checkpoint.states {
            let landed = self.landed.get(&state.address).copied().unwrap_or_default();
            if state.seq > landed {
                return Some(format!(
                    "the store was given {} at event {}, of which {landed} are durable",
                    state.address, state.seq
                ));
            }
        }
        None
    }

    /// Indexes the events of the streams' commits after the covered ones, and stores the rest of the checkpoint.
    fn advance(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        let mut ends: Vec<Position> = checkpoint.sealed.clone();
        ends.push(checkpoint.upto);
        if let Some(beyond) = ends.iter().find(|end| !self.reaches(**end)) {
            return Err(Error::NoCommit(*beyond));
        }
        let mut violations: Vec<String> = self.check_checkpoint(&checkpoint).into_iter().collect();
        let mut missing = MissingEvents::default();
        for end in ends {
            let covers = self.rows.covers.filter(|covers| covers.writer == end.writer);
            let from = covers.unwrap_or(Position::new(end.writer, CommitNo(0)));
            if self.rows.covers.is_some_and(|covers| covers.writer > end.writer) {
                continue;
            }
            for commit in self.after(from, usize::MAX) {
                if commit.stamp().number > end.commit {
                    break;
                }
                for record in commit.records().flatten() {
                    self.rows.index(&commit, &record, &mut missing);
                }
            }
            self.rows.covers = Some(end.max(self.rows.covers.unwrap_or_default()));
        }
        match missing.check() {
            Ok(cuts) => cuts.iter().for_each(|cut| self.rows.cut(cut)),
            Err(lost) => violations.push(format!("promise 5: {lost}")),
        }
        self.violations.append(&mut violations);
        for state in checkpoint.states {
            self.rows.states.insert(state.address.clone(), state);
        }
        for cut in &checkpoint.cuts {
            self.rows.cut(cut);
        }
        let forgets = self.lie == Some(Lie::ForgetsKeys);
        for (key, value) in checkpoint.system {
            match value {
                Some(value) if !(forgets && key.first() == Some(&b'k')) => self.rows.system.insert(key, value),
                _ => self.rows.system.remove(&key),
            };
        }
        Ok(())
    }

    fn load(&self, address: &Address, state_version: u16) -> Result<Loaded, Error> {
        if self.unreadable.contains(address) {
            return Err(Error::Row {
                address: address.clone(),
                why: "a simulated fault".into(),
            });
        }
        let state = self.rows.states.get(address);
        let is_cut = self.rows.is_cut(address);
        let state = state.filter(|state| state.version == state_version || is_cut).cloned();
        let after = state.as_ref().map_or(0, |state| state.seq);
        let events = self.rows.events.get(address).map_or(&[][..], Vec::as_slice);
        let mut events: Vec<StoredEvent> = events.iter().filter(|event| event.seq > after).cloned().collect();
        if self.lie == Some(Lie::StaleState) && state.is_none() {
            events.pop();
        }
        Lie::judge(self.lie, address, Loaded { state, events })
    }
}

impl Rows {
    fn index(&mut self, commit: &Commit, record: &Record<'_>, missing: &mut MissingEvents) {
        let address = Address::new(record.kind, record.id);
        match record.record {
            RecordKind::Event => {
                let last = self.last.entry(address.clone()).or_default();
                let before = std::mem::replace(last, record.seq);
                self.events.entry(address).or_default().push(StoredEvent {
                    seq: record.seq,
                    position: commit.position(),
                    at_micros: commit.stamp().at_micros,
                    name: record.name.into(),
                    version: record.version,
                    payload: record.body.to_vec(),
                });
                // Events before the first one left were removed.
                if before > 0 && record.seq != before + 1 {
                    let of = Address::new(record.kind, record.id);
                    missing.note(of, (record.seq, before), commit.position());
                }
            }
            RecordKind::State => {
                let last = self.last.entry(address.clone()).or_default();
                *last = record.seq.max(*last);
                let known = self.states.get(&address).map_or(0, |state| state.seq);
                if known < record.seq {
                    self.states.insert(address, StoredState::of_record(record));
                }
                missing.founded(record);
            }
            RecordKind::Ended => {
                let last = self.last.get_mut(&address);
                if let Some(last) = last.filter(|last| (1..record.seq).contains(*last)) {
                    *last = record.seq;
                    missing.gone(record);
                }
                missing.founded(record);
            }
            _ => {}
        }
    }

    fn cut(&mut self, cut: &Cut) {
        if let Some(events) = self.events.get_mut(&cut.address) {
            events.retain(|event| event.seq > cut.upto);
        }
        let is_anew = self.states.get(&cut.address).is_some_and(|state| state.seq > cut.upto);
        if !cut.is_gone || is_anew {
            return;
        }
        self.states.remove(&cut.address);
        let last = self.last.get(&cut.address).copied().unwrap_or_default();
        if last <= cut.upto {
            self.events.remove(&cut.address);
            self.last.remove(&cut.address);
        }
    }

    /// Tells whether its first events were removed.
    fn is_cut(&self, address: &Address) -> bool {
        let first = self.events.get(address).and_then(|events| events.first());
        self.last.contains_key(address) && first.is_none_or(|event| event.seq > 1)
    }
}

impl Store for SimStore {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        let shards = shards.clone();
        self.slowly(("reading what is covered", "store read failed"), move |rows| {
            let upto = rows.rows.covers;
            vec![Covered { shards, upto }]
        })
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        let (wait, fails) = self.weather();
        // It takes effect at a random moment between call and answer.
        let share = self.journal.world.dice(|rng| *rng.choice(&[0, 1, 2]).unwrap_or(&2));
        Box::pin(async move {
            let (world, wait) = (&self.journal.world, wait.unwrap_or_default());
            world.sleep(wait * share / 2).await;
            if fails {
                world.count("checkpoint failed");
            }
            if fails || self.journal.state.dead.load(Ordering::Relaxed) {
                return Err(io("making a checkpoint"));
            }
            if self.journal.medium.lock().owner != self.journal.process {
                world.count("checkpoint of a process that was taken over from refused");
                return Err(io("making a checkpoint on a store others have taken over"));
            }
            let is_key = |(row, value): &&(Vec<u8>, Option<_>)| row.first() == Some(&b'k') && value.is_none();
            let removed = checkpoint.system.iter().filter(is_key).count();
            world.add("row removed by its name", removed as u64);
            world.note(format_args!(
                "checkpoint up to {}: {} states, {} rows",
                checkpoint.upto,
                checkpoint.states.len(),
                checkpoint.system.len()
            ));
            self.journal.medium.lock().advance(checkpoint)?;
            world.count("checkpoint");
            world.sleep(wait * (2 - share) / 2).await;
            Ok(())
        })
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        let address = address.clone();
        let counted = ("loading a state", "load failed");
        self.maybe(counted, ("load later", "load at once"), move |rows| {
            rows.load(&address, state_version)
        })
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        let address = address.clone();
        self.slowly(("reading a history", "history failed"), move |medium| {
            let events = medium.rows.events.get(&address).map_or(&[][..], Vec::as_slice);
            let mut bytes = 0;
            let found = events.iter().filter(|event| event.seq > after).take(limit);
            let page = found.take_while(|event| {
                let is_first = bytes == 0;
                bytes += event.payload.len();
                is_first || bytes <= bytes_max
            });
            page.cloned().collect()
        })
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        let (kind, after) = (kind.to_owned(), after.map(str::to_owned));
        self.slowly(("listing entities", "store read failed"), move |medium| {
            let entities = medium.rows.last.iter();
            let of_kind = entities.filter(|(address, _)| *address.kind == *kind);
            let later = of_kind.filter(|(address, _)| after.as_deref().is_none_or(|after| &*address.id > after));
            later
                .take(limit)
                .map(|(address, seq)| EntityHead {
                    id: address.id.clone(),
                    seq: *seq,
                })
                .collect()
        })
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        let key = key.to_vec();
        let counted = ("reading a row", "row read failed");
        self.maybe(counted, ("row read later", "row read at once"), move |medium| {
            Ok(medium.rows.system.get(&key).cloned())
        })
    }

    fn system_rows<'a>(&'a self, keys: &'a [Vec<u8>]) -> Later<'a, Result<Vec<Option<Vec<u8>>>, Error>> {
        let world = &self.journal.world;
        self.slowly(("reading rows", "row read failed"), move |medium| {
            let rows = &medium.rows.system;
            let found: Vec<Option<Vec<u8>>> = keys.iter().map(|key| rows.get(key).cloned()).collect();
            if found.iter().any(Option::is_some) {
                world.count("row found among several");
            }
            found
        })
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        self.slowly(("scanning rows", "store read failed"), move |medium| {
            let rows = (begin_of_rows(prefix, after), Bound::Unbounded);
            let rows = medium.rows.system.range::<[u8], _>(rows);
            let mut visited = 0;
            for (key, value) in rows.take_while(|(key, _)| key.starts_with(prefix)).take(rows_max) {
                visit(key, value);
                visited += 1;
            }
            if prefix == b"k" {
                self.journal.world.add("row of a key read at a start", visited);
            }
        })
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        self.slowly(("removing rows", "store write failed"), move |medium| {
            let system = &mut medium.rows.system;
            let range = (begin_of_rows(prefix, after), Bound::Unbounded);
            let keys = system.range::<[u8], _>(range).map(|(key, _)| key.clone());
            let keys: Vec<Vec<u8>> = keys.take_while(|key| key.starts_with(prefix)).take(rows_max).collect();
            for key in &keys {
                system.remove(key);
                self.journal.world.count("row removed");
            }
            keys.into_iter().next_back()
        })
    }
}

impl From<SimStore> for Box<dyn Store> {
    fn from(store: SimStore) -> Self {
        Box::new(store)
    }
}
