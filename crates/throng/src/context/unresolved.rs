//! Work that waits for an operator, as last counted.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
};
#[cfg(doc)]
use throng_core::shard::DeadMessage;

/// The reason of the group that holds all remaining dead messages.
pub const OTHER_CAUSES: &str = "other reasons";

/// Something that waits for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnresolvedWork {
    /// A message that could not be taken.
    DeadMessage,
    /// An entity that an operator, or the engine on its own, has quarantined.
    QuarantinedByOperator,
    /// An entity that cannot be loaded, as far as that is known.
    QuarantinedByProgram,
}

/// Work of one kind that waits for an operator for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The work that waits.
    pub work: UnresolvedWork,
    /// The kind of the entities, or of the messages' receivers.
    pub kind: String,
    /// The [cause](DeadMessage::cause) of dead messages; the ids of some quarantined entities, each with its reason.
    pub reason: String,
    /// The number of messages or entities.
    pub count: u64,
}

impl Unresolved {
    /// Returns a sentence without the reason, which may hold private data.
    #[must_use]
    pub fn brief(&self) -> String {
        let Self { count, kind, .. } = self;
        let what = match self.work {
            UnresolvedWork::DeadMessage => format!("messages to the kind {kind}, dead"),
            UnresolvedWork::QuarantinedByOperator => {
                format!("entities of the kind {kind}, quarantined by an operator or the engine")
            }
            UnresolvedWork::QuarantinedByProgram => format!("entities of the kind {kind}, quarantined"),
        };
        format!("waiting for an operator: {count} {what}")
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.brief(), self.reason)
    }
}

/// The last count, also as gauges.
#[derive(Debug, Default)]
pub(crate) struct LastCount(Mutex<Vec<Unresolved>>);

impl LastCount {
    pub(crate) fn get(&self) -> Vec<Unresolved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, counted: Vec<Unresolved>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    }
}

impl Collector for LastCount {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.get();
        let help = "Messages between entities, and ticks of timers, that are dead now";
        let mut family = encoder.encode_descriptor("dead_messages", help, None, MetricType::Gauge)?;
        for dead in all.iter().filter(|one| one.work == UnresolvedWork::DeadMessage) {
            let labels = [("kind", &*dead.kind), ("reason", &*dead.reason)];
            ConstGauge::new(gauge(dead.count)).encode(family.encode_family(&labels)?)?;
        }
        let help =
            "Entities that an operator or the engine has quarantined, and those that were found to be unreadable";
        let mut family = encoder.encode_descriptor("quarantined_entities", help, None, MetricType::Gauge)?;
        for quarantined in all.iter().filter(|one| one.work != UnresolvedWork::DeadMessage) {
            let by = match quarantined.work {
                UnresolvedWork::QuarantinedByOperator => "operator",
                _ => "program",
            };
            let labels = [("kind", &*quarantined.kind), ("by", by)];
            ConstGauge::new(gauge(quarantined.count)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
