//! The numbers of skiers, resorts, seasons and lifts.

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Unexpected, Visitor},
};
use std::{fmt, str::FromStr};

/// The largest number of a skier, a resort or a season. The interface has signed integers of 32 bits.
pub const NUMBER_MAX: u32 = i32::MAX as u32;

/// The number of a skier or a resort, written without leading zeros. That text is the entity's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Number(pub u32);

/// The error for a text that is no such number.
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

/// Parses a number in the forms of the class project: `217`, `"217"` or `217.0`.
pub(crate) fn lenient<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    from.deserialize_any(Lenient)
}

struct Lenient;

impl Visitor<'_> for Lenient {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 32 bits, also as a text")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u32, E> {
        let is_whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        match is_whole {
            true => Ok(number as u32),
            false => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u32, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_may_be_a_text_or_have_a_fraction_of_zero() {
        let read = |text: &str| lenient(&mut serde_json::Deserializer::from_str(text));
        for text in ["217", "\"217\"", "217.0", "2.17e2"] {
            assert_eq!(read(text).ok(), Some(217), "{text}");
        }
        for text in [
            "1.5",
            "-1",
            "\"\"",
            "\"1.0\"",
            "\"ten\"",
            "4294967296",
            "1e300",
            "null",
            "[]",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

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
