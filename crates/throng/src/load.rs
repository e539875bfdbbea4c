//! Bringing entities and idempotency keys back from the store.

use crate::{engine::Inner, life::Life};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
};
use throng_core::{
    limits,
    model::Error,
    shard::{Recalled, family_row},
};
use throng_journal::{Address, Maybe, Place};

/// Loads under way: one for an entity at a time, so that an old one never overwrites a newer.
#[derive(Default)]
pub(crate) struct Loads {
    under_way: Mutex<HashMap<Address, Vec<Waker>>>,
}

/// The right to load an entity; given up on drop, also when the asker goes away.
struct Turn<'a> {
    loads: &'a Loads,
    address: &'a Address,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut under_way = self.loads.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = under_way.remove(self.address).unwrap_or_default();
        drop(under_way);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Loads {
    /// Waits while somebody else loads it; `None` when they have done so.
    async fn turn<'a>(&'a self, address: &'a Address) -> Option<Turn<'a>> {
        let mut waited = false;
        std::future::poll_fn(|context| {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            match under_way.get_mut(address) {
                Some(waiting) => {
                    waited = true;
                    waiting.push(context.waker().clone());
                    Poll::Pending
                }
                None if waited => Poll::Ready(None),
                None => {
                    under_way.insert(address.clone(), Vec::new());
                    Poll::Ready(Some(Turn { loads: self, address }))
                }
            }
        })
        .await
    }
}

pub(crate) async fn now_or_later<T>(maybe: Maybe<'_, T>) -> T {
    match maybe {
        Maybe::Ready(value) => value,
        Maybe::Later(later) => later.await,
    }
}

impl Inner {
    /// Brings an entity back, or waits while somebody else does.
    pub(crate) async fn load<R>(&self, life: &Arc<Life>, kind: usize, hash: u64, id: &str) -> Result<(), Error<R>> {
        let address = Address::new(self.registry.kinds()[kind].name, id);
        let Some(_turn) = life.loads.turn(&address).await else {
            return Ok(());
        };
        loop {
            match self.load_once(life, (kind, hash), &address).await {
                // A checkpoint moved it meanwhile, from the log to the store.
                Err(throng_journal::Error::NoCommit(at)) if life.covers().is_some_and(|covers| at <= covers) => {}
                Ok(true) => return Ok(()),
                Ok(false) => return Err(crate::run::recovering()),
                Err(error) => {
                    tracing::error!("{address} cannot be loaded: {error}");
                    return Err(Error::Unavailable {
                        reason: format!("{address} cannot be loaded: {error}"),
                    });
                }
            }
        }
    }

    /// `false`: the life is over.
    async fn load_once(
        &self,
        life: &Arc<Life>,
        (kind, hash): (usize, u64),
        address: &Address,
    ) -> Result<bool, throng_journal::Error> {
        let id = &*address.id;
        let Some(request) = life.shard_of(hash).wait(|shard| shard.load_request(kind, hash, id)) else {
            return Ok(true);
        };
        if life.open.wait(request.rests_on, u64::MAX).await.is_err() {
            return Ok(false);
        }
        let stored = now_or_later(self.store.load(address, request.state_version)).await?;
        let last = stored.events.last().map(|event| event.seq);
        let stored_seq = last
            .or(stored.state.as_ref().map(|state| state.seq))
            .unwrap_or_default();
        let mut tail = request.tail;
        tail.retain(|event| event.seq > stored_seq);
        let places: Vec<Place> = tail.iter().map(|event| event.place).collect();
        let payloads = match &places[..] {
            [] => Vec::new(),
            places => now_or_later(self.journal.read_at(places)).await?,
        };
        let tail = tail.into_iter().zip(payloads).collect();
        let mut family = None;
        if stored.state.is_none() {
            family = now_or_later(self.store.system(&family_row(address))).await?;
        }
        self.metrics.loads.inc();
        life.shard_of(hash).wait(|shard| {
            shard.loaded(kind, hash, id, Recalled { stored, tail, family });
            self.balance(life, shard);
        });
        Ok(true)
    }

    /// Looks for an idempotency key among the store's rows.
    pub(crate) async fn load_key<R>(&self, life: &Arc<Life>, hash: u64, id: &str, key: &str) -> Result<(), Error<R>> {
        let now = self.host.now();
        let asked = life.shard_of(hash).wait(|shard| shard.key_rows(hash, id, key, now));
        let mut found = None;
        for row in &asked.rows {
            found = now_or_later(self.store.system(row))
                .await
                .map_err(|error| Error::Unavailable {
                    reason: format!("the idempotency keys cannot be read: {error}"),
                })?;
            if found.is_some() {
                break;
            }
        }
        life.shard_of(hash)
            .wait(|shard| shard.key_looked(hash, id, key, &asked, found.as_deref()));
        Ok(())
    }

    /// The kind's index, hash and validity of an address from outside.
    pub(crate) fn hash<R>(&self, kind: usize, id: &str) -> Result<u64, Error<R>> {
        if limits::is_id(id) {
            return Ok(limits::hash(self.registry.kinds()[kind].name, id));
        }
        let limit = Address::ID_BYTES_MAX;
        Err(match id.len() {
            0 => Error::Malformed("the id is empty; an id has 1 to 256 bytes".into()),
            found => Error::TooLarge {
                what: "the id",
                found,
                limit,
            },
        })
    }
}
