//! The note of a request, as the journal has it: a text.

use super::Message;
use std::any::Any;

/// Writes a note: a `String` as it is, any other type as JSON.
pub(crate) fn write<N: Message>(note: &N) -> String {
    let text = (note as &dyn Any).downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| serde_json::to_string(note).expect("the note of a request can be written as JSON"))
}

/// Reads a note as [`write`] has written it. Programs before typed notes wrote any text: an empty one is read as `null`, one that is no
/// JSON of the type as a JSON string.
pub(crate) fn read<N: Message>(text: &str) -> Result<N, String> {
    let mut whole = Some(text.to_owned());
    let is_text = (&mut whole as &mut dyn Any).downcast_mut::<Option<N>>();
    if let Some(note) = is_text.and_then(Option::take) {
        return Ok(note);
    }
    let json = if text.is_empty() { "null" } else { text };
    serde_json::from_str(json).or_else(|why| {
        let whole = serde_json::Value::String(text.to_owned());
        serde_json::from_value(whole).map_err(|_| format!("the note {text:?}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "schemas")]
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(JsonSchema))]
    #[serde(rename_all = "snake_case")]
    enum Step {
        Hold,
        Pay { attempt: u32 },
    }

    #[test]
    fn text_is_recorded_as_it_is() {
        for text in ["", "7", "null", "\"x\"", "o-1:12"] {
            assert_eq!(write(&text.to_owned()), text);
            assert_eq!(read::<String>(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn typed_note_is_recorded_as_json() {
        assert_eq!(write(&Step::Pay { attempt: 2 }), r#"{"pay":{"attempt":2}}"#);
        for note in [Step::Hold, Step::Pay { attempt: 2 }] {
            assert_eq!(read(&write(&note)), Ok(note));
        }
        for note in [None, Some("null".to_owned()), Some(String::new())] {
            assert_eq!(read(&write(&note)), Ok(note));
        }
    }

    #[test]
    fn texts_of_earlier_programs_are_read_as_typed_notes() {
        assert_eq!(read::<u64>("7"), Ok(7));
        assert_eq!(read::<()>(""), Ok(()));
        assert_eq!(read::<Step>("hold"), Ok(Step::Hold));
        assert!(read::<u64>("o-1").unwrap_err().contains("the note \"o-1\""));
    }
}
