//! The export to Prometheus, as a collector of `prometheus-client`.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use std::fmt;

use super::{Kind, Stats, Total};

/// Shows all keys: `service_events_total{key=…}`, `service_level{key=…}`, `service_seconds_sum{key=…}` and
/// `service_seconds_count{key=…}`.
///
/// ```
/// use prometheus_client::{encoding::text, registry::Registry};
/// use throng_services::stats::{PrometheusCollector, Stats};
///
/// let stats = Stats::new();
/// stats.counter("orders").add(2);
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(PrometheusCollector::new(&stats)));
/// let mut text = String::new();
/// text::encode(&mut text, &registry)?;
/// assert!(text.contains(r#"service_events_total{key="orders"} 2"#));
/// # Ok::<(), std::fmt::Error>(())
/// ```
///
/// An engine's metrics take it with `engine.metrics().register(|registry| …)`, and the gateway shows it as `/metrics`.
#[derive(Clone, Debug)]
pub struct PrometheusCollector(Stats);

impl PrometheusCollector {
    /// Returns a collector of these statistics.
    #[must_use]
    pub fn new(stats: &Stats) -> Self {
        Self(stats.clone())
    }
}

impl Collector for PrometheusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.0.totals();
        let of = |kind| totals.iter().filter(move |(_, of, _)| *of == kind);
        let mut counters = |name, help, kind, value: fn(&Total) -> f64| -> fmt::Result {
            let kind_of_metric = ConstCounter::new(0.0_f64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind_of_metric)?;
            for (key, _, total) in of(kind) {
                let labels = [("key", key.as_str())];
                ConstCounter::new(value(total)).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        counters("service_events", "How often it happened", Kind::Count, |total| {
            total.sum
        })?;
        counters(
            "service_seconds_sum",
            "How long it took, all times together",
            Kind::Timing,
            |total| total.sum,
        )?;
        counters(
            "service_seconds_count",
            "How often it was timed",
            Kind::Timing,
            |total| total.times as f64,
        )?;
        let mut levels = encoder.encode_descriptor(
            "service_level",
            "How much there is of it",
            None,
            ConstGauge::new(0.0_f64).metric_type(),
        )?;
        for (key, _, total) in of(Kind::Level) {
            let labels = [("key", key.as_str())];
            ConstGauge::new(total.last.unwrap_or(0.0)).encode(levels.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
