//! Topics: values that entities publish, for whoever listens now.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};
use throng_core::model::{Published, Topic};
use throng_services::bus::{self, AnotherType, Bus};

type Publish = Box<dyn Fn(Box<dyn Any + Send>) + Send>;

/// The topics somebody has asked for.
#[derive(Default)]
pub(crate) struct Topics {
    bus: Bus,
    by_name: Mutex<HashMap<&'static str, Publish>>,
}

impl Topics {
    pub(crate) fn publish(&self, Published { topic, value }: Published) {
        let topics = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        // Without one, nobody has ever listened.
        let Some(publish) = topics.get(topic) else { return };
        // Publishing clones the value, which is user code: a panic in there must not end the engine.
        if catch_unwind(AssertUnwindSafe(|| publish(value))).is_err() {
            tracing::error!("a value published on the topic {topic:?} panicked when it was cloned, and is lost");
        }
    }

    /// Hands what is published on a topic from now on to this alone, on the thread that saw its commit.
    pub(crate) fn hand_over<T: 'static>(&self, topic: &Topic<T>, take: impl Fn(T) + Send + 'static) {
        let take = move |value: Box<dyn Any + Send>| {
            if let Ok(value) = value.downcast::<T>() {
                take(*value);
            }
        };
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.insert(topic.name(), Box::new(take));
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
