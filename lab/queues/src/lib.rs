//! The batching queue and its rivals under the same load. Each measurement receives every item, joins every thread and checks the sum. The clock
//! stops after the last item.
//!
//! - [`surge`]: rounds of threads that send as fast as they can to one receiver, the classic "100 million messages" test. Its
//!   [ceiling](surge::ceiling) is the same work without a hand-off.
//! - [`level`]: senders with a timetable, from a low rate to more than the machine can do. It measures the rate reached, the time from sender to
//!   receiver, and the CPU time.
//!
//! Only ratios taken in one run mean something. [`Task`] is one measurement. A benchmark program runs each in a process of its own, so that the peak
//! of memory belongs to this measurement alone.

mod candidate;
mod channels;
pub mod level;
mod ours;
mod process;
pub mod surge;
mod way;

pub use candidate::{Candidate, Rival};
pub use level::Level;
pub use surge::Surge;

use serde::{Deserialize, Serialize};

/// A trade: a name and an amount, 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trade {
    /// The company's symbol, filled up with zeros.
    pub name: [u8; 8],
    /// The amount. In a [`Level`] it is the time of sending, in nanoseconds since the beginning.
    pub amount: u64,
}

impl Trade {
    /// Returns a trade of this many shares.
    #[must_use]
    #[inline]
    pub fn of(amount: u64) -> Self {
        Self {
            name: *b"ibm\0\0\0\0\0",
            amount,
        }
    }
}

/// A measurement, with its load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// The work without a hand-off.
    Ceiling(Surge),
    /// A surge through one of the queues.
    Surge(Candidate, Surge),
    /// Senders with a timetable into one of the queues.
    Level(Candidate, Level),
}

/// The outcome of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The figures of the ceiling or a surge.
    Surge(surge::Figures),
    /// The figures of a level.
    Level(level::Figures),
}

impl Task {
    /// Runs the measurement in this process.
    #[must_use]
    pub fn run(&self) -> Outcome {
        match self {
            Self::Ceiling(surge) => Outcome::Surge(surge::ceiling(surge)),
            Self::Surge(candidate, surge) => Outcome::Surge(candidate.surge(surge)),
            Self::Level(candidate, level) => Outcome::Level(candidate.level(level)),
        }
    }
}
