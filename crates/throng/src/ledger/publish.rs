//! What entities publish: to whoever listens now, at most once, and not before it is durable.

use super::Ledger;
use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};
use throng_core::model::{Published, Topic};
use throng_services::bus::{self, AnotherType, Bus};

/// Values that wait for their commits; those beyond are lost, and counted as `published.lost`.
const WAITING_MAX: usize = 65_536;

type Publish = Box<dyn Fn(Box<dyn Any + Send>) + Send>;

/// The topics somebody has asked for.
#[derive(Default)]
pub(crate) struct Topics {
    bus: Bus,
    by_name: Mutex<HashMap<&'static str, Publish>>,
}

impl Topics {
    fn publish(&self, Published { topic, value }: Published) {
        let topics = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        // Without one, nobody has ever listened.
        let Some(publish) = topics.get(topic) else { return };
        // It clones values, which is user code: what happens in there must not end the engine.
        if catch_unwind(AssertUnwindSafe(|| publish(value))).is_err() {
            tracing::error!("a value published on the topic {topic:?} panicked when it was cloned, and is lost");
        }
    }

    /// A topic, to listen to what is published on it from now on.
    pub(crate) fn listen<T: Clone + Send + Sync + 'static>(
        &self,
        topic: &Topic<T>,
    ) -> Result<bus::Topic<T>, AnotherType> {
        let found = self.bus.topic::<T>(topic.name())?;
        let publish = {
            let (found, name) = (found.clone(), topic.name());
            move |value: Box<dyn Any + Send>| match value.downcast::<T>() {
                Ok(value) => found.publish(*value),
                Err(_) => tracing::error!("a value of another type was published on the topic {name:?}, and is lost"),
            }
        };
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.entry(topic.name()).or_insert_with(|| Box::new(publish));
        Ok(found)
    }
}

impl Ledger {
    /// Takes what commands under a shard's lock have published, each with the commit it rests on.
    pub(crate) fn publish(&self, published: Vec<(u64, Published)>) {
        let count = published.len();
        let taken = {
            let mut waiting = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = count.min(WAITING_MAX - waiting.len());
            waiting.extend(published.into_iter().take(taken));
            taken
        };
        if taken < count {
            let lost = self.context.stats.counter("published.lost");
            lost.add((count - taken) as u64);
        }
        // Its commit may have landed meanwhile.
        self.publish_durable();
    }

    /// Publishes what has become durable.
    pub(super) fn publish_durable(&self) {
        // With the queue locked, so that all comes in its order.
        let mut waiting = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = self.open.durable();
        while let Some((_, published)) = waiting.pop_front_if(|(rests_on, _)| *rests_on <= durable) {
            self.context.topics.publish(published);
        }
    }
}
