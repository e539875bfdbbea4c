//! The trace of a registration day: the offered sections, and the requests for seats with their times.
//!
//! A [`Trace`] is read from two text files ([`Trace::read`]), written to them ([`Trace::write`]), or generated from a seed with the shape of the
//! published one ([`generate()`]). It uses neither the engine nor the network. A client replays it.
//!
//! # The two files
//!
//! Both are UTF-8 with one record a line. A line may end in `\r\n`. Empty lines and a byte order mark at the start are ignored. Fields are taken
//! unchanged, including spaces.
//!
//! | file | a line | fields |
//! |---|---|---|
//! | capacities | `A HTG 100-1⇥30` | section, a tab, seats (0 to 4294967295) |
//! | requests | `10482213,A HTG 100-1,2026-11-04,00:00:12,A` | student, section, date, time of day, operation |
//!
//! Operations are `A` (add), `D` (drop) and `X` (administrative drop, made by the registrar). Students and sections are opaque names of 1 to
//! [`NAME_BYTES_MAX`] bytes without comma or control character. Dates and times are local to the university, to the second and without a zone. A file
//! has at most [`FILE_BYTES_MAX`] bytes.
//!
//! The following is decided here, since the published files do not define it:
//!
//! - **A section that occurs twice** in the capacities: the first line counts, because opening an open section changes nothing. Each later line is
//!   reported as a [`DuplicateSection`], even if it is equal.
//! - **A request for a section without a capacity** is kept. Its expected answer is "there is no such section". [`Trace::requests_unknown`] counts
//!   them.
//! - **Requests out of time order** are an error that names the line. The order decides which student gets the last seat, so sorting could not repair
//!   the file.
//! - **An empty file** is an error, because there is nothing to replay.
//!
//! ```
//! use registration::trace::{Operation, Source, Trace};
//!
//! let reading = Trace::parse(
//!     Source { name: "capacities.txt", text: "C S 142-1\t30\n" },
//!     Source { name: "requests.txt", text: "10482213,C S 142-1,2026-11-04,00:00:12,A\n" },
//! )?;
//! assert_eq!(reading.trace.sections[0].capacity, 30);
//! assert_eq!(reading.trace.requests[0].operation, Operation::Add);
//! # Ok::<(), registration::trace::TraceError>(())
//! ```

mod error;
mod generate;
mod lanes;
mod line;
mod random;
mod read;
mod shape;
mod write;

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

pub use error::TraceError;
pub use generate::{PERIOD_DAYS, generate};
pub use jiff::civil::DateTime;
pub(crate) use line::is_name;
pub use read::{DuplicateSection, Reading, Source};
pub use shape::{Shape, ShapeError};

/// The longest student or section name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// The largest file that is accepted, in bytes. The published requests take 2 MB.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The seed of the built-in trace.
pub const DEFAULT_SEED: u64 = 2016;

/// A registration period: the offered sections, and the requests in order.
///
/// Equal names share one allocation, so a request takes about 50 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The offered sections in the order of the file. Each id occurs once.
    pub sections: Vec<OfferedSection>,
    /// The requests in time order. Those of one second keep the order of the file.
    pub requests: Vec<Request>,
}

/// A section and its number of seats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedSection {
    /// The id, such as `A HTG 100-1`: department, course number, section number.
    pub id: Arc<str>,
    /// The number of seats. A section with 0 seats admits no student.
    pub capacity: u32,
}

/// A student's request to a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The asking student, an opaque token.
    pub student: Arc<str>,
    /// The id of the requested section.
    pub section: Arc<str>,
    /// The time in the university's local time, to the second.
    pub at: DateTime,
    /// The operation.
    pub operation: Operation,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The student asks for a seat.
    Add,
    /// The student gives the seat back.
    Drop,
    /// The registrar takes the seat back. It is treated as a drop.
    AdministrativeDrop,
}

impl Operation {
    /// Returns the letter of the operation in the requests file.
    pub fn letter(self) -> char {
        match self {
            Self::Add => 'A',
            Self::Drop => 'D',
            Self::AdministrativeDrop => 'X',
        }
    }

    /// True for a drop by the student or by the registrar.
    pub fn is_drop(self) -> bool {
        !matches!(self, Self::Add)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Add => "add",
            Self::Drop => "drop",
            Self::AdministrativeDrop => "administrative drop",
        })
    }
}

impl Trace {
    /// Returns the built-in trace: [`Shape::PUBLISHED`], generated from `seed`.
    pub fn registration_day(seed: u64) -> Self {
        generate(&Shape::PUBLISHED, seed).expect("a test proves that the published shape is possible")
    }

    /// Returns the time from the first request to request number `index`, for a replay in real time.
    ///
    /// Zero for the first request, and for an index beyond the end.
    pub fn offset(&self, index: usize) -> Duration {
        match (self.requests.first(), self.requests.get(index)) {
            (Some(first), Some(request)) => request.at.duration_since(first.at).unsigned_abs(),
            _ => Duration::ZERO,
        }
    }

    /// Returns the hour of the clock with the most requests, the first of equal ones; `None` without requests.
    pub fn busiest_hour(&self) -> Option<DateTime> {
        let hour = |request: &Request| request.at.date().at(request.at.hour(), 0, 0, 0);
        let hours = self.requests.chunk_by(|one, other| hour(one) == hour(other));
        let busiest = hours.rev().max_by_key(|requests| requests.len())?;
        busiest.first().map(hour)
    }

    /// Returns the same sections, with only the requests from a time until another one.
    #[must_use]
    pub fn between(&self, from: DateTime, until: DateTime) -> Self {
        let place = |at| self.requests.partition_point(|request| request.at < at);
        Self {
            sections: self.sections.clone(),
            requests: self.requests[place(from)..place(until).max(place(from))].to_vec(),
        }
    }

    /// Returns the number of requests for sections that are not offered.
    pub fn requests_unknown(&self) -> usize {
        let offered: HashSet<&str> = self.sections.iter().map(|section| &*section.id).collect();
        self.requests
            .iter()
            .filter(|request| !offered.contains(&*request.section))
            .count()
    }

    /// Splits the requests over `count` clients (at least one). Each section belongs to one client.
    ///
    /// A lane holds indices into [`Trace::requests`], ascending. A client that replays its lane in order keeps the order of each section's requests.
    /// So the outcome does not depend on the speed of the clients. Lanes are of nearly equal length: sections are assigned largest first, always to
    /// the shortest lane. A lane may be empty.
    pub fn lanes(&self, count: usize) -> Vec<Vec<usize>> {
        lanes::split(&self.requests, count)
    }
}
