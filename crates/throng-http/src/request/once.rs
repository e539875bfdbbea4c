use super::headers;
use crate::{Caller, Problem, limits::KEY_BYTES_MAX};
use axum::extract::FromRequestParts;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::request::Parts;
use ring::digest::{Context, SHA256};
use throng::{Handle, model::Entity};

/// A key that belongs to somebody begins with this.
const OWNED: char = '@';
/// Characters that stand for the owner.
const OWNER_LENGTH: usize = 16;

/// The key as its caller's own: the same key of another caller is another one, so that nobody learns or takes the keys of others.
pub(crate) fn own_key(caller: Option<&Caller>, key: String) -> String {
    let name = match caller {
        None if !key.starts_with(OWNED) => return key,
        None => "",
        Some(caller) => caller.name(),
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
        true => format!("{OWNED}{}", hash([name, &key])),
        false => owned,
    }
}

/// The key as its caller has written it.
pub(crate) fn written_key(own: &str) -> &str {
    let rest = own
        .strip_prefix(OWNED)
        .and_then(|rest| rest.split_at_checked(OWNER_LENGTH));
    rest.and_then(|(_, key)| key.strip_prefix(':')).unwrap_or(own)
}

/// An app's route takes the request's `Idempotency-Key` by this extractor: with one, its command takes effect once.
///
/// The key is read as the gateway's own routes read it: one of 1 to 255 visible ASCII characters, quoted or not. Any other is
/// refused with 400 (`malformed`). It is its caller's own, by these routes, too: the same key of another caller is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once(Option<String>);

impl Once {
    /// The entity, asked under the request's key if it has one.
    #[must_use]
    pub fn of<E: Entity>(self, entity: Handle<E>) -> Handle<E> {
        match self.0 {
            Some(key) => entity.once(key),
            None => entity,
        }
    }

    /// The request's key, if it has one, as its caller's own: not as it was written.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Once {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let key = headers::idempotency_key(&parts.headers).map_err(|problem| *problem)?;
        let caller = parts.extensions.get();
        Ok(Self(key.map(|key| own_key(caller, key))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Means;

    #[test]
    fn key_is_its_callers_own_whatever_others_write() {
        let of = |name: &str, key: &str| {
            let caller = (!name.is_empty()).then(|| Caller::new(name, Means::Token, serde_json::Map::new()));
            own_key(caller.as_ref(), key.to_owned())
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
