//! The trial: a race that a store must pass before its promises are relied on.

use crate::{ConditionalStore, Fault, Host, Object, PutNew, Replaced, Version, host::Pauses, streams::all};
use bytes::Bytes;
use std::time::Duration;

/// The number of writers that want one key at the same time.
const WRITERS: usize = 32;
/// The longest that a request without an outcome is repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// The size of an object of the trial. It exceeds what servers store inline with the key, because larger objects take another path.
const BODY_BYTES: usize = 20_000;

/// The reason that a store must not hold a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Several creators of one key were each told to have won.
    #[error(
        "the storage ignores `If-None-Match: *`: {winners} of {WRITERS} writers at once were each told to have created one object; use a storage, or a \
         release of it, that lets one win"
    )]
    SeveralCreated {
        /// The number of writers that were each told to have won.
        winners: usize,
    },
    /// An existing object was created again.
    #[error("the storage ignores `If-None-Match: *`: an object that was there was overwritten")]
    CreatedTwice,
    /// Several writers of one version were each told to be the only one.
    #[error(
        "the storage ignores `If-Match`: {winners} of {WRITERS} writers at once were each told to have replaced one version; use a storage, or a \
         release of it, that lets one win"
    )]
    SeveralReplaced {
        /// The number of writers that were each told to have won.
        winners: usize,
    },
    /// An outdated version was replaced.
    #[error("the storage ignores `If-Match`: a version that was no more was replaced")]
    StaleReplaced,
    /// A missing object was replaced.
    #[error("the storage ignores `If-Match`: an object that was not there was replaced")]
    NothingReplaced,
    /// Every writer was refused.
    #[error(
        "none of {WRITERS} writers at once was told to have {done} the object, though each could have: the storage loses its own answers"
    )]
    NoneWon {
        /// The action that each of them wanted.
        done: &'static str,
    },
    /// A read returns an older state than one acknowledged before the read began.
    #[error("the storage reads stale: after {after}, a read found {found}")]
    StaleRead {
        /// The acknowledged request.
        after: &'static str,
        /// The returned state.
        found: &'static str,
    },
    /// A read returns other bytes than were put.
    #[error("the storage garbles: an object's bytes are not those of the one writer that was told to have written it")]
    Garbled,
    /// The version of an object differs from the one its writer was told, or equals another version.
    #[error("the storage's ETags do not tell versions apart: {0}")]
    Versions(&'static str),
    /// A request had no outcome.
    #[error("{doing} had no outcome within {seconds} s: {why}", seconds = PATIENCE.as_secs())]
    NoOutcome {
        /// The request, as a phrase that begins the sentence.
        doing: &'static str,
        /// The last answer.
        why: String,
    },
    /// The storage refused a request that a journal needs.
    #[error("{doing} was refused: {why}")]
    Refused {
        /// The request, as a phrase that begins the sentence.
        doing: &'static str,
        /// The storage's answer, in its words.
        why: String,
    },
}

/// The known outcome of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Stored(Version),
    ConditionFailed,
}

/// Lets writers race on a store, under unique keys, with about 140 requests.
///
/// # Errors
/// The reason that the store must not hold a journal.
pub async fn trial(store: &dyn ConditionalStore, host: &dyn Host) -> Result<(), Unfit> {
    let prefix = format!("trial/{:032x}", host.random());
    Trial { store, host, prefix }.run().await
}

struct Trial<'a> {
    store: &'a dyn ConditionalStore,
    host: &'a dyn Host,
    /// The prefix of all keys of this trial.
    prefix: String,
}

impl Trial<'_> {
    async fn run(&self) -> Result<(), Unfit> {
        let key = &*format!("{}/one", self.prefix);
        let (before, version) = self.create_race(key).await?;
        self.replace_race(key, &before, &version).await?;
        let missing = format!("{}/missing", self.prefix);
        if self.replace(&missing, &self.body(0), &version).await? != Outcome::ConditionFailed {
            return Err(Unfit::NothingReplaced);
        }
        // A leftover is harmless: no other trial uses this key.
        _ = self.store.delete(key).await;
        Ok(())
    }

    /// Lets many writers create one object. Checks that one wins, also against late ones, and that a read returns its bytes.
    async fn create_race(&self, key: &str) -> Result<(Bytes, Version), Unfit> {
        if self.get("reading an object that is not there", key).await?.is_some() {
            return Err(Unfit::StaleRead {
                after: "no request for a key",
                found: "an object",
            });
        }
        let bodies: Vec<Bytes> = (0..WRITERS).map(|writer| self.body(writer)).collect();
        let puts = all(bodies.iter().map(|body| self.create(key, body)).collect()).await;
        let (number, version) = match &stored(puts)?[..] {
            [] => return Err(Unfit::NoneWon { done: "created" }),
            [(number, version)] => (*number, version.clone()),
            several => return Err(Unfit::SeveralCreated { winners: several.len() }),
        };
        let object = self.get("reading a new object", key).await?;
        let object = object.ok_or(Unfit::StaleRead {
            after: "an object was created",
            found: "none",
        })?;
        if object.body != bodies[number] {
            return Err(Unfit::Garbled);
        }
        if object.version != version || self.version(key).await? != Some(version.clone()) {
            return Err(Unfit::Versions("a read names another one than its writer was told"));
        }
        match self.create(key, &self.body(WRITERS)).await? {
            Outcome::Stored(_) => Err(Unfit::CreatedTwice),
            Outcome::ConditionFailed => Ok((object.body, version)),
        }
    }

    /// Lets many writers replace one version. Checks that one wins, and that no outdated version can be replaced.
    async fn replace_race(&self, key: &str, before: &Bytes, version: &Version) -> Result<(), Unfit> {
        let bodies: Vec<Bytes> = (0..WRITERS).map(|writer| self.body(writer)).collect();
        let puts = all(bodies.iter().map(|body| self.replace(key, body, version)).collect()).await;
        let (number, newer) = match &stored(puts)?[..] {
            [] => return Err(Unfit::NoneWon { done: "replaced" }),
            [(number, newer)] => (*number, newer.clone()),
            several => return Err(Unfit::SeveralReplaced { winners: several.len() }),
        };
        if newer == *version {
            return Err(Unfit::Versions("two have one name"));
        }
        if self.replace(key, &self.body(WRITERS), version).await? != Outcome::ConditionFailed {
            return Err(Unfit::StaleReplaced);
        }
        let after = "an object was replaced";
        match self.get("reading an object that was replaced", key).await? {
            None => Err(Unfit::StaleRead { after, found: "none" }),
            Some(object) if object.body == *before => Err(Unfit::StaleRead {
                after,
                found: "the version before",
            }),
            Some(object) if object.body != bodies[number] => Err(Unfit::Garbled),
            Some(object) if object.version != newer => {
                Err(Unfit::Versions("a read names another one than its writer was told"))
            }
            Some(_) => Ok(()),
        }
    }

    async fn get(&self, doing: &'static str, key: &str) -> Result<Option<Object>, Unfit> {
        self.repeated(doing, || self.store.get(key)).await
    }

    async fn version(&self, key: &str) -> Result<Option<Version>, Unfit> {
        self.repeated("reading a version", || self.store.version(key)).await
    }

    async fn create(&self, key: &str, body: &Bytes) -> Result<Outcome, Unfit> {
        let attempt = || async {
            match self.store.put_new(key, body.clone()).await {
                PutNew::Stored(version) => Ok(Outcome::Stored(version)),
                PutNew::Exists => Ok(Outcome::ConditionFailed),
                PutNew::Conflict => Err(Fault::Unavailable("another request was under way".into())),
                PutNew::Unknown(why) => Err(Fault::Unavailable(why)),
                PutNew::Refused(why) => Err(Fault::Refused(why)),
            }
        };
        let outcome = self.repeated("creating an object", attempt).await?;
        self.own(key, body, outcome).await
    }

    async fn replace(&self, key: &str, body: &Bytes, version: &Version) -> Result<Outcome, Unfit> {
        let attempt = || async {
            match self.store.replace(key, body.clone(), version).await {
                Replaced::Stored(version) => Ok(Outcome::Stored(version)),
                Replaced::Changed => Ok(Outcome::ConditionFailed),
                Replaced::Conflict => Err(Fault::Unavailable("another request was under way".into())),
                Replaced::Unknown(why) => Err(Fault::Unavailable(why)),
                Replaced::Refused(why) => Err(Fault::Refused(why)),
            }
        };
        let outcome = self.repeated("replacing an object", attempt).await?;
        self.own(key, body, outcome).await
    }

    /// Tells if a put that was refused has won by an earlier attempt whose answer was lost, or by a duplicate.
    async fn own(&self, key: &str, body: &Bytes, outcome: Outcome) -> Result<Outcome, Unfit> {
        if outcome != Outcome::ConditionFailed {
            return Ok(outcome);
        }
        match self.get("reading after a put that was refused", key).await? {
            Some(object) if object.body == *body => Ok(Outcome::Stored(object.version)),
            _ => Ok(outcome),
        }
    }

    /// Repeats a request until its outcome is known.
    async fn repeated<T, R>(&self, doing: &'static str, attempt: impl Fn() -> R) -> Result<T, Unfit>
    where
        R: Future<Output = Result<T, Fault>>,
    {
        let begun = self.host.boot_clock();
        let mut pauses = Pauses::new();
        loop {
            match attempt().await {
                Ok(known) => return Ok(known),
                Err(Fault::Refused(why)) => return Err(Unfit::Refused { doing, why }),
                Err(Fault::Unavailable(why)) if self.host.boot_clock().saturating_sub(begun) > PATIENCE => {
                    return Err(Unfit::NoOutcome { doing, why });
                }
                Err(Fault::Unavailable(_)) => pauses.pause(self.host).await,
            }
        }
    }

    /// Returns bytes unique to this writer, also among all trials.
    fn body(&self, writer: usize) -> Bytes {
        let mut bytes = format!("writer {writer} {:032x} ", self.host.random()).into_bytes();
        bytes.resize(BODY_BYTES, b'.');
        bytes.into()
    }
}

/// Returns the numbers of the writers whose puts were stored, with their versions.
fn stored(puts: Vec<Result<Outcome, Unfit>>) -> Result<Vec<(usize, Version)>, Unfit> {
    let mut stored = Vec::new();
    for (number, put) in puts.into_iter().enumerate() {
        if let Outcome::Stored(version) = put? {
            stored.push((number, version));
        }
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::{
        collections::BTreeMap,
        future::ready,
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };
    use throng_journal::Later;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    /// A way in which a store breaks its promise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lie {
        None,
        /// Each creator is told to have won, and overwrites the one before.
        IgnoresNoneMatch,
        /// Each creator is told to have won; the first object stays.
        PraisesAll,
        /// Each writer of a version is told to have won.
        IgnoresMatch,
        /// A conditional put creates a missing object.
        MatchCreates,
        /// A read returns the previous version.
        ReadsStale,
        /// Bytes change in transit.
        Garbles,
        /// All versions have the same name.
        NamesAlike,
        /// Every creator is refused, and nothing is stored.
        StoresNothing,
        /// A read of a missing object is refused.
        Hides,
    }

    #[derive(Debug)]
    struct Liar {
        lie: Lie,
        /// The answer to every n-th put is lost.
        loses: usize,
        puts: AtomicUsize,
        objects: Mutex<BTreeMap<String, Vec<(Bytes, usize)>>>,
    }

    impl Liar {
        fn named(&self, number: usize) -> Version {
            Version(if self.lie == Lie::NamesAlike {
                "one".into()
            } else {
                number.to_string().into()
            })
        }

        /// Puts if the last version is `seen`. Returns `None` if it is not.
        fn put(&self, key: &str, body: Bytes, seen: Option<&Version>) -> Option<Result<Version, ()>> {
            let number = self.puts.fetch_add(1, Relaxed) + 1;
            let mut objects = self.objects.lock().unwrap();
            let now = objects
                .get(key)
                .and_then(|versions| versions.last())
                .map(|(_, number)| self.named(*number));
            let holds = now.as_ref() == seen && self.lie != Lie::StoresNothing;
            let is_forced = match self.lie {
                Lie::IgnoresNoneMatch => seen.is_none(),
                Lie::IgnoresMatch => seen.is_some() && now.is_some(),
                Lie::MatchCreates => seen.is_some() && now.is_none(),
                _ => false,
            };
            let is_praised = self.lie == Lie::PraisesAll && seen.is_none();
            if holds || is_forced {
                objects.entry(key.into()).or_default().push((body, number));
            }
            if number.is_multiple_of(self.loses) {
                return None;
            }
            Some(if holds || is_forced || is_praised {
                Ok(self.named(number))
            } else {
                Err(())
            })
        }
    }

    impl ConditionalStore for Liar {
        fn put_new<'a>(&'a self, key: &'a str, body: Bytes) -> Later<'a, PutNew> {
            Box::pin(ready(match self.put(key, body, None) {
                None => PutNew::Unknown("lost".into()),
                Some(Ok(version)) => PutNew::Stored(version),
                Some(Err(())) => PutNew::Exists,
            }))
        }

        fn replace<'a>(&'a self, key: &'a str, body: Bytes, seen: &'a Version) -> Later<'a, Replaced> {
            Box::pin(ready(match self.put(key, body, Some(seen)) {
                None => Replaced::Unknown("lost".into()),
                Some(Ok(version)) => Replaced::Stored(version),
                Some(Err(())) => Replaced::Changed,
            }))
        }

        fn get<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Object>, Fault>> {
            let objects = self.objects.lock().unwrap();
            let versions = objects.get(key).map_or(&[][..], |versions| versions);
            let last = match self.lie {
                Lie::ReadsStale if versions.len() > 1 => versions.len().checked_sub(2),
                _ => versions.len().checked_sub(1),
            };
            let object = last.map(|last| {
                let (body, number) = &versions[last];
                let body = if self.lie == Lie::Garbles {
                    body.slice(1..)
                } else {
                    body.clone()
                };
                Object {
                    body,
                    version: self.named(*number),
                }
            });
            Box::pin(ready(match (object, self.lie) {
                (None, Lie::Hides) => Err(Fault::Refused("403 Forbidden".into())),
                (object, _) => Ok(object),
            }))
        }

        fn version<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Version>, Fault>> {
            Box::pin(async move { Ok(self.get(key).await?.map(|object| object.version)) })
        }

        fn delete<'a>(&'a self, key: &'a str) -> Later<'a, Result<(), Fault>> {
            self.objects.lock().unwrap().remove(key);
            Box::pin(ready(Ok(())))
        }
    }

    /// Tasks and clocks of a world whose time stands still.
    struct Still;

    impl Host for Still {
        fn spawn(&self, _: Later<'static, ()>) {
            unreachable!("a trial runs no task")
        }

        fn pause(&self, _: Duration) -> Later<'static, ()> {
            Box::pin(ready(()))
        }

        fn boot_clock(&self) -> Duration {
            Duration::ZERO
        }

        fn wall_micros(&self) -> i64 {
            0
        }

        fn random(&self) -> u128 {
            fastrand::u128(..)
        }
    }

    fn tried(lie: Lie, loses: usize) -> (Result<(), Unfit>, Liar) {
        let store = Liar {
            lie,
            loses,
            puts: AtomicUsize::new(0),
            objects: Mutex::default(),
        };
        let result = block_on(trial(&store, &Still));
        (result, store)
    }

    #[test]
    fn honest_store_passes_and_is_left_empty() {
        for loses in [0, 2, 3, 7] {
            let (result, store) = tried(Lie::None, loses);
            assert_eq!(result, Ok(()), "{loses}");
            assert!(store.objects.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn each_lie_is_named() {
        let said = |lie| tried(lie, 0).0.unwrap_err();
        assert_eq!(said(Lie::IgnoresNoneMatch), Unfit::SeveralCreated { winners: WRITERS });
        assert_eq!(said(Lie::PraisesAll), Unfit::SeveralCreated { winners: WRITERS });
        assert_eq!(said(Lie::IgnoresMatch), Unfit::SeveralReplaced { winners: WRITERS });
        assert_eq!(said(Lie::MatchCreates), Unfit::NothingReplaced);
        assert_eq!(said(Lie::StoresNothing), Unfit::NoneWon { done: "created" });
        assert!(matches!(
            said(Lie::ReadsStale),
            Unfit::StaleRead {
                found: "the version before",
                ..
            }
        ));
        assert_eq!(said(Lie::Garbles), Unfit::Garbled);
        assert!(matches!(
            said(Lie::NamesAlike),
            Unfit::SeveralReplaced { .. } | Unfit::Versions(_)
        ));
        assert!(matches!(said(Lie::Hides), Unfit::Refused { why, .. } if why.contains("403")));
    }
}
