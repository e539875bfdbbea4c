//! The requests of a measurement. Each adds a new student, so that each is an event to be synced.

use serde_json::json;
use std::net::SocketAddr;
use throng_load::{Next, Options, Outcome, Report, Request, Shot, Source, Target, Verdict, run};

/// The number of sections that the students are spread over.
pub(super) const SECTIONS: usize = 1_000;

/// Generates students who have never been added.
#[derive(Debug, Default)]
pub(super) struct Students {
    next: u64,
}

/// Requests that are sent once each, in order, regardless of the answers.
struct Prepared {
    requests: Vec<Vec<u8>>,
    next: usize,
}

impl Source for Prepared {
    fn next(&mut self, _: u64) -> Next<'_> {
        let Some(bytes) = self.requests.get(self.next) else {
            return Next::Done;
        };
        self.next += 1;
        Next::Send(Shot::new(bytes, self.next as u64))
    }

    fn answered(&mut self, _: u64, _: &Outcome<'_>) -> Verdict {
        Verdict::ByStatus
    }
}

/// Opens the sections, with seats for all students.
pub(super) fn open_sections(address: SocketAddr) -> anyhow::Result<()> {
    let body = json!({ "capacity": u32::MAX }).to_string();
    let host = address.to_string();
    let requests = (0..SECTIONS)
        .map(|section| {
            Request::build("POST", &host, &format!("/api/section/S{section}/open"))
                .json(&body)
                .into_bytes()
        })
        .collect();
    drive(address, 64, requests).map(drop)
}

/// Sends this many adds over this many connections.
pub(super) fn add_students(
    address: SocketAddr,
    connections: usize,
    count: usize,
    students: &mut Students,
) -> anyhow::Result<Report> {
    let host = address.to_string();
    let requests = (0..count)
        .map(|_| {
            let student = students.next;
            students.next += 1;
            let path = format!("/api/section/S{}/add", student % SECTIONS as u64);
            Request::build("POST", &host, &path)
                .json(&format!(r#"{{"student":"{student:08}"}}"#))
                .into_bytes()
        })
        .collect();
    drive(address, connections, requests)
}

/// Sends these requests over this many connections. All must succeed.
pub(super) fn drive(address: SocketAddr, connections: usize, requests: Vec<Vec<u8>>) -> anyhow::Result<Report> {
    let mut options = Options::new(Target::resolve(&format!("http://{address}"), false)?);
    options.connections = connections;
    let count = requests.len() as u64;
    let report = run(&options, vec![Prepared { requests, next: 0 }])?.report;
    anyhow::ensure!(
        report.counters.successes == count,
        "{} of {count} requests succeeded, so the figures mean nothing; the answers: {:?}, errors: {:?}",
        report.counters.successes,
        report.counters.statuses,
        report.counters.errors
    );
    Ok(report)
}
