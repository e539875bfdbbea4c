//! A show's id.

use std::{fmt, str::FromStr};
use uuid::Uuid;

/// A show's id: a UUID, written as 36 characters in lower case. That text is the entity's id, so other spellings of the same UUID are refused here.
/// The service's own routes accept capitals, too ([`ShowId::of_any_case`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShowId(Uuid);

/// The error for a text that is no show's id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not the id of a show: {expected}, such as 0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3b7, was expected")]
pub struct NotAShowId {
    found: String,
    expected: &'static str,
}

impl NotAShowId {
    fn new(text: &str, expected: &'static str) -> Self {
        let found = text.chars().take(64).collect();
        Self { found, expected }
    }
}

/// The number of characters of a UUID with its hyphens.
const TEXT_BYTES: usize = 36;

impl ShowId {
    /// Parses an id in lower or upper case.
    ///
    /// # Errors
    ///
    /// `NotAShowId`: the text is no UUID of 36 characters.
    pub fn of_any_case(text: &str) -> Result<Self, NotAShowId> {
        if text.len() == TEXT_BYTES
            && let Ok(uuid) = Uuid::try_parse(text)
        {
            return Ok(Self(uuid));
        }
        Err(NotAShowId::new(text, "a UUID of 36 characters"))
    }
}

impl From<Uuid> for ShowId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for ShowId {
    type Err = NotAShowId;

    fn from_str(text: &str) -> Result<Self, NotAShowId> {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(NotAShowId::new(text, "a UUID in lower case"));
        }
        Self::of_any_case(text)
    }
}

impl fmt::Display for ShowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.hyphenated().encode_lower(&mut [0; TEXT_BYTES]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3b7";

    #[test]
    fn an_id_is_its_text_in_lower_case() {
        assert_eq!(ID.parse::<ShowId>().unwrap().to_string(), ID);
        let capitals = ShowId::of_any_case(&ID.to_uppercase()).unwrap();
        assert_eq!(capitals.to_string(), ID);
    }

    #[test]
    fn another_writing_of_the_same_uuid_is_no_address() {
        for text in [
            ID.to_uppercase(),
            ID.replace('-', ""),
            format!("{{{ID}}}"),
            format!("urn:uuid:{ID}"),
            format!(" {}", &ID[1..]),
        ] {
            assert!(text.parse::<ShowId>().is_err(), "{text}");
        }
        let told = |told: Result<ShowId, NotAShowId>| told.unwrap_err().to_string();
        assert!(told(ID.to_uppercase().parse()).contains("in lower case"));
        assert!(!told(ShowId::of_any_case("7")).contains("lower case"));
        for text in ["", "7", "0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3bz", &"é".repeat(18)] {
            assert!(ShowId::of_any_case(text).is_err(), "{text}");
        }
    }
}
