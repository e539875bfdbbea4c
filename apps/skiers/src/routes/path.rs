//! Parses a request's path.

use crate::{
    number::NUMBER_MAX,
    ride::{DAYS, Refused, ResortDayId},
    statistics::Endpoint,
};

/// The error for a path that names no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathError {
    /// The path is no path below `/skiers` or `/resorts`.
    Unknown,
    /// The day is not a day of a season.
    Day,
    /// A number is too large.
    Number(Refused),
}

/// A request below `/skiers/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SkiersPath {
    /// A skier's day: `{resort}/seasons/{season}/days/{day}/skiers/{skier}`
    Day { day: ResortDayId, skier: u32 },
    /// The same with `/lifts`: the lifts of a skier's day.
    Lifts { day: ResortDayId, skier: u32 },
    /// A skier's season: `{resort}/seasons/{season}/skiers/{skier}`
    Season { resort: u32, season: u32, skier: u32 },
    /// The vertical by resort and season: `{skier}/vertical`
    Vertical { skier: u32 },
}

/// A request below `/resorts/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResortsPath {
    /// The seasons of a resort: `{resort}/seasons`
    Seasons { resort: u32 },
    /// The number of skiers: `{resort}/seasons/{season}/day/{day}/skiers`
    Skiers(ResortDayId),
    /// The rides of each lift: `{resort}/seasons/{season}/day/{day}/lifts`
    Lifts(ResortDayId),
    /// The rides of one lift: `{resort}/seasons/{season}/day/{day}/lifts/{lift}`
    Lift { day: ResortDayId, lift: u32 },
    /// The rides by hour: `{resort}/seasons/{season}/day/{day}/hours`
    Hours(ResortDayId),
}

/// The most parts of a path. A longer one is invalid.
const PARTS_MAX: usize = 8;

/// The parts of a path. One slash at its end is ignored.
struct Parts<'a> {
    parts: [&'a str; PARTS_MAX],
    count: usize,
}

impl<'a> Parts<'a> {
    fn of(path: &'a str) -> Result<Self, PathError> {
        let (mut parts, mut count) = ([""; PARTS_MAX], 0);
        for part in path.strip_suffix('/').unwrap_or(path).split('/') {
            *parts.get_mut(count).ok_or(PathError::Unknown)? = part;
            count += 1;
        }
        Ok(Self { parts, count })
    }

    fn all(&self) -> &[&'a str] {
        &self.parts[..self.count]
    }
}

impl SkiersPath {
    /// Returns the endpoint that the query counts for.
    pub(super) fn endpoint(self) -> Endpoint {
        match self {
            Self::Day { .. } => Endpoint::GetSkierDay,
            Self::Lifts { .. } => Endpoint::GetSkierDayLifts,
            Self::Season { .. } => Endpoint::GetSkierSeason,
            Self::Vertical { .. } => Endpoint::GetSkierVertical,
        }
    }

    /// Parses a path. Both spellings, `/days/` and `/day/`, are accepted.
    pub(super) fn parse(path: &str) -> Result<Self, PathError> {
        let parts = Parts::of(path)?;
        match *parts.all() {
            [resort, "seasons", season, "days" | "day", day, "skiers", skier] => Ok(Self::Day {
                day: resort_day(resort, season, day)?,
                skier: number("skierID", skier)?,
            }),
            [resort, "seasons", season, "days" | "day", day, "skiers", skier, "lifts"] => Ok(Self::Lifts {
                day: resort_day(resort, season, day)?,
                skier: number("skierID", skier)?,
            }),
            [resort, "seasons", season, "skiers", skier] => Ok(Self::Season {
                resort: number("resortID", resort)?,
                season: number("seasonID", season)?,
                skier: number("skierID", skier)?,
            }),
            [skier, "vertical"] => Ok(Self::Vertical {
                skier: number("skierID", skier)?,
            }),
            _ => Err(PathError::Unknown),
        }
    }
}

impl ResortsPath {
    /// Returns the endpoint that the query counts for.
    pub(super) fn endpoint(self) -> Endpoint {
        match self {
            Self::Seasons { .. } => Endpoint::GetSeasons,
            Self::Skiers(_) => Endpoint::GetDaySkiers,
            Self::Lifts(_) | Self::Lift { .. } => Endpoint::GetDayLifts,
            Self::Hours(_) => Endpoint::GetDayHours,
        }
    }

    /// Parses a path. Both spellings, `/day/` and `/days/`, are accepted.
    pub(super) fn parse(path: &str) -> Result<Self, PathError> {
        let parts = Parts::of(path)?;
        match *parts.all() {
            [resort, "seasons"] => Ok(Self::Seasons {
                resort: number("resortID", resort)?,
            }),
            [resort, "seasons", season, "days" | "day", day, "skiers"] => {
                Ok(Self::Skiers(resort_day(resort, season, day)?))
            }
            [resort, "seasons", season, "days" | "day", day, "lifts"] => {
                Ok(Self::Lifts(resort_day(resort, season, day)?))
            }
            [resort, "seasons", season, "days" | "day", day, "lifts", lift] => Ok(Self::Lift {
                day: resort_day(resort, season, day)?,
                lift: number("liftID", lift)?,
            }),
            [resort, "seasons", season, "days" | "day", day, "hours"] => {
                Ok(Self::Hours(resort_day(resort, season, day)?))
            }
            _ => Err(PathError::Unknown),
        }
    }
}

fn resort_day(resort: &str, season: &str, day: &str) -> Result<ResortDayId, PathError> {
    let (resort, season) = (number("resortID", resort)?, number("seasonID", season)?);
    let day = number("dayID", day).map_err(|error| match error {
        PathError::Number(_) => PathError::Day,
        other => other,
    })?;
    match DAYS.contains(&day) {
        true => Ok(ResortDayId { resort, season, day }),
        false => Err(PathError::Day),
    }
}

/// Parses a part that consists of digits.
fn number(name: &str, part: &str) -> Result<u32, PathError> {
    if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(PathError::Unknown);
    }
    let number = part.parse().ok().filter(|number| *number <= NUMBER_MAX);
    number.ok_or_else(|| PathError::Number(Refused::invalid(name, part.get(..32).unwrap_or(part))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: ResortDayId = ResortDayId {
        resort: 56,
        season: 2022,
        day: 12,
    };

    #[test]
    fn a_ride_has_a_path_in_two_spellings() {
        for path in [
            "56/seasons/2022/days/12/skiers/7",
            "56/seasons/2022/day/12/skiers/7",
            "56/seasons/2022/days/12/skiers/7/",
            "056/seasons/2022/days/012/skiers/007",
        ] {
            assert_eq!(
                SkiersPath::parse(path),
                Ok(SkiersPath::Day { day: DAY, skier: 7 }),
                "{path}"
            );
        }
    }

    #[test]
    fn every_other_resource_has_its_path() {
        let of_skiers = |path| SkiersPath::parse(path).unwrap();
        assert_eq!(
            of_skiers("56/seasons/2022/day/12/skiers/7/lifts"),
            SkiersPath::Lifts { day: DAY, skier: 7 }
        );
        assert_eq!(
            of_skiers("56/seasons/2022/skiers/7"),
            SkiersPath::Season {
                resort: 56,
                season: 2022,
                skier: 7
            }
        );
        assert_eq!(of_skiers("7/vertical"), SkiersPath::Vertical { skier: 7 });
        let of_resorts = |path| ResortsPath::parse(path).unwrap();
        assert_eq!(of_resorts("56/seasons"), ResortsPath::Seasons { resort: 56 });
        assert_eq!(of_resorts("56/seasons/2022/day/12/skiers"), ResortsPath::Skiers(DAY));
        assert_eq!(of_resorts("56/seasons/2022/days/12/lifts"), ResortsPath::Lifts(DAY));
        assert_eq!(
            of_resorts("56/seasons/2022/days/12/lifts/3"),
            ResortsPath::Lift { day: DAY, lift: 3 }
        );
        assert_eq!(of_resorts("56/seasons/2022/days/12/hours"), ResortsPath::Hours(DAY));
    }

    #[test]
    fn a_wrong_path_is_told_from_a_number_out_of_range() {
        for path in [
            "",
            "7",
            "seven/vertical",
            "-7/vertical",
            "56/seasons/2022/days/12/skiers",
            "56/seasons/2022/days//skiers/7",
            "56/seasons/2022/days/12/skiers/7/lifts/3",
            "56/seasons/2022/days/12/skiers/7//",
            "56/season/2022/days/12/skiers/7",
            "1/2/3/4/5/6/7/8/9/10",
        ] {
            assert_eq!(SkiersPath::parse(path), Err(PathError::Unknown), "{path}");
        }
        for day in ["0", "367", "2147483648", "99999999999999999999"] {
            let path = format!("56/seasons/2022/days/{day}/skiers/7");
            assert_eq!(SkiersPath::parse(&path), Err(PathError::Day), "{path}");
        }
        for day in ["1", "366"] {
            assert!(SkiersPath::parse(&format!("56/seasons/2022/days/{day}/skiers/7")).is_ok());
        }
        assert_eq!(
            SkiersPath::parse("2147483648/vertical"),
            Err(PathError::Number(Refused::invalid("skierID", "2147483648")))
        );
        assert!(SkiersPath::parse("2147483647/vertical").is_ok());
    }
}
