//! A message that carries many: the micro-batch as a broker's frame.
//!
//! Its content type is [`CONTENT_TYPE`], its body a JSON array with one element for each message it stands for, in order.

use serde_json::value::RawValue;

/// The content type of a frame.
pub const CONTENT_TYPE: &str = "application/vnd.throng.batch+json";

/// One message of several, each a JSON text.
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

/// The messages a body stands for: those of a frame, or the one that it is.
///
/// # Errors
/// It says that it is a frame, and is no JSON array.
pub fn decode<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<Vec<&'a [u8]>, String> {
    // What may follow says nothing about it: `; charset=utf-8`.
    let media_type = content_type.and_then(|text| text.split(';').next()).map(str::trim);
    if media_type != Some(CONTENT_TYPE) {
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
    fn what_says_that_it_is_a_frame_and_is_none_is_refused() {
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
        fn a_frame_holds_what_was_put_into_it(texts in prop::collection::vec(".*", 0..20)) {
            let messages: Vec<Vec<u8>> = texts.iter().map(|text| serde_json::to_vec(text).unwrap()).collect();
            let frame = encode(&messages);
            let decoded = decode(Some(CONTENT_TYPE), &frame).unwrap();
            prop_assert_eq!(decoded, messages.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
}
