//! A ride on a lift, and its resort's day.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, ops::RangeInclusive, str::FromStr};
use throng::model::Rejection;

use crate::number::{NUMBER_MAX, Number};

/// The days of a season.
pub const DAYS: RangeInclusive<u32> = 1..=366;
/// The minutes of a ski day.
pub const MINUTES: RangeInclusive<u32> = 1..=420;
/// The number of hours of a ski day.
pub const HOURS: usize = 7;
/// The lift numbers of a resort.
pub const LIFTS: RangeInclusive<u32> = 1..=NUMBER_MAX - 1;
/// The possible waiting times at a lift, in minutes.
pub const WAITS: RangeInclusive<u32> = 0..=NUMBER_MAX - 1;
/// The height of lift 1. The height of another lift is this times its number.
const VERTICAL: u64 = 10;

/// A ride of a skier. Two rides may be equal in all fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ride {
    /// The resort's number.
    pub resort: u32,
    /// The season: its year.
    pub season: u32,
    /// The day of the season, 1 to 366.
    pub day: u32,
    /// The minute of the ski day, 1 to 420.
    pub time: u32,
    /// The lift's number, from 1.
    pub lift: u32,
    /// The minutes waited at the lift, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u32>,
}

impl Ride {
    /// Returns the day for which it counts.
    #[must_use]
    pub fn resort_day(&self) -> ResortDayId {
        ResortDayId {
            resort: self.resort,
            season: self.season,
            day: self.day,
        }
    }

    /// Checks that each parameter is in its range.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), Refused> {
        check("resortID", self.resort, 0..=NUMBER_MAX)?;
        check("seasonID", self.season, 0..=NUMBER_MAX)?;
        check("dayID", self.day, DAYS)?;
        check("time", self.time, MINUTES)?;
        check("liftID", self.lift, LIFTS)?;
        self.wait.map_or(Ok(()), |wait| check("waitTime", wait, WAITS))
    }
}

fn check(parameter: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), Refused> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Refused::invalid(parameter, value))
}

/// The rides on a lift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LiftRides {
    /// The lift's number.
    pub lift: u32,
    /// The number of rides on it.
    pub rides: u64,
}

/// Returns the vertical of this many rides on a lift.
#[must_use]
pub fn vertical(lift: u32, rides: u64) -> u64 {
    u64::from(lift) * VERTICAL * rides
}

/// Returns the hour of the ski day for a minute, from 0.
#[must_use]
pub fn hour(time: u32) -> usize {
    (time.saturating_sub(*MINUTES.start()) as usize / 60).min(HOURS - 1)
}

/// A day of a resort's season, written `56:2022:12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResortDayId {
    /// The resort's number.
    pub resort: u32,
    /// The season's year.
    pub season: u32,
    /// The day of the season.
    pub day: u32,
}

impl fmt::Display for ResortDayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.resort, self.season, self.day)
    }
}

/// The error for a text that is no day of a resort.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no day of a resort, such as 56:2022:12 for day 12 of the season 2022 at resort 56")]
pub struct NotAResortDay(String);

impl FromStr for ResortDayId {
    type Err = NotAResortDay;

    fn from_str(text: &str) -> Result<Self, NotAResortDay> {
        let parts: Result<Vec<Number>, _> = text.split(':').map(str::parse).collect();
        match parts.as_deref() {
            Ok(&[Number(resort), Number(season), Number(day)]) => Ok(Self { resort, season, day }),
            _ => Err(NotAResortDay(text.chars().take(64).collect())),
        }
    }
}

/// The empty reply to a durable command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}

/// The reason for a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub enum Refused {
    /// A parameter is out of its range. Nothing was changed.
    #[error("Invalid value for parameter '{parameter}': {value}")]
    Invalid {
        /// The parameter's name in the interface.
        parameter: String,
        /// The refused value.
        value: String,
    },
    /// The skier has no rides in the requested range.
    #[error("Data not found")]
    NoData {},
}

impl Refused {
    pub(crate) fn invalid(parameter: &str, value: impl fmt::Display) -> Self {
        Self::Invalid {
            parameter: parameter.into(),
            value: value.to_string(),
        }
    }
}

impl Rejection for Refused {
    fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid-parameter",
            Self::NoData {} => "no-data",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Invalid { .. } => 400,
            Self::NoData {} => 404,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIDE: Ride = Ride {
        resort: 56,
        season: 2022,
        day: 12,
        time: 217,
        lift: 21,
        wait: Some(3),
    };

    #[test]
    fn a_ride_is_within_its_ranges_at_both_ends() {
        assert_eq!(RIDE.check(), Ok(()));
        for (ride, at_fault) in [
            (Ride { time: 1, ..RIDE }, None),
            (Ride { time: 420, ..RIDE }, None),
            (Ride { time: 0, ..RIDE }, Some("time': 0")),
            (Ride { time: 421, ..RIDE }, Some("time': 421")),
            (Ride { day: 366, ..RIDE }, None),
            (Ride { day: 0, ..RIDE }, Some("dayID': 0")),
            (Ride { day: 367, ..RIDE }, Some("dayID': 367")),
            (Ride { lift: 1, ..RIDE }, None),
            (Ride { lift: 0, ..RIDE }, Some("liftID': 0")),
            (
                Ride {
                    lift: NUMBER_MAX,
                    ..RIDE
                },
                Some("liftID': 2147483647"),
            ),
            (Ride { wait: Some(0), ..RIDE }, None),
            (Ride { wait: None, ..RIDE }, None),
            (
                Ride {
                    wait: Some(NUMBER_MAX),
                    ..RIDE
                },
                Some("waitTime': 2147483647"),
            ),
            (
                Ride {
                    resort: NUMBER_MAX + 1,
                    ..RIDE
                },
                Some("resortID': 2147483648"),
            ),
        ] {
            let said = ride.check().map_err(|refused| refused.to_string());
            let expected = at_fault.map_or(Ok(()), |text| Err(format!("Invalid value for parameter '{text}")));
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_ski_day_has_seven_hours() {
        let hours: Vec<usize> = [1, 60, 61, 90, 91, 360, 361, 420].map(hour).into();
        assert_eq!(hours, [0, 0, 1, 1, 1, 5, 6, 6]);
    }

    #[test]
    fn a_day_of_a_resort_has_one_writing() {
        let id = RIDE.resort_day();
        assert_eq!(id.to_string(), "56:2022:12");
        assert_eq!("56:2022:12".parse(), Ok(id));
        for text in ["", "56", "56:2022", "56:2022:12:1", "56:2022:012", "56:2022:", "a:b:c"] {
            assert!(text.parse::<ResortDayId>().is_err(), "{text}");
        }
    }
}
