//! Draws the broker's queues over time: the waiting messages, and the rates in and out.

use anyhow::Context as _;
use std::{fs, path::Path};
use throng_load::{
    report::Samples,
    sample::{Address, Probe, Sampler},
};

use super::{Line, beside, step};
use crate::{
    plot::{self, Picture, Series},
    units,
};

/// Starts to query a broker's management API once a second.
pub(super) fn watch(management: Option<&str>) -> anyhow::Result<Sampler> {
    let probe = |url| {
        anyhow::Ok(Probe::RabbitMq {
            address: Address::parse(url, true)?,
        })
    };
    Ok(Sampler::start(
        management.map(probe).transpose()?.into_iter().collect(),
    )?)
}

/// Writes two pictures beside this one: the waiting messages (`-queue`), and messages a second (`-messages`). Writes nothing if no run had a broker.
pub(super) fn draw(file: &Path, lines: &[Line]) -> anyhow::Result<()> {
    for (name, title, unit) in [
        ("queue", "Messages that wait in the broker's queue", "messages"),
        (
            "messages",
            "Messages a second, into the queue and out of it",
            "messages/s",
        ),
    ] {
        let series: Vec<Series> = lines.iter().flat_map(|line| of_run(line, unit)).collect();
        let points = || series.iter().flat_map(|one| &one.points);
        if points().next().is_none() {
            continue;
        }
        let most = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(1.0, f64::max);
        let picture = Picture {
            title,
            across: "seconds",
            across_text: |seconds| format!("{seconds}"),
            across_step: Some(step(most(|point| point.0))),
            up_text: |messages| units::count(messages as u64),
            up_step: step(most(|point| point.1)),
            series: &series,
        };
        let file = beside(file, name);
        fs::write(&file, plot::svg(&picture))
            .with_context(|| format!("cannot write the picture {}", file.display()))?;
    }
    Ok(())
}

/// Returns the series of a run that have this unit.
fn of_run(line: &Line, unit: &str) -> impl Iterator<Item = Series> {
    let of_unit = line.queues.iter().filter(move |samples| samples.unit == unit);
    of_unit.map(|Samples { name, points, .. }| Series {
        name: format!(
            "{}, {} clients, limit {}: {name}",
            line.arrangement, line.clients, line.limit
        ),
        points: points.clone(),
    })
}
