//! Idempotency keys: checked as they come, and as their callers' own.

use crate::limits::KEY_BYTES_MAX;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::digest::{Context, SHA256};
use std::borrow::Cow;

/// A key that belongs to somebody begins with this.
const OWNED: char = '@';
/// The characters that stand for the owner.
const OWNER_LENGTH: usize = 16;

/// Returns a key as a client has written it, or the reason why it is none: of HTTP, of a WebSocket.
pub(crate) fn checked_key(written: &[u8]) -> Result<String, String> {
    let found = match written.len() {
        0 => "is empty".to_owned(),
        length if length > KEY_BYTES_MAX => format!("has {length} bytes"),
        _ => {
            let text = String::from_utf8_lossy(written);
            match text.char_indices().find(|(_, letter)| !letter.is_ascii_graphic()) {
                None => return Ok(text.into_owned()),
                Some((at, letter)) => format!("has {letter:?} at byte {at}"),
            }
        }
    };
    Err(format!(
        "{found}; expected one key of 1 to {KEY_BYTES_MAX} visible ASCII characters"
    ))
}

/// The key as its caller's own, by the name of that: the same key of another caller is another one, so that nobody learns or takes the keys of others.
pub(crate) fn own_key<'a>(caller: Option<&str>, key: Cow<'a, str>) -> Cow<'a, str> {
    let name = match caller {
        None if !key.starts_with(OWNED) => return key,
        None => "",
        Some(name) => name,
    };
    let hash = |parts: [&str; 2]| {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        BASE64_URL_SAFE_NO_PAD.encode(context.finish())
    };
    let owned = format!("{OWNED}{}:{key}", &hash([name, ""])[..OWNER_LENGTH]);
    match owned.len() > KEY_BYTES_MAX {
        true => format!("{OWNED}{}", hash([name, &key])).into(),
        false => owned.into(),
    }
}

/// Returns the key as its caller has written it.
pub(crate) fn written_key(own: &str) -> &str {
    let rest = own
        .strip_prefix(OWNED)
        .and_then(|rest| rest.split_at_checked(OWNER_LENGTH));
    rest.and_then(|(_, key)| key.strip_prefix(':')).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_1_to_255_visible_ascii_characters() {
        let longest = "~".repeat(KEY_BYTES_MAX);
        for key in ["!", "a\"b", &longest] {
            assert_eq!(checked_key(key.as_bytes()).as_deref(), Ok(key));
        }
        for (key, found) in [
            (
                &b""[..],
                "is empty; expected one key of 1 to 255 visible ASCII characters",
            ),
            (&[b'k'; 256], "has 256 bytes;"),
            (b"a b", "has ' ' at byte 1;"),
            (b"\tk", "has '\\t' at byte 0;"),
            (b"k\x7f", "has '\\u{7f}' at byte 1;"),
            ("kä".as_bytes(), "has 'ä' at byte 1;"),
            (b"k\xff", "has '\u{fffd}' at byte 1;"),
        ] {
            let why = checked_key(key).unwrap_err();
            assert!(why.starts_with(found), "{why}");
        }
    }

    #[test]
    fn key_is_its_callers_own_whatever_others_write() {
        let of = |name: &str, key: &str| {
            let caller = (!name.is_empty()).then_some(name);
            own_key(caller, key.into()).into_owned()
        };
        assert_eq!(of("", "k"), "k", "nobody's is as it was written");
        let long = "k".repeat(KEY_BYTES_MAX);
        for key in ["k", "@k", &long] {
            let keys = [of("ann", key), of("bob", key), of("", key)];
            assert!(keys.iter().all(|key| (1..=KEY_BYTES_MAX).contains(&key.len())));
            assert!(
                keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2],
                "{keys:?}"
            );
            // Nobody can take one of her keys by sending its qualified form.
            assert!(of("", &keys[0]) != keys[0] && of("bob", &keys[0]) != keys[0]);
            assert_eq!(of("ann", key), keys[0]);
        }
        assert_eq!(written_key(&of("ann", "@k")), "@k");
        assert_eq!(written_key("k"), "k");
    }
}
