//! How the parts of a service are that the engine does not know: on `/health/ready`, and in the metrics.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use std::{fmt, sync::Arc};
use throng::services::health;

/// How a part of the service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckStatus {
    /// It works.
    Pass,
    /// It works, but somebody should look.
    Warn,
    /// It has not said anything yet.
    Unknown,
    /// It does not work: the service is not ready.
    Fail,
}

impl CheckStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Unknown => "UNKNOWN",
            Self::Fail => "FAIL",
        }
    }
}

/// A part of the service, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which.
    pub name: String,
    /// How it is.
    pub status: CheckStatus,
    /// Why, for people.
    pub reason: Option<String>,
}

/// Whom to ask for them.
#[derive(Clone, Default)]
pub(crate) struct Checks(Vec<Arc<dyn Fn() -> Vec<Check> + Send + Sync>>);

impl Checks {
    pub(crate) fn add(&mut self, checks: impl Fn() -> Vec<Check> + Send + Sync + 'static) {
        self.0.push(Arc::new(checks));
    }

    pub(crate) fn all(&self) -> Vec<Check> {
        self.0.iter().flat_map(|checks| checks()).collect()
    }
}

impl From<health::Check> for Check {
    fn from(check: health::Check) -> Self {
        Self {
            name: check.name,
            status: match check.status {
                health::Status::Pass => CheckStatus::Pass,
                health::Status::Warn => CheckStatus::Warn,
                health::Status::Unknown => CheckStatus::Unknown,
                health::Status::Fail => CheckStatus::Fail,
            },
            reason: Some(check.reason.to_string()).filter(|reason| !reason.is_empty()),
        }
    }
}

impl Check {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "name": self.name, "status": self.status.name(), "reason": self.reason })
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Checks").finish_non_exhaustive()
    }
}

impl Collector for Checks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let of_kind = ConstGauge::new(0_i64).metric_type();
        let help = "Parts of the service, by their status: 1 is the one they have";
        let mut family = encoder.encode_descriptor("check", help, None, of_kind)?;
        for check in self.all() {
            let labels = [("name", check.name.as_str()), ("status", check.status.name())];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
