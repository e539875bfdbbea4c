//! What goes in and out, by queue and by publisher.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

type Labels = [(&'static str, String); 1];

/// The metrics of a process's ingresses and publishers; a clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    taken: Family<Labels, Counter>,
    commands: Family<Labels, Counter>,
    redelivered: Family<Labels, Counter>,
    unnamed: Family<Labels, Counter>,
    dead: Family<Labels, Counter>,
    retried: Family<Labels, Counter>,
    reconnects: Family<Labels, Counter>,
    in_flight: Family<Labels, Gauge>,
    prefetch: Family<Labels, Gauge>,
    published: Family<Labels, Counter>,
    unpublished: Family<Labels, Counter>,
    unconfirmed: Family<Labels, Gauge>,
}

impl Metrics {
    /// Shows them; once.
    pub fn register(&self, registry: &mut Registry) {
        let mut count = |name: &str, help: &str, family: &Family<Labels, Counter>| {
            registry.register(name, help, family.clone());
        };
        count(
            "amqp_messages_taken",
            "Messages of a queue that were settled",
            &self.taken,
        );
        count(
            "amqp_commands",
            "Commands that messages of a queue came to",
            &self.commands,
        );
        count(
            "amqp_messages_redelivered",
            "Messages that came again",
            &self.redelivered,
        );
        count(
            "amqp_messages_without_id",
            "Messages whose redelivery after a crash would count twice",
            &self.unnamed,
        );
        count("amqp_messages_dead", "Messages nobody could take", &self.dead);
        count(
            "amqp_commands_retried",
            "Commands the engine had no room for at first",
            &self.retried,
        );
        count(
            "amqp_reconnects",
            "Times a connection to the broker was lost",
            &self.reconnects,
        );
        count(
            "amqp_messages_published",
            "Messages the broker has confirmed",
            &self.published,
        );
        count(
            "amqp_messages_unpublished",
            "Messages the broker has not confirmed",
            &self.unpublished,
        );
        let mut level = |name: &str, help: &str, family: &Family<Labels, Gauge>| {
            registry.register(name, help, family.clone());
        };
        level(
            "amqp_messages_in_flight",
            "Messages taken and not yet settled",
            &self.in_flight,
        );
        level(
            "amqp_prefetch",
            "Messages the broker may have out unsettled",
            &self.prefetch,
        );
        level(
            "amqp_messages_unconfirmed",
            "Messages published and not yet confirmed",
            &self.unconfirmed,
        );
    }

    pub(crate) fn of_queue(&self, queue: &str) -> OfQueue {
        let labels = [("queue", queue.to_owned())];
        let count = |family: &Family<Labels, Counter>| family.get_or_create_owned(&labels);
        let level = |family: &Family<Labels, Gauge>| family.get_or_create_owned(&labels);
        OfQueue {
            taken: count(&self.taken),
            commands: count(&self.commands),
            redelivered: count(&self.redelivered),
            unnamed: count(&self.unnamed),
            dead: count(&self.dead),
            retried: count(&self.retried),
            reconnects: count(&self.reconnects),
            in_flight: level(&self.in_flight),
            prefetch: level(&self.prefetch),
        }
    }

    pub(crate) fn of_publisher(&self, name: &str) -> OfPublisher {
        let labels = [("publisher", name.to_owned())];
        OfPublisher {
            published: self.published.get_or_create_owned(&labels),
            unpublished: self.unpublished.get_or_create_owned(&labels),
            reconnects: self.reconnects.get_or_create_owned(&labels),
            unconfirmed: self.unconfirmed.get_or_create_owned(&labels),
        }
    }
}

/// Those of one queue.
#[derive(Clone, Debug)]
pub(crate) struct OfQueue {
    pub(crate) taken: Counter,
    pub(crate) commands: Counter,
    pub(crate) redelivered: Counter,
    pub(crate) unnamed: Counter,
    pub(crate) dead: Counter,
    pub(crate) retried: Counter,
    pub(crate) reconnects: Counter,
    pub(crate) in_flight: Gauge,
    pub(crate) prefetch: Gauge,
}

/// Those of one publisher.
#[derive(Clone, Debug)]
pub(crate) struct OfPublisher {
    pub(crate) published: Counter,
    pub(crate) unpublished: Counter,
    pub(crate) reconnects: Counter,
    pub(crate) unconfirmed: Gauge,
}
