//! The numbers skiers, resorts, seasons and lifts have.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The largest number of a skier, a resort or a season: the interface's integers have 32 bits and a sign.
pub const NUMBER_MAX: u32 = i32::MAX as u32;

/// The number of a skier or a resort, written without leading zeros: that text is its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Number(pub u32);

/// A text is no number of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number from 0 to {NUMBER_MAX}, written without leading zeros")]
pub struct NotANumber(pub(crate) String);

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        let number = text.parse().ok().filter(|number| is_plain && *number <= NUMBER_MAX);
        number
            .map(Self)
            .ok_or_else(|| NotANumber(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_writing() {
        for text in ["0", "7", "2147483647"] {
            assert_eq!(text.parse::<Number>().unwrap().to_string(), text);
        }
        for text in ["", "007", "+7", "-7", "2147483648", "4294967303", "7 ", "seven", "٧"] {
            assert!(text.parse::<Number>().is_err(), "{text}");
        }
    }
}
