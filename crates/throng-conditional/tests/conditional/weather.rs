//! An object store in memory, behind a network, with the faults that a test chooses.

use crate::world::{NETWORK, World, at_most};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};
use throng_conditional::{ConditionalStore, Fault, Object, PutNew, Replaced, Version};
use throng_journal::Later;

/// Probabilities of faults, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// The longest duration of a request, in microseconds.
    pub(crate) latency: u64,
    /// A request arrives up to [`LATEST`] later, long after its caller gave up.
    pub(crate) late: u32,
    /// A request arrives twice.
    pub(crate) twice: u32,
    /// A request never arrives.
    pub(crate) lost: u32,
    /// The answer never arrives.
    pub(crate) unanswered: u32,
    /// The store answers 409 or 5xx; it may have carried out the request or not.
    pub(crate) busy: u32,
    /// A conditional put that has lost is answered as won. Half of these are also stored.
    pub(crate) two_win: u32,
    /// A read returns the previous state, or nothing.
    pub(crate) stale: u32,
}

impl Weather {
    pub(crate) const FAIR: Self = Self {
        latency: 30_000,
        late: 0,
        twice: 0,
        lost: 0,
        unanswered: 0,
        busy: 0,
        two_win: 0,
        stale: 0,
    };
    pub(crate) const ROUGH: Self = Self {
        late: 30,
        twice: 30,
        lost: 20,
        unanswered: 30,
        busy: 40,
        ..Self::FAIR
    };
}

#[derive(Default)]
pub(crate) struct Server {
    objects: Mutex<BTreeMap<String, Stored>>,
    /// The broken promises so far, for checks that look for them.
    pub(crate) lies: Mutex<Vec<String>>,
    pub(crate) puts: std::sync::atomic::AtomicU64,
}

struct Stored {
    body: Option<Bytes>,
    version: u64,
    before: Option<Object>,
    at: Duration,
}

impl Stored {
    fn object(&self) -> Option<Object> {
        let version = Version(self.version.to_string().into());
        self.body.clone().map(|body| Object { body, version })
    }

    fn set(&mut self, body: Option<Bytes>, at: Duration) -> Version {
        self.at = at;
        self.before = self.object();
        self.version += 1;
        self.body = body;
        Version(self.version.to_string().into())
    }
}

#[derive(Clone, Debug)]
enum Request {
    PutNew(String, Bytes),
    Replace(String, Bytes, Version),
    Get(String),
    Delete(String),
}

#[derive(Clone, Debug)]
enum Answer {
    PutNew(PutNew),
    Replaced(Replaced),
    Got(Option<Object>),
    Deleted,
    Busy,
}

impl Server {
    fn lie(&self, what: String) {
        self.lies.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn handle(&self, world: &World, weather: Weather, request: &Request) -> Answer {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Stored {
            body: None,
            version: 0,
            before: None,
            at: Duration::ZERO,
        };
        match request {
            Request::PutNew(key, body) => {
                self.puts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let stored = objects.entry(key.clone()).or_insert_with(fresh);
                match &stored.body {
                    None => Answer::PutNew(PutNew::Stored(stored.set(Some(body.clone()), world.now()))),
                    // A repeated put of the same bytes breaks no promise.
                    Some(there) if there != body && world.chance(weather.two_win) => {
                        self.lie(format!("two win {key}"));
                        if world.chance(500) {
                            stored.set(Some(body.clone()), world.now());
                        }
                        Answer::PutNew(PutNew::Stored(Version(stored.version.to_string().into())))
                    }
                    Some(_) => Answer::PutNew(PutNew::Exists),
                }
            }
            Request::Replace(key, body, seen) => {
                self.puts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let stored = objects.entry(key.clone()).or_insert_with(fresh);
                let is_seen = stored.object().is_some_and(|object| object.version == *seen);
                // Happens only in a race, because a store that never compares versions fails the trial.
                let is_race =
                    world.now() < stored.at + RACE && seen.0.parse::<u64>() == Ok(stored.version.saturating_sub(1));
                let lies = !is_seen && stored.body.is_some() && is_race && world.chance(weather.two_win);
                if lies {
                    self.lie(format!("two replace {key}"));
                }
                match (is_seen, lies && world.chance(500), lies) {
                    (true, ..) | (_, true, _) => {
                        Answer::Replaced(Replaced::Stored(stored.set(Some(body.clone()), world.now())))
                    }
                    (.., true) => Answer::Replaced(Replaced::Stored(Version("never".into()))),
                    _ => Answer::Replaced(Replaced::Changed),
                }
            }
            Request::Get(key) => {
                let stored = objects.get(key);
                let is_stale = world.chance(weather.stale);
                let found = stored.and_then(|stored| {
                    if is_stale {
                        stored.before.clone()
                    } else {
                        stored.object()
                    }
                });
                Answer::Got(found)
            }
            Request::Delete(key) => {
                if let Some(stored) = objects.get_mut(key) {
                    stored.set(None, world.now());
                }
                Answer::Deleted
            }
        }
    }
}

/// A process's connection to the store.
pub(crate) struct Remote {
    pub(crate) world: Arc<World>,
    pub(crate) server: Arc<Server>,
    pub(crate) weather: Weather,
}

/// The longest delay of a request. It far exceeds the caller's time-out and a lease.
pub(crate) const LATEST: Duration = Duration::from_secs(120);
/// The time within which a store that breaks its promise may let two changes of one version win.
const RACE: Duration = Duration::from_secs(5);
/// The time after which a caller gives up.
const TIME_OUT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Slot {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

impl Remote {
    async fn ask(&self, request: Request) -> Answer {
        let (world, weather) = (&self.world, self.weather);
        let slot = Arc::new(Mutex::new(Slot::default()));
        let deliveries = match () {
            () if world.chance(weather.lost) => 0,
            () if world.chance(weather.twice) => 2,
            () => 1,
        };
        for delivery in 0..deliveries {
            let is_late = world.chance(weather.late) || delivery > 0 && world.chance(500);
            let delay = world.below(if is_late {
                LATEST.as_micros() as u64
            } else {
                weather.latency
            });
            let back = world.below(weather.latency / 4);
            let is_answered = !world.chance(weather.unanswered);
            let (world_of, server, slot, request) = (
                Arc::clone(world),
                Arc::clone(&self.server),
                Arc::clone(&slot),
                request.clone(),
            );
            let is_busy = world.chance(weather.busy);
            let has_effect = !is_busy || world.chance(500);
            world.spawn(
                NETWORK,
                Box::pin(async move {
                    world_of.sleep(Duration::from_micros(delay)).await;
                    let mut answer = Answer::Busy;
                    if has_effect {
                        let handled = server.handle(&world_of, weather, &request);
                        if !is_busy {
                            answer = handled;
                        }
                    } else if let Request::PutNew(..) = request
                        && world_of.chance(500)
                    {
                        answer = Answer::PutNew(PutNew::Conflict);
                    }
                    world_of.sleep(Duration::from_micros(back)).await;
                    if is_answered {
                        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                        slot.answer.get_or_insert(answer);
                        slot.waker.take().into_iter().for_each(Waker::wake);
                    }
                }),
            );
        }
        let answered = poll_fn(|context| {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.waker = Some(context.waker().clone());
            slot.answer.clone().map_or(Poll::Pending, Poll::Ready)
        });
        let answered = at_most(world, TIME_OUT, std::pin::pin!(answered)).await;
        answered.unwrap_or(Answer::Busy)
    }
}

fn busy<T>() -> Result<T, Fault> {
    Err(Fault::Unavailable("busy".into()))
}

impl ConditionalStore for Remote {
    fn put_new<'a>(&'a self, key: &'a str, body: Bytes) -> Later<'a, PutNew> {
        Box::pin(async move {
            match self.ask(Request::PutNew(key.to_owned(), body)).await {
                Answer::PutNew(put) => put,
                _ => PutNew::Unknown("busy".into()),
            }
        })
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, seen: &'a Version) -> Later<'a, Replaced> {
        Box::pin(async move {
            match self.ask(Request::Replace(key.to_owned(), body, seen.clone())).await {
                Answer::Replaced(replaced) => replaced,
                _ => Replaced::Unknown("busy".into()),
            }
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Object>, Fault>> {
        Box::pin(async move {
            match self.ask(Request::Get(key.to_owned())).await {
                Answer::Got(found) => Ok(found),
                _ => busy(),
            }
        })
    }

    fn version<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Version>, Fault>> {
        Box::pin(async move { Ok(self.get(key).await?.map(|object| object.version)) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Later<'a, Result<(), Fault>> {
        Box::pin(async move {
            match self.ask(Request::Delete(key.to_owned())).await {
                Answer::Deleted => Ok(()),
                _ => busy(),
            }
        })
    }
}

/// The store without a network. It answers each request at once.
pub(crate) struct Plain(pub(crate) Arc<Server>);

impl Plain {
    fn ask(&self, request: Request) -> Answer {
        self.0.handle(&World::new(0), Weather::FAIR, &request)
    }
}

fn now<'a, T: Send + 'a>(value: T) -> Later<'a, T> {
    Box::pin(std::future::ready(value))
}

impl ConditionalStore for Plain {
    fn put_new<'a>(&'a self, key: &'a str, body: Bytes) -> Later<'a, PutNew> {
        match self.ask(Request::PutNew(key.to_owned(), body)) {
            Answer::PutNew(put) => now(put),
            answer => panic!("{answer:?}"),
        }
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, seen: &'a Version) -> Later<'a, Replaced> {
        match self.ask(Request::Replace(key.to_owned(), body, seen.clone())) {
            Answer::Replaced(replaced) => now(replaced),
            answer => panic!("{answer:?}"),
        }
    }

    fn get<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Object>, Fault>> {
        match self.ask(Request::Get(key.to_owned())) {
            Answer::Got(found) => now(Ok(found)),
            answer => panic!("{answer:?}"),
        }
    }

    fn version<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Version>, Fault>> {
        Box::pin(async move { Ok(self.get(key).await?.map(|object| object.version)) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Later<'a, Result<(), Fault>> {
        self.ask(Request::Delete(key.to_owned()));
        now(Ok(()))
    }
}
