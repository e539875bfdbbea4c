//! Dead messages: nobody could take them. A person looks at them here, and has them tried again.

use crate::{
    deliver::Outgoing,
    engine::{Engine, Inner},
    life::Life,
    load::now_or_later,
    run::{Reply, forwarded, recovering},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use throng_core::{
    limits,
    model::Error,
    shard::{DeadMessage, Delivery, JsonRejection, JsonReply, KnownDead, Outcome, Ran, Shard, dead_row, dead_rows},
};
use throng_journal::{Address, ShardId};

/// Dead messages, at most so many, in the order of their receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// The messages.
    pub messages: Vec<DeadMessage>,
    /// Where the next page begins, if this one is full: what to give as `after`.
    pub next: Option<String>,
}

/// What came of a dead message that was tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retried {
    /// It was taken.
    Done,
    /// Its receiver said no to it, for this reason: it was taken, and asks no more.
    Refused(String),
    /// It is dead again, for this reason.
    Dead(String),
}

/// Most messages of a page, and most tried again in one go.
const PAGE_MAX: usize = 1_000;

type Answer<T> = Result<T, Error<JsonRejection>>;

impl Engine {
    /// Dead messages to anybody, to a kind, or to one entity (kind and id): after where the last page ended, at most `limit`
    /// (and never more than 1,000). Each page looks through the store's rows of those asked for.
    ///
    /// # Errors
    /// `Malformed` for an `after` that no page gave, or the engine's.
    pub async fn dead_messages(
        &self,
        to: Option<(&str, Option<&str>)>,
        after: Option<&str>,
        limit: usize,
    ) -> Answer<DeadPage> {
        let inner = &self.inner;
        let (begin, limit) = (dead_rows(to), limit.clamp(1, PAGE_MAX));
        let after = after.map_or(Ok(Vec::new()), |after| {
            let malformed = || Error::Malformed(format!("{after:?} is not where a page of dead messages ended"));
            read_hex(after)
                .filter(|row| row.starts_with(&begin))
                .ok_or_else(malformed)
        })?;
        let life = inner.life()?;
        let mut found = BTreeMap::new();
        let mut gone = BTreeSet::new();
        // The shards first: what a checkpoint moves meanwhile is then seen twice, never missed.
        for shard in &life.shards {
            for (row, value) in shard.wait(|shard| shard.fresh_dead(&begin, &after, limit)) {
                match value {
                    Some(value) => drop(found.insert(row.clone(), DeadMessage::read(&row, &value))),
                    None => drop(gone.insert(row)),
                }
            }
        }
        let last = life.open.last();
        inner.kick();
        let mut stored = 0;
        let mut visit = |row: &[u8], value: &[u8]| {
            if stored < limit && row > after.as_slice() && !gone.contains(row) {
                stored += 1;
                found
                    .entry(row.to_vec())
                    .or_insert_with(|| DeadMessage::read(row, value));
            }
        };
        let scanned = inner.store.system_scan(&begin, &mut visit).await;
        scanned.map_err(|why| unreadable(&why))?;
        inner.durable(&life, last, inner.until_of(None)).await?;
        let is_full = found.len() >= limit;
        let mut page = DeadPage::default();
        for (row, message) in found.into_iter().take(limit) {
            if is_full {
                page.next = Some(hex(&row));
            }
            page.messages.extend(message);
        }
        Ok(page)
    }

    /// Has a dead message tried again, once: by its receiver, and the number ([`DeadMessage::number`]) it has there. Taking it
    /// records what came of it, with what it does: tried again by two at once, it takes effect once.
    ///
    /// # Errors
    /// `Unknown` if it is not dead (any more), or the engine's.
    pub async fn retry_dead(&self, kind: &str, id: &str, number: (ShardId, u64)) -> Answer<Retried> {
        let inner = &self.inner;
        let until = inner.until_of(None);
        let life = inner.life()?;
        inner.admit(&life, until).await?;
        inner.retry(&life, &Address::new(kind, id), number, until).await
    }

    /// Has the dead messages to an entity tried again, each once, in the order they stand in [`dead_messages`]; at most 1,000
    /// after where the last page ended. Returns what came of each, and where the next page begins.
    ///
    /// # Errors
    /// Those of the first that could not be tried: all before it were.
    ///
    /// [`dead_messages`]: Self::dead_messages
    pub async fn retry_all_dead(
        &self,
        kind: &str,
        id: &str,
        after: Option<&str>,
    ) -> Answer<(Vec<(DeadMessage, Retried)>, Option<String>)> {
        let page = self.dead_messages(Some((kind, Some(id))), after, PAGE_MAX).await?;
        let mut came = Vec::with_capacity(page.messages.len());
        for message in page.messages {
            match self.retry_dead(kind, id, message.number).await {
                Ok(retried) => came.push((message, retried)),
                // Somebody else was faster.
                Err(Error::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((came, page.next))
    }
}

impl Inner {
    async fn retry(
        self: &Arc<Self>,
        life: &Arc<Life>,
        to: &Address,
        number: (ShardId, u64),
        until: u64,
    ) -> Answer<Retried> {
        let row = dead_row(to, number);
        let hash = limits::hash(&to.kind, &to.id);
        let kind = self.registry.find(&to.kind);
        let kind = kind.ok_or_else(|| crate::run::unknown_kind(&to.kind))?;
        let shard = life.shard_of(hash);
        let unknown = || Error::Unknown {
            kind: "dead message",
            id: format!("{}-{} to {to}", number.0, number.1),
        };
        loop {
            let mut stored = None;
            if let KnownDead::Stored(seen) = shard.wait(|shard| shard.known_dead(&row)) {
                let read = now_or_later(self.store.system(&row)).await;
                stored = Some((seen, read.map_err(|why| unreadable(&why))?));
            }
            let mut reply = Reply::Json(JsonReply::default());
            let ran = shard.wait(|shard| {
                let value = match shard.known_dead(&row) {
                    _ if life.is_over() => return Err(recovering()),
                    KnownDead::Dead(value) => value,
                    KnownDead::NotDead => return Err(unknown()),
                    KnownDead::Stored(now) => match stored.take() {
                        Some((seen, value)) if seen == now => value.ok_or_else(unknown)?,
                        // A checkpoint moved it meanwhile.
                        _ => return Ok(None),
                    },
                };
                let mut delivery = Delivery::again(&row, &value)
                    .map_err(|why| Error::Malformed(format!("the dead message to {to} cannot be read: {why}")))?;
                Ok(Some((
                    self.take_again(life, shard, (kind, hash), &mut delivery, &mut reply),
                    delivery,
                )))
            })?;
            let key = ran.as_ref().and_then(|(_, delivery)| delivery.taking.key.clone());
            let (rests_on, outcome) = match ran.map(|(ran, _)| ran) {
                None => continue,
                Some(Ran::Load) => {
                    let load = Box::pin(self.load(life, kind, hash, &to.id));
                    self.before(life, until, load).await?;
                    continue;
                }
                Some(Ran::LoadKey) => {
                    let key = key.unwrap_or_default();
                    let load = Box::pin(self.load_key(life, hash, &to.id, &key));
                    self.before(life, until, load).await?;
                    continue;
                }
                Some(Ran::Done { rests_on, outcome }) => (rests_on, outcome),
                // Taken before under its key.
                Some(Ran::Forward(_) | Ran::ForwardAgain(_)) => (life.open.last(), Outcome::Done),
            };
            self.metrics.messages.inc();
            self.pump(life, self.options.deliveries_per_turn);
            self.durable(life, rests_on, until).await?;
            let Reply::Json(JsonReply { error, .. }) = reply else {
                return Err(Error::OutcomeUnknown);
            };
            let reason = error.map(|error| error.to_string()).unwrap_or_default();
            return Ok(match outcome {
                Outcome::Done => Retried::Done,
                Outcome::Refused => Retried::Refused(reason),
                Outcome::Failed => {
                    self.metrics.dead.inc();
                    Retried::Dead(reason)
                }
            });
        }
    }

    fn take_again(
        self: &Arc<Self>,
        life: &Life,
        shard: &mut Shard,
        target: (usize, u64),
        delivery: &mut Delivery,
        reply: &mut Reply,
    ) -> Ran {
        let (mut ran, first) = self.run_message(life, shard, target, delivery, reply);
        if let Some(delivery) = forwarded(&mut ran) {
            self.enqueue(life, Vec::new(), Some(Outgoing::new(life, delivery, None)));
        }
        self.after(life, shard, first);
        ran
    }
}

fn unreadable(why: &throng_journal::Error) -> Error<JsonRejection> {
    Error::Unavailable {
        reason: format!("the dead messages cannot be read: {why}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}
