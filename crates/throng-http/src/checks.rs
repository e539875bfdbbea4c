//! Health checks of the service's own parts, which the engine does not know: for `/health/ready` and the metrics.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use std::{fmt, sync::Arc};
use throng::services::health::{Check, Reason};

/// Functions that return the checks.
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

/// Formats a check for `/health/ready`.
pub(crate) fn json(check: &Check) -> serde_json::Value {
    let reason = (check.reason != Reason::None).then(|| check.reason.to_string());
    serde_json::json!({ "name": check.name, "status": check.status.name(), "reason": reason })
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
