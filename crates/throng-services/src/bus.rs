//! An event bus: typed topics, each with many subscribers and groups whose members share the events.
//!
//! ```
//! use throng_services::bus::{Bus, Heard};
//!
//! let bus = Bus::new();
//! let prices = bus.topic::<u32>("prices")?;
//! let mut all = prices.subscribe();
//! let mut one = prices.join("billing");
//! let mut other = prices.join("billing");
//! prices.publish(7);
//! prices.publish(8);
//! assert_eq!(all.try_next(), Some(Heard::Event(7)));
//! assert_eq!((one.try_next(), other.try_next()), (Some(Heard::Event(7)), Some(Heard::Event(8))));
//! # Ok::<(), throng_services::bus::AnotherType>(())
//! ```
//!
//! Publishing never waits. Each subscriber and each group has a bounded backlog. A slow subscriber loses the oldest events, a slow group
//! the newest, and gets the number of lost events ([`Heard::Lost`]).
//!
//! Topics are local. A bus on another node is connected by [`Topic::remote`], which publishes that node's events here under its name, and
//! by [`Topic::subscribe_but`], which returns the other events, to be forwarded there.

use std::{
    any::{Any, type_name},
    collections::HashMap,
    fmt,
    ops::ControlFlow::{self, Break, Continue},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use throng_queue::{Options, Receiver, Sender};
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

use crate::Address;

/// The default backlog of a subscriber or a group, in events.
pub const BACKLOG_DEFAULT: usize = 1_024;

/// An event or a gap, as a subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard<T> {
    /// An event that was published.
    Event(T),
    /// The number of events lost because too many waited.
    Lost(u64),
}

/// A topic of this name exists, with events of another type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the topic {name:?} is there with events of another type than {wanted}; use another name, or that type")]
pub struct AnotherType {
    name: String,
    wanted: &'static str,
}

/// Topics by their names; a clone is the same bus.
#[derive(Clone, Default)]
pub struct Bus {
    topics: Arc<Mutex<HashMap<String, Box<dyn Any + Send>>>>,
}

impl Bus {
    /// A bus without topics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the topic of this name, creating it at its first use.
    ///
    /// # Errors
    /// [`AnotherType`]: the topic exists with another type.
    pub fn topic<T: Clone + Send + Sync + 'static>(&self, name: &str) -> Result<Topic<T>, AnotherType> {
        self.topic_with(name, BACKLOG_DEFAULT)
    }

    /// Returns a topic like [`topic`](Self::topic). If it is created here, each subscriber and group has this backlog.
    ///
    /// # Errors
    /// [`AnotherType`]: the topic exists with another type.
    pub fn topic_with<T: Clone + Send + Sync + 'static>(
        &self,
        name: &str,
        backlog: usize,
    ) -> Result<Topic<T>, AnotherType> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(topic) = topics.get(name) {
            let topic = topic.downcast_ref::<Topic<T>>().cloned();
            return topic.ok_or_else(|| AnotherType {
                name: name.to_owned(),
                wanted: type_name::<T>(),
            });
        }
        let topic = Topic::new(backlog.max(1));
        topics.insert(name.to_owned(), Box::new(topic.clone()));
        Ok(topic)
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        out.debug_struct("Bus").field("topics", &topics.keys()).finish()
    }
}

/// The bus that first published an event; `None`: this one.
type Origin = Option<Arc<str>>;

/// Events of one type. Clones are the same topic.
pub struct Topic<T> {
    all: broadcast::Sender<(Origin, T)>,
    groups: Arc<Mutex<Groups<T>>>,
    backlog: usize,
    origin: Origin,
}

/// The groups by their names; a vector, because they are few and looked through at every event.
type Groups<T> = Vec<(String, Group<T>)>;

struct Group<T> {
    sender: Sender<T>,
    receiver: Receiver<T>,
    members: Arc<()>,
    /// The events lost since the last report. `publish` raises it, under the lock of `groups`; the next member that reads it sets it to 0.
    lost: Arc<AtomicU64>,
}

impl<T: Clone + Send + Sync + 'static> Topic<T> {
    fn new(backlog: usize) -> Self {
        Self {
            all: broadcast::Sender::new(backlog),
            groups: Arc::default(),
            backlog,
            origin: None,
        }
    }

    /// Returns the topic for events from another bus: events published with it count as coming from there.
    #[must_use]
    pub fn remote(&self, origin: &str) -> Self {
        Self {
            origin: Some(Arc::from(origin)),
            ..self.clone()
        }
    }

    /// Publishes an event to all subscribers, and to one member of each group.
    pub fn publish(&self, event: T) {
        {
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            groups.retain_mut(|(_, group)| {
                if Arc::strong_count(&group.members) == 1 {
                    return false;
                }
                if group.sender.try_send(event.clone()).is_err() {
                    group.lost.fetch_add(1, Ordering::Relaxed);
                }
                true
            });
        }
        // Without subscribers this fails, which is no error.
        drop(self.all.send((self.origin.clone(), event)));
    }

    /// Subscribes to every event from now on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<T> {
        Subscription {
            all: self.all.subscribe(),
            but: None,
        }
    }

    /// Subscribes to every event from now on except those from that bus, to forward them there.
    #[must_use]
    pub fn subscribe_but(&self, origin: &str) -> Subscription<T> {
        Subscription {
            all: self.all.subscribe(),
            but: Some(Arc::from(origin)),
        }
    }

    /// Joins a group: each event from now on goes to the member that takes it first.
    #[must_use]
    pub fn join(&self, group: &str) -> Member<T> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // A group whose members have all left begins anew.
        groups.retain(|(_, group)| Arc::strong_count(&group.members) > 1);
        if let Some((_, group)) = groups.iter().find(|(name, _)| name == group) {
            return group.member();
        }
        // A batch is one event, so that a member takes no more than it is about to handle.
        let (sender, receiver) = throng_queue::bounded(Options::default().batch_items(1).batches(self.backlog));
        let begun = Group {
            sender,
            receiver,
            members: Arc::default(),
            lost: Arc::default(),
        };
        let member = begun.member();
        groups.push((group.to_owned(), begun));
        member
    }

    /// Passes every event from now on to a service, as a message, on the service's own thread. While its queue is full, events wait as for
    /// any subscriber, and losses are reported. Ends with the topic, or at the first event after the service's end.
    ///
    /// # Errors
    /// [`io::Error`](std::io::Error): the system has no thread left to carry the events.
    pub fn deliver<M: Send + 'static>(
        &self,
        mut address: Address<M>,
        mut message: impl FnMut(Heard<T>) -> M + Send + 'static,
    ) -> std::io::Result<()> {
        let mut subscription = self.subscribe();
        let carry = move || {
            while let Some(heard) = subscription.next_blocking() {
                // Waits for room. The backlog is the subscription's, which reports losses.
                if address.send(message(heard)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("bus".into()).spawn(carry).map(drop)
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Self {
            all: self.all.clone(),
            groups: Arc::clone(&self.groups),
            backlog: self.backlog,
            origin: self.origin.clone(),
        }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Topic")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl<T> Group<T> {
    fn member(&self) -> Member<T> {
        Member {
            receiver: self.receiver.clone(),
            lost: Arc::clone(&self.lost),
            _is_member: Arc::clone(&self.members),
        }
    }
}

/// A subscription to every event of a topic.
pub struct Subscription<T> {
    all: broadcast::Receiver<(Origin, T)>,
    but: Origin,
}

impl<T: Clone> Subscription<T> {
    /// Returns the next event; the task waits. `None` when the topic is gone.
    pub async fn next(&mut self) -> Option<Heard<T>> {
        loop {
            let received = self.all.recv().await;
            if let Break(heard) = self.heard(received) {
                return heard;
            }
        }
    }

    /// Returns the next event; the thread waits. `None` when the topic is gone.
    ///
    /// # Panics
    /// In a task of a tokio runtime.
    pub fn next_blocking(&mut self) -> Option<Heard<T>> {
        loop {
            let received = self.all.blocking_recv();
            if let Break(heard) = self.heard(received) {
                return heard;
            }
        }
    }

    /// Returns the next event, if there is one.
    pub fn try_next(&mut self) -> Option<Heard<T>> {
        loop {
            let received = self.all.try_recv().map_err(|error| match error {
                TryRecvError::Lagged(lost) => RecvError::Lagged(lost),
                TryRecvError::Empty | TryRecvError::Closed => RecvError::Closed,
            });
            if let Break(heard) = self.heard(received) {
                return heard;
            }
        }
    }

    /// Skips an event of the origin that is left out.
    fn heard(&self, received: Result<(Origin, T), RecvError>) -> ControlFlow<Option<Heard<T>>> {
        match received {
            Ok((origin, _)) if origin.is_some() && origin == self.but => Continue(()),
            Ok((_, event)) => Break(Some(Heard::Event(event))),
            Err(RecvError::Lagged(lost)) => Break(Some(Heard::Lost(lost))),
            Err(RecvError::Closed) => Break(None),
        }
    }
}

opaque!(Subscription<T>);

/// A member of a group.
pub struct Member<T> {
    receiver: Receiver<T>,
    lost: Arc<AtomicU64>,
    _is_member: Arc<()>,
}

impl<T> Member<T> {
    /// Returns the next event; the task waits. `None` when the topic is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Heard<T>> {
        match self.lost() {
            None => self.receiver.receive_async().await.ok().and_then(first),
            lost => lost,
        }
    }

    /// Returns the next event; the thread waits at most this long.
    pub fn next_within(&mut self, limit: Duration) -> Option<Heard<T>> {
        match self.lost() {
            None => self.receiver.receive_timeout(limit).ok().and_then(first),
            lost => lost,
        }
    }

    /// Returns the next event, if there is one.
    pub fn try_next(&mut self) -> Option<Heard<T>> {
        match self.lost() {
            None => self.receiver.try_receive().ok().and_then(first),
            lost => lost,
        }
    }

    /// Takes the number of events that the group has lost since the last report. Only one member gets it.
    fn lost(&self) -> Option<Heard<T>> {
        match self.lost.load(Ordering::Relaxed) {
            0 => None,
            _ => match self.lost.swap(0, Ordering::Relaxed) {
                0 => None,
                lost => Some(Heard::Lost(lost)),
            },
        }
    }
}

fn first<T>(batch: throng_queue::Batch<T>) -> Option<Heard<T>> {
    batch.into_iter().next().map(Heard::Event)
}

opaque!(Member<T>);
