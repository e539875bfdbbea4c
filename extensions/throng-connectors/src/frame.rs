//! A message that carries many: the micro-batch as a broker's frame.
//!
//! Its content type is [`CONTENT_TYPE`], its body a JSON array with one element for each message it stands for, in order.

use crate::{EntityCommand, Message};
use serde_json::value::RawValue;

/// The content type of a frame.
pub const CONTENT_TYPE: &str = "application/vnd.throng.batch+json";

/// Encodes several messages, each a JSON text, as one.
#[must_use]
pub fn encode<T: AsRef<[u8]>>(messages: &[T]) -> Vec<u8> {
    let bytes: usize = messages.iter().map(|message| message.as_ref().len() + 1).sum();
    let mut frame = Vec::with_capacity(bytes + 1);
    frame.push(b'[');
    for (number, message) in messages.iter().enumerate() {
        if number > 0 {
            frame.push(b',');
        }
        frame.extend_from_slice(message.as_ref());
    }
    frame.push(b']');
    frame
}

/// The commands of a message: its own, or one for each part of the frame that it is. A part that cannot be read takes none of the others with it.
///
/// # Errors
/// The message is no frame and cannot be read, or is a frame and no JSON array.
pub fn commands(
    message: &Message,
    read: impl Fn(&[u8]) -> Result<EntityCommand, String>,
) -> Result<Vec<EntityCommand>, String> {
    let content_type = message.content_type.as_deref();
    if !is_frame(content_type) {
        return read(&message.body).map(|command| vec![command]);
    }
    let parts = decode(content_type, &message.body)?;
    let command = |part| read(part).unwrap_or_else(EntityCommand::unreadable);
    Ok(parts.into_iter().map(command).collect())
}

fn is_frame(content_type: Option<&str>) -> bool {
    // What may follow says nothing about it: `; charset=utf-8`.
    let media_type = content_type.and_then(|text| text.split(';').next()).map(str::trim);
    media_type == Some(CONTENT_TYPE)
}

/// The messages a body stands for: those of a frame, or the one that it is.
///
/// # Errors
/// It says that it is a frame, and is no JSON array.
pub fn decode<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<Vec<&'a [u8]>, String> {
    if !is_frame(content_type) {
        return Ok(vec![body]);
    }
    let messages: Vec<&RawValue> =
        serde_json::from_slice(body).map_err(|error| format!("the frame is no JSON array: {error}"))?;
    Ok(messages.into_iter().map(|message| message.get().as_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_malformed_frame_is_refused() {
        assert_eq!(
            decode(None, b"[1]").unwrap(),
            [b"[1]"],
            "one message, whatever is in it"
        );
        assert!(decode(Some(CONTENT_TYPE), b"[1,").is_err());
        assert!(decode(Some(CONTENT_TYPE), b"{}").is_err());
        let with_parameter = format!("{CONTENT_TYPE}; charset=utf-8");
        assert_eq!(decode(Some(&with_parameter), b"[1,2]").unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn a_frame_holds_its_messages(texts in prop::collection::vec(".*", 0..20)) {
            let messages: Vec<Vec<u8>> = texts.iter().map(|text| serde_json::to_vec(text).unwrap()).collect();
            let frame = encode(&messages);
            let decoded = decode(Some(CONTENT_TYPE), &frame).unwrap();
            prop_assert_eq!(decoded, messages.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
}
