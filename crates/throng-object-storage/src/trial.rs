//! The trial: a store's word is not believed before the store has kept it in a race.

use bytes::Bytes;
use futures_util::future::join_all;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use throng_conditional::{ConditionalStore, Fault, Object, PutNew, Replaced, Version};
use throng_journal::Later;

/// Writers that want one key at the same time.
const WRITERS: usize = 32;
const ROUNDS: usize = 3;
/// The longest that a request without an outcome is repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an object of the trial: more than servers keep beside its name, since larger ones take another path.
const BODY_BYTES: usize = 20_000;

/// The reason that a store must not hold a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Several creators of one key were each told to be its only one.
    #[error(
        "the storage ignores `If-None-Match: *`: {winners} of {WRITERS} writers at once were each told to have created one object; use a storage, or a \
         release of it, that lets one win"
    )]
    SeveralCreated {
        /// Their number.
        winners: usize,
    },
    /// An object that was there was created once more.
    #[error("the storage ignores `If-None-Match: *`: an object that was there was overwritten")]
    CreatedTwice,
    /// Several writers over one version were each told to be the only one.
    #[error(
        "the storage ignores `If-Match`: {winners} of {WRITERS} writers at once were each told to have replaced one version; use a storage, or a \
         release of it, that lets one win"
    )]
    SeveralReplaced {
        /// Their number.
        winners: usize,
    },
    /// A version that was no more was replaced.
    #[error("the storage ignores `If-Match`: a version that was no more was replaced")]
    StaleReplaced,
    /// An object that was not there was replaced.
    #[error("the storage ignores `If-Match`: an object that was not there was replaced")]
    NothingReplaced,
    /// Every writer was refused.
    #[error(
        "none of {WRITERS} writers at once was told to have {done} the object, though each could have: the storage loses its own answers"
    )]
    NoneWon {
        /// The thing that each of them wanted.
        done: &'static str,
    },
    /// A read shows something older than what was acknowledged before it began.
    #[error("the storage reads stale: after {after}, a read found {found}")]
    StaleRead {
        /// The acknowledged request.
        after: &'static str,
        /// The result of the read.
        found: &'static str,
    },
    /// A read gives other bytes than were put.
    #[error("the storage garbles: an object's bytes are not those of the one writer that was told to have written it")]
    Garbled,
    /// A version's name is not the one that its writer was told, or that of another version.
    #[error("the storage's ETags do not tell versions apart: {0}")]
    Versions(&'static str),
    /// A listing is wrong.
    #[error("the storage lists wrongly: {0}")]
    Listing(&'static str),
    /// A request had no outcome.
    #[error("{doing} had no outcome within {seconds} s: {why}", seconds = PATIENCE.as_secs())]
    NoOutcome {
        /// The request.
        doing: &'static str,
        /// The last answer.
        why: String,
    },
    /// The storage refused a request that a journal needs.
    #[error("{doing} was refused: {why}")]
    Refused {
        /// The request.
        doing: &'static str,
        /// The answer.
        why: String,
    },
}

/// A put whose outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Stored(Version),
    ConditionFailed,
}

/// An attempt: its outcome, or the reason that it has to be made again.
type Attempt<T> = Result<T, Fault>;

/// Races on a store, under keys that nobody else uses. They are gone once the store has passed.
pub struct Trial {
    store: Arc<dyn ConditionalStore>,
    pause: fn() -> Later<'static, ()>,
    /// Begins the keys of this trial alone.
    prefix: String,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trial({:?})", self.prefix)
    }
}

impl Trial {
    /// Prepares a trial. `pause` is waited for before a request without an outcome is made again.
    #[must_use]
    pub fn of(store: Arc<dyn ConditionalStore>, pause: fn() -> Later<'static, ()>) -> Self {
        let prefix = format!("trial/{:016x}/", fastrand::u64(..));
        Self { store, pause, prefix }
    }

    /// Runs it: some 250 requests.
    ///
    /// # Errors
    /// The reason that the store must not hold a journal.
    pub async fn run(&self) -> Result<(), Unfit> {
        // No part begins with a part beside it: storages that keep directories list `a/0` before `a-0`, and no key of a journal is like that.
        let keys: Vec<String> = ["a", "b", "c/0", "c/1", "d"]
            .iter()
            .map(|name| format!("{}{name}", self.prefix))
            .collect();
        for key in &keys[2..2 + ROUNDS] {
            let (body, version) = self.create_race(key).await?;
            self.replace_race(key, &body, &version).await?;
        }
        self.nothing_replaced(&keys[0]).await?;
        for key in &keys[..2] {
            self.create(key, &body(0)).await?;
        }
        self.listing(&keys).await?;
        for key in &keys {
            self.delete(key).await?;
        }
        Ok(())
    }

    /// Has many create one object: one wins, also against those that come late; its bytes are read.
    async fn create_race(&self, key: &str) -> Result<(Bytes, Version), Unfit> {
        if self.get("reading an object that is not there", key).await?.is_some() {
            return Err(Unfit::StaleRead {
                after: "no request for a key",
                found: "an object",
            });
        }
        let bodies: Vec<Bytes> = (0..WRITERS).map(body).collect();
        let puts = join_all(bodies.iter().map(|body| self.create(key, body))).await;
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
        match self.create(key, &body(WRITERS)).await? {
            Outcome::Stored(_) => Err(Unfit::CreatedTwice),
            Outcome::ConditionFailed => Ok((object.body, version)),
        }
    }

    /// Has many replace one version: one wins, and nobody over one that is no more.
    async fn replace_race(&self, key: &str, before: &Bytes, version: &Version) -> Result<(), Unfit> {
        let bodies: Vec<Bytes> = (0..WRITERS).map(body).collect();
        let puts = join_all(bodies.iter().map(|body| self.replace(key, body, version))).await;
        let (number, newer) = match &stored(puts)?[..] {
            [] => return Err(Unfit::NoneWon { done: "replaced" }),
            [(number, newer)] => (*number, newer.clone()),
            several => return Err(Unfit::SeveralReplaced { winners: several.len() }),
        };
        if newer == *version {
            return Err(Unfit::Versions("two have one name"));
        }
        if self.replace(key, &body(WRITERS), version).await? != Outcome::ConditionFailed {
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

    /// A version is not replaced once its object is gone.
    async fn nothing_replaced(&self, key: &str) -> Result<(), Unfit> {
        let Outcome::Stored(version) = self.create(key, &body(0)).await? else {
            return Err(Unfit::NoneWon { done: "created" });
        };
        self.delete(key).await?;
        match self.replace(key, &body(1), &version).await? {
            Outcome::Stored(_) => Err(Unfit::NothingReplaced),
            Outcome::ConditionFailed => Ok(()),
        }
    }

    async fn listing(&self, keys: &[String]) -> Result<(), Unfit> {
        for first in [0, 2] {
            let after = if first == 0 { "" } else { &*keys[first - 1] };
            let page = self
                .repeated("listing objects", || self.store.list(&self.prefix, after))
                .await?;
            let listed: Vec<&str> = page.0.keys.iter().map(|listed| &*listed.key).collect();
            if listed != keys[first..] {
                let mut sorted = listed.clone();
                sorted.sort_unstable();
                return Err(Unfit::Listing(match sorted == keys[first..] {
                    true => "not in the order of the keys' bytes",
                    false => "other objects than were put and asked for",
                }));
            }
        }
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<(), Unfit> {
        self.repeated("deleting an object", || self.store.delete(key)).await?;
        match self.get("reading an object that was deleted", key).await? {
            None => Ok(()),
            Some(_) => Err(Unfit::StaleRead {
                after: "an object was deleted",
                found: "the object",
            }),
        }
    }

    async fn get(&self, doing: &'static str, key: &str) -> Result<Option<Object>, Unfit> {
        Ok(self.repeated(doing, || self.store.get(key)).await?.0)
    }

    async fn version(&self, key: &str) -> Result<Option<Version>, Unfit> {
        Ok(self.repeated("reading a version", || self.store.version(key)).await?.0)
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
        let (outcome, is_repeated) = self.repeated("creating an object", attempt).await?;
        self.own(key, body, outcome, is_repeated).await
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
        let (outcome, is_repeated) = self.repeated("replacing an object", attempt).await?;
        self.own(key, body, outcome, is_repeated).await
    }

    /// A put whose condition failed after an attempt without an outcome may have failed because of that attempt.
    async fn own(&self, key: &str, body: &Bytes, outcome: Outcome, is_repeated: bool) -> Result<Outcome, Unfit> {
        if outcome != Outcome::ConditionFailed || !is_repeated {
            return Ok(outcome);
        }
        match self.get("reading after a put without an outcome", key).await? {
            Some(object) if object.body == *body => Ok(Outcome::Stored(object.version)),
            _ => Ok(outcome),
        }
    }

    /// Makes the same request until its outcome is known; true, if that took several attempts.
    async fn repeated<T, R>(&self, doing: &'static str, attempt: impl Fn() -> R) -> Result<(T, bool), Unfit>
    where
        R: Future<Output = Attempt<T>>,
    {
        let begun = Instant::now();
        let mut is_repeated = false;
        loop {
            match attempt().await {
                Ok(known) => return Ok((known, is_repeated)),
                Err(Fault::Refused(why)) => return Err(Unfit::Refused { doing, why }),
                Err(Fault::Unavailable(why)) if begun.elapsed() > PATIENCE => {
                    return Err(Unfit::NoOutcome { doing, why });
                }
                Err(Fault::Unavailable(_)) => (self.pause)().await,
            }
            is_repeated = true;
        }
    }
}

/// The bytes of a writer: no other writer's, in this trial or in another.
fn body(writer: usize) -> Bytes {
    let mut bytes = format!("writer {writer} {:016x} ", fastrand::u64(..)).into_bytes();
    bytes.resize(BODY_BYTES, b'.');
    bytes.into()
}

/// The writers whose puts were stored, by their numbers.
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
    use crate::block_on;
    use std::{
        collections::BTreeMap,
        future::ready,
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };
    use throng_conditional::{Listed, Page};

    /// A deviation of a store from what it promises.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lie {
        None,
        /// Each creator is told to be the one, and overwrites the other.
        IgnoresNoneMatch,
        /// Each creator is told to be the one; the first stays.
        PraisesAll,
        /// Each writer over a version is told to be the one.
        IgnoresMatch,
        /// A put over a version creates what is not there.
        MatchCreates,
        /// No creator is told that it won.
        DeniesWinner,
        /// A read shows the version before.
        ReadsStale,
        /// Bytes change on their way.
        Garbles,
        /// All versions have one name.
        NamesAlike,
        /// A deletion does nothing.
        KeepsDeleted,
        /// A listing lacks its last object.
        ListsLess,
        /// A listing shows what comes before.
        ListsAll,
        /// A read of a missing object is refused.
        Hides,
    }

    #[derive(Debug)]
    struct Liar {
        lie: Lie,
        /// Every so many-th answer to a put is lost.
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

        /// Puts if the last version is this one; true, if so.
        fn put(&self, key: &str, body: Bytes, seen: Option<&Version>) -> Option<Result<Version, ()>> {
            let number = self.puts.fetch_add(1, Relaxed) + 1;
            let mut objects = self.objects.lock().unwrap();
            let now = objects
                .get(key)
                .and_then(|versions| versions.last())
                .map(|(_, number)| self.named(*number));
            let holds = now.as_ref() == seen;
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
            if self.loses > 0 && number % self.loses == 0 {
                return None;
            }
            let is_denied = self.lie == Lie::DeniesWinner && seen.is_none();
            Some(if (holds || is_forced || is_praised) && !is_denied {
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
            if self.lie != Lie::KeepsDeleted {
                self.objects.lock().unwrap().remove(key);
            }
            Box::pin(ready(Ok(())))
        }

        fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> Later<'a, Result<Page, Fault>> {
            let objects = self.objects.lock().unwrap();
            let is_listed = |key: &&String| key.starts_with(prefix) && (self.lie == Lie::ListsAll || &***key > after);
            let mut keys: Vec<Listed> = objects
                .keys()
                .filter(is_listed)
                .map(|key| Listed {
                    key: key.clone(),
                    bytes: 1,
                })
                .collect();
            if self.lie == Lie::ListsLess {
                keys.pop();
            }
            Box::pin(ready(Ok(Page { keys, has_more: false })))
        }
    }

    fn tried(lie: Lie, loses: usize) -> (Result<(), Unfit>, Arc<Liar>) {
        let store = Arc::new(Liar {
            lie,
            loses,
            puts: AtomicUsize::new(0),
            objects: Mutex::default(),
        });
        let trial = Trial::of(Arc::clone(&store) as _, || Box::pin(ready(())));
        (block_on(trial.run()), store)
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
        assert_eq!(said(Lie::DeniesWinner), Unfit::NoneWon { done: "created" });
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
        assert!(matches!(
            said(Lie::KeepsDeleted),
            Unfit::StaleRead {
                after: "an object was deleted",
                ..
            }
        ));
        for lie in [Lie::ListsLess, Lie::ListsAll] {
            assert!(matches!(said(lie), Unfit::Listing(_)), "{lie:?}");
        }
        assert!(matches!(said(Lie::Hides), Unfit::Refused { why, .. } if why.contains("403")));
    }
}
