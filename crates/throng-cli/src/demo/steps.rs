//! The two loads of a registration day: opening the sections, and replaying the requests.

use anyhow::bail;
use registration::{
    reference::{ContradictoryAnswers, Expected, Outcome, OutcomeCounts, Rosters},
    trace::{Request, Trace},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use throng_load::{Report, RequestBuilder};

use super::{answers, pace::DayClock};
use crate::{client::Client, percent, progress::Progress};

/// Most wrong answers that are repeated in full.
const SHOWN_MAX: usize = 5;

/// The result of a replay.
pub struct Replay {
    /// The latencies and rates that the load lab measured.
    pub report: Report,
    /// The outcome of each request, in the order of the trace; `None` without a valid answer.
    pub outcomes: Vec<Option<Outcome>>,
    /// The number of answers that are missing, invalid, or differ from the reference.
    pub wrong: usize,
    /// The first of them, as sentences.
    pub shown: Vec<String>,
}

impl Replay {
    /// Counts the requests by their outcome.
    #[must_use]
    pub fn counts(&self) -> OutcomeCounts {
        self.outcomes.iter().flatten().copied().collect()
    }

    /// Returns the rosters that follow from the answers, and contradictions among the answers.
    pub fn rosters(&self, trace: &Trace) -> (Rosters, Option<ContradictoryAnswers>) {
        let answers = trace.requests.iter().zip(&self.outcomes);
        match Rosters::from_answers(answers.filter_map(|(request, outcome)| Some((request, (*outcome)?)))) {
            Ok(rosters) => (rosters, None),
            Err(contradiction) => (Rosters::default(), Some(contradiction)),
        }
    }
}

/// Opens every section as a child of the collection, each under an idempotency key of its own.
pub fn open(client: &Client, trace: &Trace) -> anyhow::Result<Duration> {
    let mut requests = throng_load::Trace::new();
    for section in &trace.sections {
        let body = json!({ "section": &*section.id, "capacity": section.capacity }).to_string();
        let request = throng_load::Request::build("POST", client.authority(), "/sections")
            .header("Idempotency-Key", &format!("open-{}", percent::segment(&section.id)))
            .json(&body);
        requests.push(section.id.as_bytes(), None, 0, &request.into_bytes());
    }
    let mut first_wrong = None;
    let progress = Progress::new("opening", requests.len() as u64);
    let report = client.send(Arc::new(requests), 0.0, Some(progress), |index, outcome| {
        let is_open = outcome.status() == 201;
        if !is_open && first_wrong.is_none() {
            let found = outcome
                .result
                .as_ref()
                .map_or_else(|kind| kind.name().to_string(), answers::said);
            first_wrong = Some(format!(
                "section `{}` could not be opened: {found}",
                trace.sections[index].id
            ));
        }
        is_open
    })?;
    match first_wrong {
        Some(wrong) => bail!(wrong),
        None => Ok(report.elapsed()),
    }
}

/// Replays the requests; with `expected` in order, each answer against the reference's.
pub fn replay(client: &Client, trace: &Trace, expected: Option<&Expected>, speed: f64) -> anyhow::Result<Replay> {
    let mut requests = throng_load::Trace::new();
    for (index, request) in trace.requests.iter().enumerate() {
        let bytes = add_or_drop(client.authority(), request).into_bytes();
        let offset = Some(trace.offset(index));
        match expected {
            Some(_) => requests.push(request.section.as_bytes(), offset, 0, &bytes),
            None => requests.push(index.to_le_bytes(), offset, 0, &bytes),
        };
    }
    let mut outcomes = vec![None; trace.requests.len()];
    let (mut wrong, mut shown) = (0, Vec::new());
    let progress = Progress::new("replaying", requests.len() as u64).with_clock(DayClock::start(trace, speed));
    let report = client.send(Arc::new(requests), speed, Some(progress), |index, outcome| {
        let request = &trace.requests[index];
        let found = match &outcome.result {
            Ok(answer) => answers::outcome(request.operation, answer),
            Err(kind) => Err(kind.name().to_string()),
        };
        let complaint = match (&found, expected.map(|expected| expected.outcomes[index])) {
            (Ok(found), Some(expected)) if *found != expected => format!("{found:?} instead of {expected:?}"),
            (Ok(_), _) => String::new(),
            (Err(found), _) => found.clone(),
        };
        outcomes[index] = found.ok();
        if complaint.is_empty() {
            return true;
        }
        wrong += 1;
        if shown.len() < SHOWN_MAX {
            let Request {
                student,
                section,
                operation,
                ..
            } = request;
            shown.push(format!(
                "request {}, {operation} of `{student}` in `{section}`: {complaint}",
                index + 1
            ));
        }
        false
    })?;
    Ok(Replay {
        report,
        outcomes,
        wrong,
        shown,
    })
}

fn add_or_drop(host: &str, request: &Request) -> RequestBuilder {
    let command = if request.operation.is_drop() { "drop" } else { "add" };
    let path = format!("/api/section/{}/{command}", percent::segment(&request.section));
    throng_load::Request::build("POST", host, &path).json(&json!({ "student": &*request.student }).to_string())
}
