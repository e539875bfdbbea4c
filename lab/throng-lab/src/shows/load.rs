//! The requests of a measurement: reservations and cancellations of seats. The generator knows the state of the seats.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use throng_load::{Arrivals, Closed, Next, Options, Outcome, Report, Request, Shot, Source, Target, Verdict, run};

/// The number of seats of each show.
pub(super) const SEATS: u64 = 50;
/// The most attempts of a refused request: a cancellation may overtake its reservation.
const TRIES_MAX: u8 = 5;

/// Returns the id of a show by its number.
fn show_id(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    format!(
        "{:08x}-{:04x}-4000-8000-{:012x}",
        mixed >> 32,
        mixed >> 16 & 0xffff,
        number & 0xffff_ffff_ffff
    )
}

/// The reserved seats, according to the answers.
#[derive(Clone)]
pub(super) struct Board(Arc<Mutex<Vec<bool>>>);

impl Board {
    pub(super) fn new(shows: u64) -> Self {
        Self(Arc::new(Mutex::new(vec![false; (shows * SEATS) as usize])))
    }

    fn seats(&self) -> MutexGuard<'_, Vec<bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one request at a time.
struct Writer {
    host: String,
    /// The offset of the shows' numbers.
    first: u64,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(load: &Load) -> Self {
        Self {
            host: load.address.to_string(),
            first: load.first,
            bytes: Vec::new(),
        }
    }

    fn change(&mut self, seat: u64, reserved: bool) -> &[u8] {
        let action = if reserved { "CANCEL_RESERVATION" } else { "RESERVE" };
        let path = format!("/shows/{}/seats/{}", show_id(self.first + seat / SEATS), seat % SEATS);
        self.bytes = Request::build("PATCH", &self.host, &path)
            .header("Accept", "application/json")
            .json(&format!(r#"{{"action":"{action}"}}"#))
            .into_bytes();
        &self.bytes
    }

    fn create(&mut self, show: u64) -> &[u8] {
        let body = format!(
            r#"{{"showId":"{}","title":"show title {show:08}","maxSeats":{SEATS}}}"#,
            show_id(self.first + show)
        );
        self.bytes = Request::build("POST", &self.host, "/shows").json(&body).into_bytes();
        &self.bytes
    }
}

/// A load that creates each show once.
struct Creation {
    writer: Writer,
    next: u64,
    end: u64,
}

impl Source for Creation {
    fn next(&mut self, _: u64) -> Next<'_> {
        if self.next == self.end {
            return Next::Done;
        }
        self.next += 1;
        Next::Send(Shot::new(self.writer.create(self.next - 1), 0))
    }
}

/// A load in which every connection changes seats of its own, one after the other.
struct ClosedLoop {
    writer: Writer,
    board: Board,
    /// The number of seats that the loop uses in turn.
    seats: u64,
    slots: u64,
    free: Vec<u64>,
    /// The number of requests of each slot so far.
    rounds: Vec<u64>,
}

impl Source for ClosedLoop {
    fn next(&mut self, _: u64) -> Next<'_> {
        let Some(slot) = self.free.pop() else {
            return Next::WaitForAnswer;
        };
        let own = self.seats / self.slots;
        let seat = slot + self.slots * (self.rounds[slot as usize] % own);
        let reserved = self.board.seats()[seat as usize];
        Next::Send(Shot::new(self.writer.change(seat, reserved), slot << 40 | seat))
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let (slot, seat) = (tag >> 40, tag & 0xff_ffff_ffff);
        if outcome.status() == 202 {
            let reserved = &mut self.board.seats()[seat as usize];
            *reserved = !*reserved;
        }
        self.rounds[slot as usize] += 1;
        self.free.push(slot);
        Verdict::ByStatus
    }
}

/// Independent users at a rate, each with one request. The shows form groups that follow each other: all seats of a group in a shuffled order, then
/// all of them again in another order. A tenth of the users may be for one show.
struct Concurrent {
    writer: Writer,
    board: Board,
    arrivals: Arrivals,
    due: Option<u64>,
    group: Vec<u64>,
    /// The index of the next group.
    next_group: u64,
    /// The progress in the present group, through both of its rounds.
    place: usize,
    group_shows: u64,
    shows: u64,
    hot: bool,
    sent: u64,
    retries: VecDeque<(u64, u64, u8)>,
    random: u64,
}

impl Concurrent {
    fn seat(&mut self) -> u64 {
        self.sent += 1;
        if self.hot && self.sent.is_multiple_of(10) {
            // The last show gets no other requests.
            return self.shows * SEATS + self.sent / 10 % SEATS;
        }
        if self.place == 2 * self.group.len() {
            let first = self.next_group * self.group_shows % self.shows;
            let shows = self.group_shows.min(self.shows - first);
            self.group = (first * SEATS..(first + shows) * SEATS).collect();
            self.next_group += 1;
            self.place = 0;
        }
        let at = self.place % self.group.len();
        if at == 0 {
            for one in (1..self.group.len()).rev() {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.group.swap(one, (self.random % (one as u64 + 1)) as usize);
            }
        }
        self.place += 1;
        self.group[at]
    }
}

impl Source for Concurrent {
    fn next(&mut self, now: u64) -> Next<'_> {
        let (seat, due, tries) = match self.retries.pop_front() {
            Some(retry) => retry,
            None => {
                let Some(due) = self.due else { return Next::Done };
                if due > now {
                    return Next::WaitUntil(due);
                }
                self.due = self.arrivals.next();
                (self.seat(), due, 0)
            }
        };
        let class = u16::from(self.hot && seat >= self.shows * SEATS);
        let reserved = self.board.seats()[seat as usize];
        Next::Send(Shot {
            bytes: self.writer.change(seat, reserved),
            tag: u64::from(tries) << 56 | seat,
            intended_nanos: Some(due),
            class,
        })
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let (tries, seat) = ((tag >> 56) as u8 + 1, tag & 0xff_ffff_ffff_ffff);
        match outcome.status() {
            202 => {
                let reserved = &mut self.board.seats()[seat as usize];
                *reserved = !*reserved;
                Verdict::Success
            }
            // On the hot show requests overtake each other, so a refusal is a regular answer.
            400 if self.hot && seat >= self.shows * SEATS => Verdict::Success,
            400 if tries < TRIES_MAX => {
                self.retries.push_back((seat, outcome.intended_nanos, tries));
                Verdict::Retried
            }
            _ => Verdict::ByStatus,
        }
    }

    fn unsent(&self, now: u64) -> u64 {
        if self.due.is_none_or(|due| due > now) {
            return 0;
        }
        1 + self.arrivals.clone().take_while(|due| *due <= now).count() as u64
    }
}

/// Users at a rate. Each creates a show and reserves its seats one after the other, with 51 requests.
struct Serial {
    writer: Writer,
    arrivals: Arrivals,
    due: Option<u64>,
    /// The requests that can be sent: the show, the seat plus one (0 creates the show), and since when.
    ready: VecDeque<(u64, u64, u64)>,
    under_way: HashMap<u64, u64>,
    next_show: u64,
}

impl Source for Serial {
    fn next(&mut self, now: u64) -> Next<'_> {
        let (show, step, due) = match self.ready.pop_front() {
            Some(ready) => ready,
            None => {
                let due = match self.due {
                    Some(due) if due <= now => due,
                    Some(due) => return Next::WaitUntil(due),
                    None if self.under_way.is_empty() => return Next::Done,
                    None => return Next::WaitForAnswer,
                };
                self.due = self.arrivals.next();
                self.next_show += 1;
                (self.next_show, 0, due)
            }
        };
        self.under_way.insert(show, step);
        let bytes = match step {
            0 => self.writer.create(show),
            seat => self.writer.change(show * SEATS + seat - 1, false),
        };
        Next::Send(Shot::due(bytes, show, due))
    }

    fn answered(&mut self, show: u64, outcome: &Outcome<'_>) -> Verdict {
        if let Some(step) = self.under_way.remove(&show)
            && step < SEATS
            && matches!(outcome.status(), 201 | 202)
        {
            self.ready.push_back((show, step + 1, outcome.done_nanos));
        }
        Verdict::ByStatus
    }

    fn unsent(&self, now: u64) -> u64 {
        self.due.filter(|due| *due <= now).map_or(0, |_| 1) + self.ready.len() as u64
    }
}

/// The load: requests and their target.
pub(super) struct Load {
    pub(super) address: SocketAddr,
    /// The offset of the shows' numbers.
    pub(super) first: u64,
    /// The number of shows that are used.
    pub(super) shows: u64,
    pub(super) board: Board,
}

impl Load {
    /// Creates the shows with these numbers.
    pub(super) fn create(&self, shows: std::ops::Range<u64>) -> anyhow::Result<Report> {
        let count = shows.end - shows.start;
        let source = Creation {
            writer: Writer::new(self),
            next: shows.start,
            end: shows.end,
        };
        let report = self.drive(64, None, source)?;
        anyhow::ensure!(
            report.counters.successes == count,
            "{} of {count} shows were created; the answers: {:?}",
            report.counters.successes,
            report.counters.statuses
        );
        Ok(report)
    }

    /// Asks for a show repeatedly and returns the report.
    pub(super) fn look(&self, show: u64) -> anyhow::Result<Report> {
        let path = format!("/shows/{}", show_id(self.first + show));
        let request = Request::get(&self.address.to_string(), &path);
        self.drive(1, None, Closed::new(request, 1))
    }

    /// Runs a closed loop over the seats of this many shows from the first, for this time.
    pub(super) fn closed(&self, connections: usize, shows: u64, duration: Duration) -> anyhow::Result<Report> {
        let slots = (connections as u64).min(shows * SEATS);
        let source = ClosedLoop {
            writer: Writer::new(self),
            board: self.board.clone(),
            seats: shows * SEATS,
            slots,
            free: (0..slots).collect(),
            rounds: vec![0; slots as usize],
        };
        self.drive(connections, Some(duration), source)
    }

    /// Sends reservations and cancellations at a rate.
    pub(super) fn concurrent(&self, rate: f64, duration: Duration, hot: bool) -> anyhow::Result<Report> {
        let mut arrivals = Arrivals::constant(rate, duration.as_secs_f64());
        let source = Concurrent {
            writer: Writer::new(self),
            board: self.board.clone(),
            due: arrivals.next(),
            arrivals,
            group: Vec::new(),
            next_group: 0,
            place: 0,
            // The original load has five shows for 1,000 requests a second.
            group_shows: ((rate / 200.0) as u64).clamp(5, self.shows - 1),
            shows: self.shows - 1,
            hot,
            sent: 0,
            retries: VecDeque::new(),
            random: 0x2545_f491_4f6c_dd1d,
        };
        self.drive(512, Some(duration + Duration::from_secs(2)), source)
    }

    /// Sends the requests of users at a rate. Each has a show of its own, numbered from `first`.
    pub(super) fn serial(&self, rate: f64, duration: Duration, first: u64) -> anyhow::Result<Report> {
        let mut arrivals = Arrivals::constant(rate / (SEATS + 1) as f64, duration.as_secs_f64());
        let source = Serial {
            writer: Writer::new(self),
            due: arrivals.next(),
            arrivals,
            ready: VecDeque::new(),
            under_way: HashMap::new(),
            next_show: first,
        };
        self.drive(512, Some(duration + Duration::from_secs(2)), source)
    }

    fn drive(&self, connections: usize, duration: Option<Duration>, source: impl Source) -> anyhow::Result<Report> {
        let mut options = Options::new(Target::resolve(&format!("http://{}", self.address), false)?);
        options.connections = connections;
        options.connections_ahead = connections.min(64);
        options.duration = duration;
        options.classes = vec!["all".into(), "hot".into()];
        Ok(run(&options, vec![source])?.report)
    }
}
