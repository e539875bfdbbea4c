//! The shape of a trace, in counts.

use std::collections::HashSet;

use super::{Operation, PERIOD_DAYS, Trace};

/// The counts that describe a trace. [`Trace::shape`] measures them, and [`generate`](super::generate()) meets them exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of offered sections.
    pub sections: u32,
    /// The number of them without a seat.
    pub sections_closed: u32,
    /// The number of them with requests.
    pub sections_touched: u32,
    /// The seats of the largest section.
    pub capacity_max: u32,
    /// The number of students who make a request.
    pub students: u32,
    /// The number of requests for a seat.
    pub adds: u32,
    /// The number of requests to give a seat back.
    pub drops: u32,
    /// The number of seats that the registrar takes back.
    pub administrative_drops: u32,
    /// The most requests in one second of the clock.
    pub requests_per_second_max: u32,
    /// The most requests in one minute of the clock.
    pub requests_per_minute_max: u32,
}

/// The error for a shape of which no trace can be generated. It names the first count that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no trace has {field} = {found}: it must be {least} to {most}, as {because}")]
pub struct ShapeError {
    /// The count, by its field in [`Shape`].
    pub field: &'static str,
    /// The value in the shape.
    pub found: u32,
    /// The smallest possible value.
    pub least: u32,
    /// The largest possible value.
    pub most: u32,
    /// The reason for the bound.
    pub because: &'static str,
}

impl Shape {
    /// The published registration: 5,393 sections, 6,675 students, 44,504 requests.
    ///
    /// Sources differ by a few requests. The totals come from the published runs. Drops, administrative drops and peaks are counted in the published
    /// data, and the rest are adds.
    pub const PUBLISHED: Self = Self {
        sections: 5_393,
        sections_closed: 26,
        sections_touched: 4_624,
        capacity_max: 999,
        students: 6_675,
        adds: 39_218,
        drops: 5_276,
        administrative_drops: 10,
        requests_per_second_max: 74,
        requests_per_minute_max: 2_070,
    };

    /// Returns the published shape with every count except the largest section's seats divided by `divisor` (at least 1).
    ///
    /// Counts are rounded up, except the closed sections. So every divisor gives a possible shape.
    pub fn one_in(divisor: u32) -> Self {
        let divisor = divisor.max(1);
        let published = Self::PUBLISHED;
        Self {
            sections: published.sections.div_ceil(divisor),
            sections_closed: published.sections_closed / divisor,
            sections_touched: published.sections_touched.div_ceil(divisor),
            capacity_max: published.capacity_max,
            students: published.students.div_ceil(divisor),
            adds: published.adds.div_ceil(divisor),
            drops: published.drops.div_ceil(divisor),
            administrative_drops: published.administrative_drops.div_ceil(divisor),
            requests_per_second_max: published.requests_per_second_max.div_ceil(divisor),
            requests_per_minute_max: published.requests_per_minute_max.div_ceil(divisor),
        }
    }

    /// Returns the number of all requests; saturates at `u32::MAX`.
    pub fn requests(&self) -> u32 {
        self.adds
            .saturating_add(self.drops)
            .saturating_add(self.administrative_drops)
    }

    /// Checks that a trace of this shape can be generated.
    ///
    /// # Errors
    ///
    /// [`ShapeError`]: the first count that is out of range, with its range and the reason.
    pub fn check(&self) -> Result<(), ShapeError> {
        const MILLION: u32 = 1_000_000;
        let requests = self.requests();
        let all_closed = self.sections_closed == self.sections;
        let per_minute_least = requests.div_ceil(PERIOD_DAYS * 24 * 60 / 2);
        let rules = [
            (
                "sections",
                self.sections,
                1,
                MILLION,
                "a trace offers one section to a million",
            ),
            (
                "sections_closed",
                self.sections_closed,
                0,
                self.sections,
                "closed sections are sections",
            ),
            (
                "capacity_max",
                self.capacity_max,
                u32::from(!all_closed),
                if all_closed { 0 } else { MILLION },
                "only closed sections have no seat, and a section has a million at most",
            ),
            (
                "sections_touched",
                self.sections_touched,
                1,
                self.sections,
                "touched sections are sections",
            ),
            (
                "adds",
                self.adds,
                self.sections_touched,
                4 * MILLION,
                "each touched section is asked for a seat",
            ),
            (
                "drops",
                self.drops,
                0,
                4 * MILLION,
                "a trace holds four million drops at most",
            ),
            (
                "administrative_drops",
                self.administrative_drops,
                0,
                4 * MILLION,
                "a trace holds four million administrative drops at most",
            ),
            (
                "students",
                self.students,
                1,
                requests.min(MILLION),
                "each student makes a request, a million at most",
            ),
            (
                "requests_per_minute_max",
                self.requests_per_minute_max,
                per_minute_least,
                requests,
                "the requests must find room in half the minutes of the period",
            ),
            (
                "requests_per_second_max",
                self.requests_per_second_max,
                self.requests_per_minute_max.div_ceil(60),
                self.requests_per_minute_max,
                "the fullest minute is made of sixty seconds",
            ),
        ];
        for (field, found, least, most, because) in rules {
            if !(least..=most).contains(&found) {
                return Err(ShapeError {
                    field,
                    found,
                    least,
                    most,
                    because,
                });
            }
        }
        Ok(())
    }
}

impl Trace {
    /// Counts the trace's shape. Requests for sections that are not offered count as requests, but touch no section.
    pub fn shape(&self) -> Shape {
        let asked: HashSet<&str> = self.requests.iter().map(|request| &*request.section).collect();
        let students: HashSet<&str> = self.requests.iter().map(|request| &*request.student).collect();
        let operations = |sought| count(self.requests.iter().filter(|request| request.operation == sought));
        let minutes = self.requests.chunk_by(|one, next| {
            (one.at.date(), one.at.hour(), one.at.minute()) == (next.at.date(), next.at.hour(), next.at.minute())
        });
        Shape {
            sections: count(self.sections.iter()),
            sections_closed: count(self.sections.iter().filter(|section| section.capacity == 0)),
            sections_touched: count(self.sections.iter().filter(|section| asked.contains(&*section.id))),
            capacity_max: self.sections.iter().map(|section| section.capacity).max().unwrap_or(0),
            students: count(students.iter()),
            adds: operations(Operation::Add),
            drops: operations(Operation::Drop),
            administrative_drops: operations(Operation::AdministrativeDrop),
            requests_per_second_max: self
                .requests
                .chunk_by(|one, next| one.at == next.at)
                .map(length)
                .max()
                .unwrap_or(0),
            requests_per_minute_max: minutes.map(length).max().unwrap_or(0),
        }
    }
}

fn count(elements: impl Iterator) -> u32 {
    u32::try_from(elements.count()).unwrap_or(u32::MAX)
}

fn length<T>(elements: &[T]) -> u32 {
    u32::try_from(elements.len()).unwrap_or(u32::MAX)
}
