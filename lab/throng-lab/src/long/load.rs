//! Commands at a steady rate: tickets that are opened, changed and closed, and a few counters.

use std::{net::SocketAddr, time::Duration};
use throng_load::{Next, Options, Outcome, Request, Shot, Source, Target, Verdict, run};

/// The notes of a ticket before it is closed.
const NOTES: u32 = 9;
/// The share of commands that add to a counter: one in this many.
const COUNTER_ONE_IN: u64 = 4;
const COUNTERS: u64 = 50;
const NOTE_BYTES: usize = 400;
/// The pause after which a command that found no free ticket is tried again. Its latency still counts from when it was due.
const LANE_WAIT_NANOS: u64 = 1_000_000;

/// An answered command: its sending time in milliseconds, and its latency since it was due in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) sent_ms: u32,
    pub(super) response_us: u32,
}

/// The outcomes of the commands.
#[derive(Default)]
pub(super) struct CommandOutcomes {
    pub(super) samples: Vec<Sample>,
    /// The times in milliseconds of commands that failed or got another status than 200. They are sent again.
    pub(super) refused_ms: Vec<u32>,
}

/// A ticket in use and its next step.
#[derive(Clone, Copy)]
struct Lane {
    ticket: u64,
    step: u32,
}

struct Commands {
    host: String,
    bytes: Vec<u8>,
    every_nanos: u64,
    due_nanos: u64,
    sent: u64,
    tickets: u64,
    lanes: Vec<Lane>,
    /// The lanes that do not wait for an answer.
    free: Vec<usize>,
    seen: CommandOutcomes,
}

impl Commands {
    fn new(address: SocketAddr, rate: u64, lanes: usize) -> Self {
        let first = |ticket| Lane { ticket, step: 0 };
        Self {
            host: address.to_string(),
            bytes: Vec::new(),
            every_nanos: 1_000_000_000 / rate.max(1),
            due_nanos: 0,
            sent: 0,
            tickets: lanes as u64,
            lanes: (0..lanes as u64).map(first).collect(),
            free: (0..lanes).rev().collect(),
            seen: CommandOutcomes::default(),
        }
    }

    fn of_ticket(&self, lane: Lane) -> Vec<u8> {
        let (command, body) = match lane.step {
            NOTES => ("close", "{}".to_owned()),
            step => ("note", format!(r#"{{"text":"{}{step}"}}"#, "n".repeat(NOTE_BYTES))),
        };
        Request::build("POST", &self.host, &format!("/api/ticket/t{}/{command}", lane.ticket))
            .json(&body)
            .into_bytes()
    }

    fn of_counter(&self) -> Vec<u8> {
        let path = format!("/api/counter/c{}/add", (self.sent / COUNTER_ONE_IN) % COUNTERS);
        Request::build("POST", &self.host, &path).json("{}").into_bytes()
    }
}

/// The tag of a command to a counter.
const COUNTER: u64 = u64::MAX;

impl Source for Commands {
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        if self.due_nanos > now_nanos {
            return Next::WaitUntil(self.due_nanos);
        }
        let tag = if self.sent.is_multiple_of(COUNTER_ONE_IN) {
            self.bytes = self.of_counter();
            COUNTER
        } else {
            let Some(lane) = self.free.pop() else {
                return Next::WaitUntil(now_nanos + LANE_WAIT_NANOS);
            };
            self.bytes = self.of_ticket(self.lanes[lane]);
            lane as u64
        };
        let intended = self.due_nanos;
        self.due_nanos += self.every_nanos;
        self.sent += 1;
        Next::Send(Shot::due(&self.bytes, tag, intended))
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let sent_ms = (outcome.sent_nanos / 1_000_000) as u32;
        // The first answer about a ticket's end may have been lost. The ticket has ended.
        let is_done = matches!(outcome.status(), 200 | 410);
        match is_done {
            true => self.seen.samples.push(Sample {
                sent_ms,
                response_us: u32::try_from(outcome.response_nanos() / 1_000).unwrap_or(u32::MAX),
            }),
            false => self.seen.refused_ms.push(sent_ms),
        }
        if tag != COUNTER {
            let lane = tag as usize;
            self.free.insert(0, lane);
            if is_done && self.lanes[lane].step == NOTES {
                self.lanes[lane] = Lane {
                    ticket: self.tickets,
                    step: 0,
                };
                self.tickets += 1;
            } else if is_done {
                self.lanes[lane].step += 1;
            }
        }
        Verdict::Success
    }
}

/// Sends commands for this time.
pub(super) fn drive(
    address: SocketAddr,
    rate: u64,
    connections: usize,
    lasts: Duration,
) -> anyhow::Result<CommandOutcomes> {
    let mut options = Options::new(Target::resolve(&format!("http://{address}"), false)?);
    options.connections = connections;
    options.duration = Some(lasts);
    let finished = run(&options, vec![Commands::new(address, rate, connections)])?;
    Ok(finished
        .sources
        .into_iter()
        .next()
        .map_or_else(CommandOutcomes::default, |source| source.seen))
}
