//! Bringing entities and idempotency keys back from the store.

use super::{Executor, attempt::Target, loads::now_or_later};
use crate::commit::{Refusal, recovering, unreadable};
use std::sync::Arc;
use throng_core::shard::{LoadOutcome, Recalled, TailEvent, Unloadable, ended_row, family_row};
use throng_journal::{Address, Later, Loaded, Place};

const KEYS_UNREADABLE: &str = "the idempotency keys cannot be read";

/// The reason why an entity was not loaded.
enum Failed {
    Refused(Refusal),
    Journal(throng_journal::Error),
    /// Its stored state cannot be read.
    State(String),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<throng_journal::Error> for Failed {
    fn from(error: throng_journal::Error) -> Self {
        Self::Journal(error)
    }
}

/// The source of an entity's state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartFrom {
    /// The state that is stored, and the events after it.
    State,
    /// All of its events.
    FirstEvent,
}

impl Executor {
    /// Loads an entity, or waits while another task does.
    pub(crate) fn load<'a>(self: &'a Arc<Self>, target: &'a Target<'_>) -> Later<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let address = Address::new(self.context.registry.kinds()[target.kind].name, &*target.id);
            let Some(_turn) = self.loads.turn(&address).await else {
                return Ok(());
            };
            let mut from = StartFrom::State;
            loop {
                match self.load_once(target, &address, from).await {
                    Err(Failed::State(why)) => {
                        tracing::warn!(
                            "the stored state of {address} cannot be read, it is rebuilt from its events: {why}"
                        );
                        from = StartFrom::FirstEvent;
                    }
                    // A checkpoint has moved it meanwhile, from the log to the store.
                    Err(Failed::Journal(throng_journal::Error::NoCommit(at)))
                        if self.group_commit.covers().is_some_and(|covers| at <= covers) => {}
                    Err(Failed::Journal(error)) if is_damage(&error) => {
                        return self.quarantine(target, &address, error.to_string()).await;
                    }
                    Err(Failed::Journal(error)) => {
                        return Err(unreadable(format!("{address} cannot be loaded"), &error));
                    }
                    Err(Failed::Refused(refusal)) => return Err(refusal),
                    Ok(()) => return Ok(()),
                }
            }
        })
    }

    async fn load_once(
        self: &Arc<Self>,
        target: &Target<'_>,
        address: &Address,
        from: StartFrom,
    ) -> Result<(), Failed> {
        let (kind, hash) = (target.kind, target.hash);
        let shard = self.shard_of(hash);
        let id = target.id.clone().into_owned();
        let request = self
            .visit(shard, move |shard| shard.load_request(kind, hash, &id))
            .await?;
        let Some(request) = request else { return Ok(()) };
        if self.group_commit.wait(request.rests_on).await.is_err() {
            return Err(Failed::Refused(recovering()));
        }
        let (store, journal) = (&self.context.store, &self.context.journal);
        let stored = match from {
            StartFrom::State => now_or_later(store.load(address, request.state_version)).await?,
            StartFrom::FirstEvent => Loaded {
                state: None,
                events: store.history(address, 0, usize::MAX, usize::MAX).await?,
            },
        };
        let mut tail = request.tail;
        keep_newer(&mut tail, &stored);
        let places: Vec<Place> = tail.iter().map(|event| event.place).collect();
        let payloads = match &places[..] {
            [] => Vec::new(),
            places => now_or_later(journal.read_at(places)).await?,
        };
        let tail = tail.into_iter().zip(payloads).collect();
        let (mut family, mut ended) = (None, None);
        if stored.state.is_none() {
            family = now_or_later(store.system(&family_row(address))).await?;
        }
        // A state says when its entity ended, unless an earlier epoch wrote it.
        if stored.state.is_none() || stored.missing_event(0).is_some() {
            ended = now_or_later(store.system(&ended_row(address))).await?;
        }
        self.context.metrics.loads.inc();
        let id = target.id.clone().into_owned();
        let recalled = Recalled {
            stored,
            tail,
            family,
            ended,
        };
        let loaded = self.visit(shard, move |shard| shard.loaded(kind, hash, &id, recalled));
        match loaded.await? {
            LoadOutcome::Resident => Ok(()),
            LoadOutcome::UnreadableState(why) => Err(Failed::State(why)),
            LoadOutcome::Quarantined(reason) => {
                self.tell_quarantine(address, &reason);
                Ok(())
            }
        }
    }

    fn tell_quarantine(&self, address: &Address, reason: &str) {
        tracing::error!("{address} is quarantined: {reason}");
        self.context.metrics.quarantined.inc();
    }

    /// Quarantines an entity whose rows or events cannot be read: another read would fail likewise.
    async fn quarantine(
        self: &Arc<Self>,
        target: &Target<'_>,
        address: &Address,
        reason: String,
    ) -> Result<(), Refusal> {
        self.tell_quarantine(address, &reason);
        let family = now_or_later(self.context.store.system(&family_row(address))).await;
        let family = family.map_err(|error| unreadable(format!("{address} cannot be loaded"), &error))?;
        let (kind, hash, id) = (target.kind, target.hash, target.id.clone().into_owned());
        self.visit(self.shard_of(hash), move |shard| {
            let why = Unloadable {
                reason: &reason,
                family: family.as_deref(),
            };
            shard.quarantine(kind, hash, &id, &why);
        })
        .await
    }

    /// Looks for an idempotency key among the store's rows.
    pub(crate) async fn load_key(self: &Arc<Self>, target: &Target<'_>, key: &str) -> Result<(), Refusal> {
        let (hash, shard, now) = (target.hash, self.shard_of(target.hash), self.context.host.now());
        let (id, text) = (target.id.clone().into_owned(), key.to_owned());
        let asked = self
            .visit(shard, move |shard| shard.key_rows(hash, &id, &text, now))
            .await?;
        let mut found = None;
        for row in &asked.rows {
            let read = now_or_later(self.context.store.system(row)).await;
            let row = read.map_err(|error| unreadable(KEYS_UNREADABLE.into(), &error))?;
            if let Some(row) = row {
                found = asked
                    .find(&row)
                    .map_err(|error| unreadable(KEYS_UNREADABLE.into(), &error))?;
            }
            if found.is_some() {
                break;
            }
        }
        self.visit(shard, move |shard| shard.key_looked(&asked, found)).await
    }
}

/// Keeps only events that the store does not have. A state in the log counts as newer even if the store has its last event: a checkpoint
/// may have removed the events before it from the index without having stored the state that replaces them.
fn keep_newer(tail: &mut Vec<TailEvent>, stored: &Loaded) {
    let state = stored.state.as_ref().map_or(0, |state| state.seq);
    let last = stored.events.last().map_or(state, |event| event.seq);
    tail.retain(|event| event.seq > if event.is_state { state } else { last });
}

/// Returns true if the stored data is damaged, so that another read will fail, too.
fn is_damage(error: &throng_journal::Error) -> bool {
    use throng_journal::Error::{Damaged, Row};
    matches!(error, Row { .. } | Damaged { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{CommitNo, Position, ShardId, StoredEvent, StoredState, WriterId};

    #[test]
    fn recorded_state_counts_if_the_store_lacks_events_before_it() {
        let position = Position::new(WriterId(1), CommitNo(7));
        let event = |seq| StoredEvent {
            seq,
            position,
            at_micros: 0,
            name: "Added".into(),
            version: 1,
            payload: Vec::new(),
        };
        let stored = |state: Option<u64>, events: &[u64]| Loaded {
            state: state.map(|seq| StoredState {
                address: Address::new("diary", "a"),
                shard: ShardId(0),
                seq,
                version: 1,
                bytes: Vec::new(),
            }),
            events: events.iter().map(|seq| event(*seq)).collect(),
        };
        let left = |stored: Loaded| {
            let of = |seq, is_state| TailEvent {
                seq,
                place: Place {
                    position,
                    offset: 0,
                    len: 0,
                },
                name: "Added",
                version: 1,
                is_state,
            };
            let mut tail = vec![of(24, false), of(25, false), of(25, true), of(26, false)];
            keep_newer(&mut tail, &stored);
            tail.iter().map(|event| (event.seq, event.is_state)).collect::<Vec<_>>()
        };
        // The events between 14 and 23 are not in the index.
        assert_eq!(left(stored(Some(14), &[23, 24, 25])), [(25, true), (26, false)]);
        assert_eq!(left(stored(Some(25), &[])), [(26, false)]);
        assert_eq!(left(stored(Some(25), &[26])), []);
        assert_eq!(left(stored(None, &[])).len(), 4);
    }
}
