//! Metrics of publishers (messages sent) and queues (prefetch).

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

type Labels = [(&'static str, String); 1];

/// The metrics of a process's publishers and queues. Clones share them. The messages of a queue are counted by its
/// [`Ingress`](throng_connectors::Metrics).
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    published: Family<Labels, Counter>,
    unpublished: Family<Labels, Counter>,
    reconnects: Family<Labels, Counter>,
    unconfirmed: Family<Labels, Gauge>,
    prefetch: Family<Labels, Gauge>,
}

/// Metrics of one publisher.
#[derive(Clone, Debug)]
pub(crate) struct OfPublisher {
    pub(crate) published: Counter,
    pub(crate) unpublished: Counter,
    pub(crate) reconnects: Counter,
    pub(crate) unconfirmed: Gauge,
}

impl Metrics {
    /// Registers the metrics. Call it once.
    pub fn register(&self, registry: &mut Registry) {
        let mut count = |name: &str, help: &str, counts: &Family<Labels, Counter>| {
            registry.register(name, help, counts.clone());
        };
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
        count(
            "amqp_reconnects",
            "Times a publisher's connection was lost",
            &self.reconnects,
        );
        registry.register(
            "amqp_messages_unconfirmed",
            "Messages published and not yet confirmed",
            self.unconfirmed.clone(),
        );
        registry.register(
            "amqp_prefetch",
            "Messages the broker may have out unsettled",
            self.prefetch.clone(),
        );
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

    pub(crate) fn prefetch_of(&self, queue: &str) -> Gauge {
        self.prefetch.get_or_create_owned(&[("queue", queue.to_owned())])
    }
}
