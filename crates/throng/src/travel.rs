//! An entity as it was after any of its events, and the outcome that a command would have had then. Nothing is recorded, and the living
//! entity is not touched.

use crate::{commit::unreadable, engine::Engine, feed::PageLimit};
use throng_core::{
    model::{Asker, Error},
    shard::{Again, Inspect, JsonRejection, KindCheck, Supposed, state_json},
};
use throng_journal::{Address, Place, Record, RecordKind, StoredEvent};

/// The most events that are read from the nearest known state.
const EVENTS_MAX: u64 = 200_000;
const PAGE_EVENTS: usize = 1_000;
/// States that are larger are not remembered on the way.
const REMEMBERED_STATE_BYTES_MAX: usize = 256 << 10;

/// The state of an entity right after one of its events.
pub struct AsOf {
    id: String,
    /// The event's number; 0: before the first.
    pub seq: u64,
    /// The time of that event, microseconds since 1970-01-01 UTC; `None` for 0, or if it is no longer stored.
    pub at_micros: Option<i64>,
    /// The state after it, as JSON.
    pub state: String,
    check: Box<dyn KindCheck>,
}

/// The reason why the state cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    /// The engine's error, which does not concern this entity.
    #[error(transparent)]
    Engine(Error<JsonRejection>),
    /// The events up to there are no longer stored.
    #[error("what it was after event {seq} is not known any more: {why}")]
    Gone {
        /// The requested event.
        seq: u64,
        /// A sentence that says what is missing.
        why: &'static str,
    },
    /// The entity has not had so many events.
    #[error("it has had {last} events, and none of number {seq} yet")]
    Future {
        /// The requested event.
        seq: u64,
        /// The entity's last event.
        last: u64,
    },
    /// Too much would have to be read.
    #[error("{events} events lie between it and the nearest state that is kept; at most {EVENTS_MAX} are read")]
    Far {
        /// The number of events that would have to be applied.
        events: u64,
    },
    /// An event cannot be applied.
    #[error("its events cannot be applied: {0}")]
    Broken(String),
}

impl Engine {
    /// Returns an entity's state after one of its events, from its stored history.
    ///
    /// # Errors
    /// [`TravelError::Gone`] if the history is no longer stored, [`TravelError::Future`] if there is no such event yet,
    /// [`TravelError::Engine`] otherwise.
    pub async fn as_of(&self, kind: usize, id: &str, seq: u64) -> Result<AsOf, TravelError> {
        let core = &self.core;
        let of_kind = core.context.registry.kinds().get(kind);
        let of_kind = of_kind.ok_or_else(|| TravelError::Engine(Error::Malformed("there is no such kind".into())))?;
        let now = self
            .inspect(kind, id, Inspect::default())
            .await
            .map_err(TravelError::Engine)?;
        let (last, address) = (now.seq, Address::new(of_kind.name, id));
        // A quarantined entity has events that it did not apply.
        if seq > last && now.quarantine.is_none() {
            return Err(TravelError::Future { seq, last });
        }
        if seq < now.ended || now.ended > 0 && seq == now.ended {
            let why = "it has ended since then, and what it was before is not told apart";
            return Err(TravelError::Gone { seq, why });
        }
        let mut check = of_kind.check();
        let shard = core.context.registry.shard_of(of_kind.name, id);
        let record = |record, seq, version, body| Record {
            record,
            shard,
            kind: of_kind.name,
            id,
            seq,
            name: "",
            version,
            body,
            place: NOWHERE,
        };
        let mut reached = now.ended;
        let base = self.base(&address, of_kind.state_version, seq).await?;
        if let Some((at, state, version)) = base.filter(|(at, ..)| *at > now.ended) {
            let read = check.state(&record(RecordKind::State, at, version, &state));
            read.map_err(TravelError::Broken)?;
            reached = at;
        } else if now.ended > 0 {
            check.ended(&record(RecordKind::Ended, now.ended, 0, &[]));
        }
        if seq - reached > EVENTS_MAX {
            return Err(TravelError::Far { events: seq - reached });
        }
        let mut at_micros = None;
        while reached < seq {
            let limit = usize::try_from(seq - reached).unwrap_or(PAGE_EVENTS).min(PAGE_EVENTS);
            let page = self
                .history_after(kind, id, reached, PageLimit::of(limit))
                .await
                .map_err(TravelError::Engine)?;
            let Some(first) = page.events.first() else {
                return Err(TravelError::Future { seq, last: reached });
            };
            if first.seq != reached + 1 {
                let why = "history was removed, and no state from before that event is kept";
                return Err(TravelError::Gone { seq, why });
            }
            for event in &page.events {
                apply(check.as_mut(), &address, event).map_err(TravelError::Broken)?;
                (reached, at_micros) = (event.seq, Some(event.at_micros));
            }
            if let Some(Ok(state)) = check.recorded(id)
                && state.len() <= REMEMBERED_STATE_BYTES_MAX
            {
                core.retention.remembered.put(&address, reached, state);
            }
            // Other tasks run between two pages.
            crate::host::yield_now().await;
        }
        if at_micros.is_none() && seq > 0 {
            // The state was stored; its event may be gone.
            let page = self.history_after(kind, id, seq - 1, PageLimit::of(1)).await;
            let page = page.map_err(TravelError::Engine)?;
            let event = page.events.first().filter(|event| event.seq == seq);
            at_micros = event.map(|event| event.at_micros);
        }
        let state = match check.recorded(id) {
            Some(Ok(state)) => state_json(&state).unwrap_or("null").to_owned(),
            Some(Err(why)) => return Err(TravelError::Broken(why)),
            None => "null".into(),
        };
        Ok(AsOf {
            id: id.to_owned(),
            seq,
            at_micros,
            state,
            check,
        })
    }

    /// Returns the latest stored state not after an event: its event, its bytes, and their version.
    async fn base(&self, of: &Address, version: u16, upto: u64) -> Result<Option<(u64, Vec<u8>, u16)>, TravelError> {
        let stored = crate::executor::now_or_later(self.core.context.store.load(of, version)).await;
        let stored = stored.map_err(|error| {
            TravelError::Engine(unreadable(format!("what is stored of {of} cannot be read"), &error))
        })?;
        let stored = stored.state.filter(|state| state.seq <= upto && state.seq > 0);
        let stored = stored.map(|state| (state.seq, state.bytes, state.version));
        let remembered = self.core.retention.remembered.find(of, upto);
        let remembered = remembered.map(|(seq, state)| (seq, state, version));
        Ok(stored.into_iter().chain(remembered).max_by_key(|(seq, ..)| *seq))
    }

    /// Decides a command on the state of that moment. Nothing is recorded.
    ///
    /// # Errors
    /// The reason why the state at that moment is not known.
    pub fn suppose(
        &self,
        mut then: AsOf,
        name: &str,
        body: &[u8],
        caller: Option<&str>,
    ) -> Result<Supposed, TravelError> {
        let context = &self.core.context;
        let again = Again {
            id: &then.id,
            name,
            body,
            now: context.host.now(),
            entropy: context.host.entropy(),
            missed_ticks: 0,
            from: Asker::Client(caller),
            is_asked: true,
        };
        let supposed = then.check.suppose(&again);
        supposed.ok_or_else(|| TravelError::Broken("what it was then is not known".into()))
    }
}

/// The position of a record that is made here and is in no stream.
const NOWHERE: Place = Place {
    position: throng_journal::Position::new(throng_journal::WriterId(0), throng_journal::CommitNo(0)),
    offset: 0,
    len: 0,
};

fn apply(check: &mut dyn KindCheck, of: &Address, event: &StoredEvent) -> Result<(), String> {
    check.event(&Record {
        record: RecordKind::Event,
        shard: throng_journal::ShardId(0),
        kind: &of.kind,
        id: &of.id,
        seq: event.seq,
        name: &event.name,
        version: event.version,
        body: &event.payload,
        place: Place {
            position: event.position,
            ..NOWHERE
        },
    })
}
