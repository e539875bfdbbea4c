//! Traces to a collector, as flags and environment variables.

#[cfg(feature = "otlp")]
use crate::limits;
#[cfg(feature = "otlp")]
use anyhow::Context as _;
use clap::Args;
#[cfg(feature = "otlp")]
use std::{sync::Arc, time::Duration};
#[cfg(feature = "otlp")]
use throng::spans::{TraceOptions, Tracer};
#[cfg(feature = "otlp")]
use throng_otlp::Exporter;

/// The requests that are traced, and the collector. Empty without the feature `otlp`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Traces")]
pub struct TraceArguments {
    /// The OpenTelemetry collector that traces go to, by OTLP over HTTP: http://HOST:4318. Unless given, nothing is traced.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", env = "THRONG_OTLP")]
    otlp: Option<String>,
    /// The part of the requests without a traceparent that is traced, 0 to 1. Where there is one, its flag decides [default: 0.01].
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "RATIO", env = "THRONG_OTLP_RATIO", value_parser = ratio, requires = "otlp")]
    otlp_ratio: Option<f64>,
    /// Requests, commits and messages that take this long are traced in any case, and so are requests refused for load or a fault
    /// [default: 500ms].
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "TIME", env = "THRONG_OTLP_SLOW", value_parser = limits::duration, requires = "otlp")]
    otlp_slow: Option<Duration>,
    /// Name entities by their ids in spans, too; ids may be personal data.
    #[cfg(feature = "otlp")]
    #[arg(long, requires = "otlp")]
    otlp_ids: bool,
}

#[cfg(feature = "otlp")]
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "write a number from 0 to 1, for example 0.01".into())
}

#[cfg(feature = "otlp")]
impl TraceArguments {
    /// Starts the exporter, if there is a collector.
    pub(crate) fn start(&self, service: &str) -> anyhow::Result<Option<Arc<Exporter>>> {
        let Some(url) = &self.otlp else { return Ok(None) };
        let exporter = Exporter::start(url, service).context("--otlp")?;
        Ok(Some(Arc::new(exporter)))
    }

    pub(crate) fn tracer(&self, exporter: &Arc<Exporter>) -> Arc<Tracer> {
        let defaults = TraceOptions::default();
        let options = TraceOptions {
            ratio: self.otlp_ratio.unwrap_or(defaults.ratio),
            slow: self.otlp_slow.unwrap_or(defaults.slow),
            names_ids: self.otlp_ids,
        };
        Arc::new(Tracer::new(Arc::clone(exporter) as _, options))
    }
}

#[cfg(all(test, feature = "otlp"))]
mod tests {
    use super::*;

    #[test]
    fn collectors_address_is_checked_at_the_start() {
        let arguments = |url: Option<&str>| TraceArguments {
            otlp: url.map(str::to_owned),
            ..TraceArguments::default()
        };
        assert!(arguments(None).start("shop").unwrap().is_none());
        let error = arguments(Some("https://collector")).start("shop").unwrap_err();
        let told = format!("{error:#}");
        assert!(
            told.starts_with("--otlp: ") && told.contains("https://collector"),
            "{told}"
        );
    }

    #[test]
    fn ratio_is_a_number_from_zero_to_one() {
        assert_eq!((ratio("0"), ratio("0.25"), ratio("1")), (Ok(0.0), Ok(0.25), Ok(1.0)));
        for wrong in ["", "2", "-0.1", "NaN", "1%"] {
            assert!(ratio(wrong).is_err(), "{wrong}");
        }
    }
}
