//! The messages in and out, by queue and by publisher.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

type Labels = [(&'static str, String); 1];

macro_rules! metrics {
    ($($field:ident: $type:ty, $name:literal, $help:literal;)*) => {
        /// The metrics of a process's ingresses and publishers; a clone is the same.
        #[derive(Clone, Debug, Default)]
        pub struct Metrics {
            $($field: Family<Labels, $type>,)*
        }

        impl Metrics {
            /// Shows them; once.
            pub fn register(&self, registry: &mut Registry) {
                $(registry.register($name, $help, self.$field.clone());)*
            }
        }
    };
}

metrics! {
    taken: Counter, "amqp_messages_taken", "Messages of a queue that were settled";
    commands: Counter, "amqp_commands", "Commands that messages of a queue came to";
    redelivered: Counter, "amqp_messages_redelivered", "Messages that came again";
    unnamed: Counter, "amqp_messages_without_id", "Messages whose redelivery after a crash would count twice";
    dead: Counter, "amqp_messages_dead", "Messages nobody could take";
    retried: Counter, "amqp_commands_retried", "Commands the engine had no room for at first";
    reconnects: Counter, "amqp_reconnects", "Times a connection to the broker was lost";
    published: Counter, "amqp_messages_published", "Messages the broker has confirmed";
    unpublished: Counter, "amqp_messages_unpublished", "Messages the broker has not confirmed";
    in_flight: Gauge, "amqp_messages_in_flight", "Messages taken and not yet settled";
    prefetch: Gauge, "amqp_prefetch", "Messages the broker may have out unsettled";
    unconfirmed: Gauge, "amqp_messages_unconfirmed", "Messages published and not yet confirmed";
}

macro_rules! labelled {
    ($(#[$doc:meta])* $of:ident by $label:literal in $function:ident { $($field:ident: $type:ty),* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $of {
            $(pub(crate) $field: $type,)*
        }

        impl Metrics {
            pub(crate) fn $function(&self, name: &str) -> $of {
                let labels = [($label, name.to_owned())];
                $of { $($field: self.$field.get_or_create_owned(&labels)),* }
            }
        }
    };
}

labelled! {
    /// Metrics of one queue.
    OfQueue by "queue" in of_queue {
        taken: Counter, commands: Counter, redelivered: Counter, unnamed: Counter, dead: Counter, retried: Counter, reconnects: Counter,
        in_flight: Gauge, prefetch: Gauge
    }
}

labelled! {
    /// Metrics of one publisher.
    OfPublisher by "publisher" in of_publisher {
        published: Counter, unpublished: Counter, reconnects: Counter, unconfirmed: Gauge
    }
}
