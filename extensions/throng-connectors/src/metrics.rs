//! The messages that come in, by source.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

macro_rules! metrics {
    ($($field:ident: $type:ty, $name:literal, $help:literal;)*) => {
        /// The metrics of a process's ingresses; a clone is the same.
        #[derive(Clone, Debug, Default)]
        pub struct Metrics {
            $($field: Family<[(&'static str, String); 1], $type>,)*
        }

        impl Metrics {
            /// Shows them; once.
            pub fn register(&self, registry: &mut Registry) {
                $(registry.register($name, $help, self.$field.clone());)*
            }

            pub(crate) fn of_source(&self, name: &str) -> OfSource {
                let labels = [("source", name.to_owned())];
                OfSource { $($field: self.$field.get_or_create_owned(&labels)),* }
            }
        }

        /// Metrics of one source.
        #[derive(Clone, Debug)]
        pub(crate) struct OfSource {
            $(pub(crate) $field: $type,)*
        }
    };
}

metrics! {
    taken: Counter, "source_messages_taken", "Messages of a source that were settled";
    commands: Counter, "source_commands", "Commands that messages of a source came to";
    redelivered: Counter, "source_messages_redelivered", "Messages that came again";
    unnamed: Counter, "source_messages_without_id", "Messages whose redelivery after a crash would count twice";
    dead: Counter, "source_messages_dead", "Messages nobody could take";
    retried: Counter, "source_commands_retried", "Commands the engine had no room for at first";
    reconnects: Counter, "source_reconnects", "Times a source was lost";
    in_flight: Gauge, "source_messages_in_flight", "Messages taken and not yet settled";
}
