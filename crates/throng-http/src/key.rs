//! Idempotency keys as their callers' own.

use crate::limits::KEY_BYTES_MAX;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::digest::{Context, SHA256};
use std::borrow::Cow;

/// A key that belongs to somebody begins with this.
const OWNED: char = '@';
/// The characters that stand for the owner.
const OWNER_LENGTH: usize = 16;

/// Returns the key qualified by its caller's name. The same key of another caller is another one, so that nobody learns or uses the keys of
/// others.
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
            // Nobody takes a key of hers by writing what it becomes.
            assert!(of("", &keys[0]) != keys[0] && of("bob", &keys[0]) != keys[0]);
            assert_eq!(of("ann", key), keys[0]);
        }
        assert_eq!(written_key(&of("ann", "@k")), "@k");
        assert_eq!(written_key("k"), "k");
    }
}
