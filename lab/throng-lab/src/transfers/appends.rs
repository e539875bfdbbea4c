//! Transfers as conditional appends to UmaDB: an event tagged with both accounts, if the sender has no event that the client does not know.
//!
//! The client reads nothing. It knows its own appends, and there are no others. A real client would read the sender's events first.

use fastrand::Rng;
use std::{collections::VecDeque, io::Write as _, net::SocketAddr};
use throng_load::{Next, Outcome, Shot, Source, Verdict};

use super::{
    losses::{CLIENTS, PairRequests, accounts_of},
    protobuf::{Value, bytes, fields, frame, frames, number},
};

/// The most draws for a receiver other than the sender.
const DRAWS_MAX: usize = 32;
pub(super) const TRANSFERRED: &str = "transferred";

/// Begins a request of UmaDB's interface.
pub(super) fn begin(out: &mut Vec<u8>, address: SocketAddr, method: &str) {
    let written = write!(
        out,
        "POST /umadb.v1.DCB/{method} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\r\n"
    );
    written.expect("a vector takes any text");
}

pub(super) fn tag(account: u32) -> String {
    format!("account:{account}")
}

/// Writes an event as a field of an append.
pub(super) fn event(message: &mut Vec<u8>, kind: &str, accounts: &[u32], data: &str) {
    let mut event = Vec::with_capacity(96);
    bytes(&mut event, 1, kind.as_bytes());
    for account in accounts {
        bytes(&mut event, 2, tag(*account).as_bytes());
    }
    bytes(&mut event, 3, data.as_bytes());
    bytes(message, 1, &event);
}

/// Writes a query for the events of a kind that are tagged with an account.
pub(super) fn query(message: &mut Vec<u8>, field: u64, account: u32) {
    let (mut item, mut query) = (Vec::new(), Vec::new());
    bytes(&mut item, 1, TRANSFERRED.as_bytes());
    bytes(&mut item, 2, tag(account).as_bytes());
    bytes(&mut query, 1, &item);
    bytes(message, field, &query);
}

/// Writes the request that appends a transfer, unless the sender has an event after this position.
fn append(out: &mut Vec<u8>, address: SocketAddr, [from, to]: [u32; 2], after: u64) {
    let (mut message, mut condition) = (Vec::with_capacity(160), Vec::with_capacity(48));
    event(&mut message, TRANSFERRED, &[from, to], r#"{"cents":1}"#);
    query(&mut condition, 1, from);
    number(&mut condition, 2, after);
    bytes(&mut message, 2, &condition);
    begin(out, address, "Append");
    frame(out, &message);
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appended {
    At(u64),
    /// Another event was appended before.
    Conflict,
    Failed,
}

fn appended(outcome: &Outcome<'_>) -> Appended {
    /// The code of `FAILED_PRECONDITION` in gRPC.
    const CONDITION: &str = "9";
    let Ok(answer) = &outcome.result else {
        return Appended::Failed;
    };
    // A failure has no message. Its status stands in the head.
    match position(answer.body) {
        Some(position) => Appended::At(position),
        None if answer.header("grpc-status") == Some(CONDITION) => Appended::Conflict,
        None => Appended::Failed,
    }
}

/// Returns the position in an answer.
pub(super) fn position(body: &[u8]) -> Option<u64> {
    let message = frames(body).next()?;
    match fields(message).next()? {
        (1, Value::Number(position)) => Some(position),
        _ => None,
    }
}

/// Returns the cumulative weights of a Zipf distribution, ending with 1.
pub(super) fn weights(accounts: u32, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut weights: Vec<f64> = (1..=accounts)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

/// Transfers between accounts drawn by a Zipf distribution.
pub(super) struct Appends {
    address: SocketAddr,
    random: Rng,
    weights: Vec<f64>,
    /// The position of the last event of each account that the client knows.
    pub(super) known: Vec<u64>,
    under_way: Vec<[u32; 2]>,
    free: Vec<u32>,
    /// The transfers to be repeated.
    again: VecDeque<[u32; 2]>,
    bytes: Vec<u8>,
}

impl Appends {
    pub(super) fn new(address: SocketAddr, exponent: f64, known: Vec<u64>) -> Self {
        Self {
            address,
            random: Rng::new(),
            weights: weights(known.len() as u32, exponent),
            known,
            under_way: Vec::new(),
            free: Vec::new(),
            again: VecDeque::new(),
            bytes: Vec::new(),
        }
    }

    fn draw(&mut self) -> u32 {
        let weight = self.random.f64();
        let at = self.weights.partition_point(|cumulative| *cumulative < weight);
        at.min(self.weights.len() - 1) as u32 + 1
    }

    fn draw_two(&mut self) -> [u32; 2] {
        let from = self.draw();
        let mut to = self.draw();
        for _ in 0..DRAWS_MAX {
            if to != from {
                break;
            }
            to = self.draw();
        }
        [from, to]
    }
}

impl Source for Appends {
    fn next(&mut self, _: u64) -> Next<'_> {
        let accounts = match self.again.pop_front() {
            Some(accounts) => accounts,
            None => self.draw_two(),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.under_way.push([0; 2]);
            self.under_way.len() as u32 - 1
        });
        self.under_way[number as usize] = accounts;
        self.bytes.clear();
        let after = self.known[accounts[0] as usize - 1];
        append(&mut self.bytes, self.address, accounts, after);
        Next::Send(Shot::new(&self.bytes, number.into()))
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        self.free.push(tag as u32);
        let accounts = self.under_way[tag as usize];
        match appended(outcome) {
            Appended::At(position) => {
                for account in accounts {
                    let known = &mut self.known[account as usize - 1];
                    *known = position.max(*known);
                }
                Verdict::Success
            }
            Appended::Conflict => {
                self.again.push_back(accounts);
                Verdict::Retried
            }
            Appended::Failed => Verdict::CheckFailed,
        }
    }
}

/// Transfers of clients that have two accounts each.
pub(super) struct PairAppends {
    pub(super) address: SocketAddr,
    pub(super) known: [u64; CLIENTS as usize],
}

impl PairRequests for PairAppends {
    fn write(&mut self, client: u32, bytes: &mut Vec<u8>) {
        let (from, to) = accounts_of(client);
        append(bytes, self.address, [from, to], self.known[client as usize]);
    }

    fn is_acknowledged(&mut self, client: u32, outcome: &Outcome<'_>) -> bool {
        let Appended::At(position) = appended(outcome) else {
            return false;
        };
        self.known[client as usize] = position;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::weights;

    #[test]
    fn zipf_weights_follow_the_exponent() {
        assert_eq!(weights(4, 0.0), [0.25, 0.5, 0.75, 1.0]);
        let skewed = weights(100_000, 1.5);
        assert!((0.38..0.39).contains(&skewed[0]), "1 / zeta(1.5): {}", skewed[0]);
    }
}
