//! The read models of a service, read as any client can.

use anyhow::{Context as _, bail};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use throng_load::{Request, Trace};

use throng_cli::client::Client;

/// The three-phase client's resort and season, and its days.
const RESORT: &str = "/resorts/56/seasons/2022/days";
const DAYS: u32 = 365;
const CONNECTIONS: usize = 4;
/// The time after which a missing ride means that the read models are broken.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct ReadModels {
    client: Client,
    days: Arc<Trace>,
    metrics: Arc<Trace>,
}

impl ReadModels {
    pub(super) fn of(address: SocketAddr) -> anyhow::Result<Self> {
        let client = Client::new(address, CONNECTIONS)?;
        let (mut days, mut metrics) = (Trace::new(), Trace::new());
        for day in 1..=DAYS {
            let request = Request::get(client.authority(), &format!("{RESORT}/{day}/hours"));
            days.push(day.to_le_bytes(), None, 0, request.bytes());
        }
        metrics.push("metrics", None, 0, Request::get(client.authority(), "/metrics").bytes());
        Ok(Self {
            client,
            days: Arc::new(days),
            metrics: Arc::new(metrics),
        })
    }

    /// Waits until the days hold exactly this many rides, and returns when that was seen.
    pub(super) fn wait_for(&mut self, rides: u64) -> anyhow::Result<Instant> {
        let begun = Instant::now();
        loop {
            let found = self.rides()?;
            let now = Instant::now();
            match found {
                // The output of a sink counts as a read model, too.
                found if found == rides && self.sinks_are_done()? => return Ok(now),
                found if found > rides => bail!("{rides} rides were answered, and {found} are counted"),
                found if now - begun > PATIENCE => bail!("of {rides} rides that were answered {found} are counted"),
                _ => {}
            }
        }
    }

    /// Returns the number of rides of all days.
    fn rides(&self) -> anyhow::Result<u64> {
        let mut rides = 0;
        self.client.send(Arc::clone(&self.days), 0.0, None, |_, outcome| {
            let body = outcome.result.as_ref().map_or(&[][..], |answer| answer.body);
            let hours = serde_json::from_slice::<serde_json::Value>(body).ok();
            let hours = hours.as_ref().and_then(|hours| hours["hours"].as_array());
            rides += hours.map_or(0, |hours| hours.iter().filter_map(serde_json::Value::as_u64).sum());
            true
        })?;
        Ok(rides)
    }

    /// Returns the number of commits in the service's journal.
    pub(super) fn commits(&self) -> anyhow::Result<f64> {
        let commits = self.metric("throng_commits_total")?.first().copied();
        commits.context("the service's metrics do not say how many commits it made")
    }

    /// Returns true if every sink has seen everything durable.
    fn sinks_are_done(&self) -> anyhow::Result<bool> {
        let behind = self.metric("throng_projection_lag_commits")?;
        Ok(behind.iter().all(|commits| *commits == 0.0))
    }

    /// Returns a metric's values, one for each set of labels.
    fn metric(&self, name: &str) -> anyhow::Result<Vec<f64>> {
        let mut values = Vec::new();
        self.client.send(Arc::clone(&self.metrics), 0.0, None, |_, outcome| {
            let body = outcome.result.as_ref().map_or(&[][..], |answer| answer.body);
            let text = String::from_utf8_lossy(body);
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            let of = lines.filter(|rest| rest.starts_with([' ', '{']));
            values.extend(of.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()));
            true
        })?;
        Ok(values)
    }
}
