//! Retention of a kind's history.

use std::{fmt, str::FromStr, time::Duration};

/// The retention of a kind's events, and of its ended entities. The state of a living entity always remains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All events, for good.
    #[default]
    Forever,
    /// The events of this time. An entity that ended longer ago is removed.
    Age(Duration),
    /// The last events of each entity, this many. An entity that has ended is removed.
    Events(u64),
}

/// The forms that [`Keep::from_str`] takes.
const EXPECTED: &str = "write `forever`, a time as `30d`, `12h`, `90m` or `45s`, or a number of events as `1000`";

/// Parses `forever`, `30d` (also `h`, `m`, `s`), or `1000` for the last thousand events of each entity.
impl FromStr for Keep {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| EXPECTED)?;
        let seconds = match unit {
            "" => return Ok(Self::Events(number)),
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(EXPECTED),
        };
        let seconds = number.checked_mul(seconds).ok_or(EXPECTED)?;
        Ok(Self::Age(Duration::from_secs(seconds)))
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => write!(f, "forever"),
            Self::Age(age) => {
                let seconds = age.as_secs();
                let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
                let unit = units.into_iter().find(|(of, _)| seconds > 0 && seconds % of == 0);
                let (of, unit) = unit.unwrap_or((1, "s"));
                write!(f, "{}{unit}", seconds / of)
            }
            Self::Events(count) => write!(f, "{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["forever", "30d", "12h", "90m", "45s", "1000", "0"] {
            assert_eq!(text.parse::<Keep>().unwrap().to_string(), text);
        }
        assert_eq!("120m".parse(), Ok(Keep::Age(Duration::from_secs(7_200))));
        for wrong in [
            "",
            "d",
            "30 d",
            "-1",
            "1y",
            "99999999999999999999",
            "18446744073709551615d",
        ] {
            assert!(wrong.parse::<Keep>().is_err(), "{wrong}");
        }
    }
}
