//! An idempotency key, and the outcome kept under it.

use crate::{limits::KEY_MICROS, model::Timestamp};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU16, time::Duration};

/// Keys are dealt to buckets by the ten minutes in which they expire.
pub(crate) const BUCKET_MICROS: i64 = 600_000_000;

/// The idempotency key of a command.
pub(crate) struct CommandKey {
    /// A hash of the key and its entity.
    pub(crate) number: u128,
    /// The key as the caller gave it.
    pub(crate) name: String,
    /// A hash of the command, by which another command under the same key is noticed; 0 before the command was read.
    pub(crate) fingerprint: u64,
    /// The time it is kept.
    pub(crate) life: KeyLife,
}

impl CommandKey {
    /// Returns the key under which another entity continues a command that this one has forwarded.
    pub(crate) fn derived(&self, kind: &str, id: &str) -> String {
        format!("{kind}/{id}/{}", self.name)
    }
}

/// The outcome kept under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptOutcome {
    /// A hash of the command, by which another command under the same key is noticed.
    pub(crate) print: u64,
    /// The time until which it is kept, in microseconds.
    pub(crate) until: i64,
    pub(crate) answer: KeptAnswer,
    /// The commit of its record, of this writer. The slot of an entity without events does not have it.
    #[serde(skip)]
    pub(crate) rests_on: u64,
}

/// The time for which an idempotency key is kept. The default is an hour. Sources that may repeat a request later need more, such as a
/// broker in whose queue a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyLife {
    hours: NonZeroU16,
}

impl KeyLife {
    /// The longest time: 30 days.
    pub const MAX: Self = Self {
        hours: NonZeroU16::new(30 * 24).expect("it is not 0"),
    };

    /// Returns this duration rounded up to whole hours, at most [`MAX`](Self::MAX).
    #[must_use]
    pub fn at_least(duration: Duration) -> Self {
        let hours = duration
            .as_secs()
            .div_ceil(3_600)
            .clamp(1, u64::from(Self::MAX.hours.get()));
        let hours = u16::try_from(hours).ok().and_then(NonZeroU16::new);
        hours.map_or(Self::MAX, |hours| Self { hours })
    }

    /// Returns the lifetime as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_secs(3_600 * u64::from(self.hours.get()))
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for KeyLife {
    fn default() -> Self {
        Self { hours: NonZeroU16::MIN }
    }
}

/// Returns true if the idempotency key in this record's body has expired.
#[must_use]
pub fn is_key_over(body: &[u8], now: Timestamp) -> bool {
    let kept = body
        .split_first_chunk::<16>()
        .map(|(_, kept)| serde_json::from_slice::<KeptOutcome>(kept));
    matches!(kept, Some(Ok(kept)) if kept.until <= now.micros)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeptAnswer {
    /// The reply as JSON.
    Reply(Box<str>),
    /// The entity recorded something and forwarded this to another.
    Forward(Box<Forwarded>),
    /// The same, to create a child.
    Create(Box<Forwarded>),
    /// The last command under the key was refused. The fingerprints are those of commands refused before it, the oldest first.
    Refused(Vec<u64>),
}

/// The number of refused commands that a key remembers. A caller that tries more different commands under one key is not
/// protected from delayed copies of the first ones.
pub(crate) const REFUSED_MAX: usize = 16;
/// The time that a refusal is remembered, in microseconds: ten minutes.
pub(crate) const REFUSED_MICROS: i64 = 600_000_000;

impl KeptOutcome {
    fn new(print: u64, until: i64, answer: KeptAnswer) -> Self {
        Self {
            print,
            until,
            answer,
            rests_on: 0,
        }
    }

    pub(crate) fn accepted(key: &CommandKey, answer: KeptAnswer, now: Timestamp) -> Self {
        Self::new(key.fingerprint, until(now, key.life), answer)
    }

    /// Returns the outcome for a refused command, including the commands refused under its key before.
    //= promise 4: a key takes effect once
    pub(crate) fn refused(key: &CommandKey, before: Option<&Self>, now: Timestamp) -> Self {
        let mut others = Vec::new();
        if let Some(before) = before
            && let KeptAnswer::Refused(older) = &before.answer
        {
            let newest = older.iter().copied().chain([before.print]);
            others.extend(newest.skip((older.len() + 1).saturating_sub(REFUSED_MAX - 1)));
        }
        let until = now.micros.saturating_add(REFUSED_MICROS);
        Self::new(key.fingerprint, until, KeptAnswer::Refused(others))
    }

    /// True if commands were refused under the key, and none was accepted.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.answer, KeptAnswer::Refused(_))
    }

    /// True if a command of this fingerprint was refused.
    pub(crate) fn has_refused(&self, fingerprint: u64) -> bool {
        matches!(&self.answer, KeptAnswer::Refused(others) if self.print == fingerprint || others.contains(&fingerprint))
    }
}

/// Kind, id, the command's name, its content.
pub(crate) type Forwarded = (String, String, String, String);

pub(crate) fn until(now: Timestamp, life: KeyLife) -> i64 {
    let hours = i64::from(life.hours.get());
    let until = now.micros.saturating_add(hours * KEY_MICROS);
    if life == KeyLife::default() {
        return until;
    }
    // Longer lives expire in as few steps as an hour, because a lookup of a fresh key checks each step.
    let step = hours * BUCKET_MICROS;
    until.saturating_add(step - 1) / step * step
}
