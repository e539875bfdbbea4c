//! The id of another entity, in a command.

use crate::limits;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The id of another entity, as a field of a command: a text of 1 to 256 bytes. A client that sends
/// anything else gets 400 with the field's name, before the command is executed.
///
/// ```
/// use throng_core::model::TextId;
///
/// assert_eq!(serde_json::from_str::<TextId>(r#""ann""#).unwrap().as_str(), "ann");
/// assert!(serde_json::from_str::<TextId>(r#""""#).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TextId(String);

/// A text that is empty or too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has 1 to {} bytes, this one has {}", limits::ID_BYTES_MAX, .0)]
pub struct InvalidTextId(usize);

impl TextId {
    /// The id as it stands in addresses and routes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TextId {
    type Error = InvalidTextId;

    fn try_from(text: String) -> Result<Self, InvalidTextId> {
        match limits::is_id(&text) {
            true => Ok(Self(text)),
            false => Err(InvalidTextId(text.len())),
        }
    }
}

impl FromStr for TextId {
    type Err = InvalidTextId;

    fn from_str(text: &str) -> Result<Self, InvalidTextId> {
        text.to_owned().try_into()
    }
}

impl From<TextId> for String {
    fn from(id: TextId) -> Self {
        id.0
    }
}

impl fmt::Display for TextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for TextId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TextId".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1, "maxLength": limits::ID_BYTES_MAX })
    }
}
