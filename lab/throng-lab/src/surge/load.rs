//! The requests of a surge. Each adds a new student, and its outcome is counted by its status.

use anyhow::Context as _;
use std::{net::SocketAddr, time::Duration};
use throng_load::{
    Next, Options, Outcome, Request, Shot, Source, Target, Verdict,
    measure::{Latencies, latencies},
    run,
};

/// The first section's number. All numbers have equally many digits.
const SECTION_FIRST: u64 = 1_000;
/// The most sections.
pub(super) const SECTIONS_MAX: u64 = 9_000;
/// The placeholder of a section's number.
const SECTION_MARK: &str = "NNNN";
/// The placeholder of a student's number.
const STUDENT_MARK: &str = "TTTTTTTTTT";
/// The length of the windows in which outcomes are counted.
const WINDOW_NANOS: u64 = 100_000_000;
/// The most by which an open load may be late. Requests due before that are dropped, because all its clients are waiting.
const LATE_NANOS: u64 = 10_000_000;
/// The latency above which a service counts as still busy.
const SLOW_NANOS: u64 = 50_000_000;

/// Opens the sections, with seats for all students.
pub(super) fn open_sections(address: SocketAddr, sections: u64) -> anyhow::Result<()> {
    let host = address.to_string();
    let body = format!(r#"{{"capacity":{}}}"#, u32::MAX);
    let requests = (SECTION_FIRST..SECTION_FIRST + sections)
        .map(|section| {
            Request::build("POST", &host, &format!("/api/section/S{section}/open"))
                .json(&body)
                .into_bytes()
        })
        .collect();
    crate::requests::drive(address, 16, requests).map(drop)
}

/// The protocol of the requests. Each connection or stream has one request in flight at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Transport {
    Http1,
    /// HTTP/2, with [`HTTP2_STREAMS`] clients on each connection.
    Http2,
    Websocket,
}

/// The clients that share a connection of HTTP/2, as the clients of a proxy do.
const HTTP2_STREAMS: usize = 64;

/// The pace of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// Every connection sends the next request as soon as it has an answer, even a refusal.
    Closed,
    /// Requests are sent at a rate: the first before and after the surge, the second during it.
    Open { calm: f64, surge: f64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
    pub(super) connections: usize,
    pub(super) sections: u64,
    pub(super) pace: Pace,
    /// The time before the surge. The next fields are those of the surge and after it.
    pub(super) before: Duration,
    pub(super) lasts: Duration,
    pub(super) after: Duration,
}

impl Load {
    pub(super) fn lasts_in_all(&self) -> Duration {
        self.before + self.lasts + self.after
    }
}

/// The outcomes of the requests that were sent during the surge.
pub(super) struct SurgeOutcomes {
    pub(super) sent: u64,
    pub(super) served: Latencies,
    pub(super) refused: Latencies,
    /// Requests with another status or without an answer.
    pub(super) failed: u64,
    /// Successes that arrived during the surge.
    pub(super) came: u64,
    windows: Vec<Window>,
}

/// The requests that were sent in one window.
#[derive(Clone, Copy, Default)]
struct Window {
    refused: u64,
    slowest_nanos: u64,
}

impl SurgeOutcomes {
    /// Returns the time from the end of the surge to the end of the last window with a refusal or a long wait.
    pub(super) fn recovery(&self, load: &Load) -> Duration {
        let over = (load.before + load.lasts).as_nanos() as u64;
        let last = self
            .windows
            .iter()
            .rposition(|window| window.refused > 0 || window.slowest_nanos > SLOW_NANOS)
            .map_or(0, |at| (at as u64 + 1) * WINDOW_NANOS);
        Duration::from_nanos(last.saturating_sub(over))
    }
}

/// Generates students who have never been added, and counts the outcomes.
pub(super) struct Students {
    bytes: Vec<u8>,
    section_at: usize,
    student_at: usize,
    next: u64,
    sections: u64,
    pace: Pace,
    due_nanos: u64,
    surge: (u64, u64),
    seen: SurgeOutcomes,
}

impl Students {
    fn new(load: &Load, first: u64) -> anyhow::Result<Self> {
        let body = format!(r#"{{"student":"{STUDENT_MARK}"}}"#);
        let bytes = match load.transport {
            Transport::Http1 | Transport::Http2 => {
                let path = format!("/api/section/S{SECTION_MARK}/add");
                let request = Request::build("POST", &load.address.to_string(), &path);
                request.json(&body).into_bytes()
            }
            Transport::Websocket => format!(
                r#"{{"type":"command","id":1,"kind":"section","entity":"S{SECTION_MARK}","command":"add","body":{body}}}"#
            )
            .into_bytes(),
        };
        let find = |mark: &str| bytes.windows(mark.len()).position(|part| part == mark.as_bytes());
        let begin = load.before.as_nanos() as u64;
        let end = begin + load.lasts.as_nanos() as u64;
        let lasts = end + load.after.as_nanos() as u64;
        Ok(Self {
            section_at: find(SECTION_MARK).context("the request names its section")?,
            student_at: find(STUDENT_MARK).context("the request names its student")?,
            bytes,
            next: first,
            sections: load.sections,
            pace: load.pace,
            due_nanos: 0,
            surge: (begin, end),
            seen: SurgeOutcomes {
                sent: 0,
                served: latencies(),
                refused: latencies(),
                failed: 0,
                came: 0,
                windows: vec![Window::default(); (lasts / WINDOW_NANOS + 1) as usize],
            },
        })
    }

    fn is_surge(&self, nanos: u64) -> bool {
        (self.surge.0..self.surge.1).contains(&nanos)
    }

    /// Counts an answer with this status of HTTP.
    pub(super) fn count(&mut self, status: u16, sent_nanos: u64, done_nanos: u64) {
        let took = done_nanos.saturating_sub(sent_nanos);
        let is_refused = matches!(status, 429 | 503);
        if let Some(window) = self.seen.windows.get_mut((sent_nanos / WINDOW_NANOS) as usize) {
            window.refused += u64::from(is_refused);
            window.slowest_nanos = window.slowest_nanos.max(took);
        }
        self.seen.came += u64::from(status == 200 && self.is_surge(done_nanos));
        if self.is_surge(sent_nanos) {
            self.seen.sent += 1;
            match status {
                200 => self.seen.served.saturating_record(took),
                429 | 503 => self.seen.refused.saturating_record(took),
                _ => self.seen.failed += 1,
            }
        }
    }

    /// Returns the time when the next request is due, or `None` if it is due now.
    fn waits(&mut self, now_nanos: u64) -> Option<u64> {
        let Pace::Open { calm, surge } = self.pace else {
            return None;
        };
        if self.due_nanos > now_nanos {
            return Some(self.due_nanos);
        }
        let rate = if self.is_surge(self.due_nanos) { surge } else { calm };
        self.due_nanos = self.due_nanos.max(now_nanos.saturating_sub(LATE_NANOS)) + (1e9 / rate) as u64;
        None
    }
}

fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl Source for Students {
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        if let Some(due_nanos) = self.waits(now_nanos) {
            return Next::WaitUntil(due_nanos);
        }
        let student = self.next;
        self.next += 1;
        let section = SECTION_FIRST + student % self.sections;
        write_digits(&mut self.bytes[self.section_at..][..SECTION_MARK.len()], section);
        write_digits(&mut self.bytes[self.student_at..][..STUDENT_MARK.len()], student);
        Next::Send(Shot::new(&self.bytes, student))
    }

    fn answered(&mut self, _: u64, outcome: &Outcome<'_>) -> Verdict {
        self.count(outcome.status(), outcome.sent_nanos, outcome.done_nanos);
        Verdict::ByStatus
    }
}

/// Runs the load. `students` is the number of the next new student.
pub(super) fn drive(load: &Load, students: &mut u64) -> anyhow::Result<SurgeOutcomes> {
    let source = Students::new(load, *students)?;
    let source = match load.transport {
        Transport::Websocket => super::websocket::drive(load, source)?,
        Transport::Http1 | Transport::Http2 => {
            let mut options = Options::new(Target::resolve(&format!("http://{}", load.address), false)?);
            options.connections = load.connections;
            if load.transport == Transport::Http2 {
                options.connections = load.connections.div_ceil(HTTP2_STREAMS);
                options.http2 = Some(HTTP2_STREAMS);
            }
            options.duration = Some(load.lasts_in_all());
            let finished = run(&options, vec![source])?;
            finished.sources.into_iter().next().context("the source comes back")?
        }
    };
    *students = source.next;
    Ok(source.seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pace: Pace) -> Load {
        Load {
            address: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Http1,
            connections: 1,
            sections: 3,
            pace,
            before: Duration::from_secs(1),
            lasts: Duration::from_secs(1),
            after: Duration::from_secs(1),
        }
    }

    #[test]
    fn each_request_adds_a_student_and_sections_take_turns() {
        let mut students = Students::new(&load(Pace::Closed), 7).unwrap();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let Next::Send(shot) = students.next(0) else {
                panic!("a closed population sends at once");
            };
            seen.push(String::from_utf8(shot.bytes.to_vec()).unwrap());
        }
        for (at, text) in seen.iter().enumerate() {
            assert!(
                text.contains(&format!("/api/section/S{}/add ", 1_000 + (7 + at) % 3)),
                "{text}"
            );
            assert!(text.ends_with(&format!(r#"{{"student":"{:010}"}}"#, 7 + at)), "{text}");
        }
    }

    #[test]
    fn an_open_load_keeps_its_rates_and_drops_unsendable_requests() {
        let pace = Pace::Open {
            calm: 100.0,
            surge: 1_000.0,
        };
        let mut students = Students::new(&load(pace), 0).unwrap();
        let sent_until = |students: &mut Students, now: u64| {
            let mut sent = 0;
            while matches!(students.next(now), Next::Send(_)) {
                sent += 1;
            }
            sent
        };
        let mut sent = 0;
        for now in (0..1_000).map(|at| at * 1_000_000) {
            sent += sent_until(&mut students, now);
        }
        assert_eq!(sent, 100);
        sent = (1_000..2_000).map(|at| sent_until(&mut students, at * 1_000_000)).sum();
        assert_eq!(sent, 1_000);
        // For half a second no client was free.
        assert!(sent_until(&mut students, 2_500_000_000) <= 3);
    }

    #[test]
    fn it_is_back_to_normal_when_nobody_is_refused_or_waits_long() {
        let load = load(Pace::Closed);
        let mut seen = Students::new(&load, 0).unwrap().seen;
        assert_eq!(seen.recovery(&load), Duration::ZERO);
        seen.windows[15].refused = 3;
        assert_eq!(seen.recovery(&load), Duration::ZERO, "that was in the surge");
        seen.windows[22].slowest_nanos = SLOW_NANOS + 1;
        assert_eq!(seen.recovery(&load), Duration::from_millis(300));
    }
}
