//! Topics: values that entities publish to present listeners.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};
use throng_core::model::{Published, Topic};
use throng_services::bus::{self, AnotherType, Bus};

type Publish = Box<dyn Fn(Box<dyn Any + Send>) + Send>;

/// The topics that have been listened to.
#[derive(Default)]
pub(crate) struct Topics {
    bus: Bus,
    by_name: Mutex<HashMap<&'static str, Publish>>,
}

impl Topics {
    pub(crate) fn publish(&self, Published { topic, value }: Published) {
        let topics = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        // A topic without an entry has never had a listener.
        let Some(publish) = topics.get(topic) else { return };
        // Publishing clones the value, which is user code; its panic must not end the engine.
        if catch_unwind(AssertUnwindSafe(|| publish(value))).is_err() {
            tracing::error!("a value published on the topic {topic:?} panicked when it was cloned, and is lost");
        }
    }

    /// Passes every value published on a topic from now on to this function, on the thread that saw its commit. There are no other
    /// listeners.
    pub(crate) fn hand_over<T: 'static>(&self, topic: &Topic<T>, take: impl Fn(T) + Send + 'static) {
        let take = move |value: Box<dyn Any + Send>| {
            if let Ok(value) = value.downcast::<T>() {
                take(*value);
            }
        };
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.insert(topic.name(), Box::new(take));
    }

    /// Returns a topic to listen to from now on.
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
