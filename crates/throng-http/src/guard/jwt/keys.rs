//! An issuer's keys.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk},
};
use serde::Deserialize;
use serde_json::Value;
use throng::journal::byte_order_mark;

/// Keys of a set at most.
const KEYS_MAX: usize = 1_000;

/// The keys of a set that tokens can be verified with.
#[derive(Default)]
pub(super) struct Keys(Vec<Key>);

struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl Keys {
    /// Reads a set of keys. Keys for other uses, or of unknown kinds, are ignored.
    pub(super) fn parse(text: &[u8], takes_symmetric: bool) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(text).map_err(|why| {
            let why = byte_order_mark(text).map_or_else(|| why.to_string(), str::to_owned);
            format!("this is no set of JSON web keys: {why}")
        })?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!(
                "the set has {} keys, at most {KEYS_MAX} are taken",
                set.keys.len()
            ));
        }
        let keys = set.keys.into_iter();
        let keys: Result<Vec<Option<Key>>, String> = keys.map(|key| Key::parse(key, takes_symmetric)).collect();
        let keys: Vec<Key> = keys?.into_iter().flatten().collect();
        if keys.is_empty() {
            return Err("none of its keys can verify a token".into());
        }
        Ok(Self(keys))
    }

    /// Returns the keys that may have signed a token.
    pub(super) fn for_token(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<&DecodingKey> {
        let fits = |key: &&Key| (id.is_none() || key.id.as_deref() == id) && key.algorithms.contains(&algorithm);
        self.0.iter().filter(fits).map(|key| &key.key).collect()
    }
}

impl Key {
    /// Reads a key; `None` if it is for other uses, or of an unknown kind. A symmetric key that is too short is an error.
    fn parse(key: Value, takes_symmetric: bool) -> Result<Option<Self>, String> {
        if key.get("use").is_some_and(|of| of != "sig") {
            return Ok(None);
        }
        let Ok(key) = serde_json::from_value::<Jwk>(key) else {
            return Ok(None);
        };
        let Some(algorithms) = algorithms(&key, takes_symmetric) else {
            return Ok(None);
        };
        if let AlgorithmParameters::OctetKey(_) = &key.algorithm
            && algorithms.is_empty()
        {
            let id = key.common.key_id.unwrap_or_default();
            return Err(format!(
                "the symmetric key {id:?} is too short: HS256 takes one of 32 bytes or more, HS384 of 48, HS512 of 64"
            ));
        }
        let decoding = DecodingKey::from_jwk(&key).ok();
        Ok(decoding.map(|decoding| Self {
            algorithms,
            key: decoding,
            id: key.common.key_id,
        }))
    }
}

/// Returns the algorithms whose signatures a key verifies; `None` if its kind or algorithm is unknown.
fn algorithms(key: &Jwk, takes_symmetric: bool) -> Option<Vec<Algorithm>> {
    let of_kind = match &key.algorithm {
        AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(parameters) if parameters.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
        AlgorithmParameters::OctetKey(_) if takes_symmetric => AlgorithmFamily::Hmac.algorithms().to_vec(),
        _ => return None,
    };
    let said = key
        .common
        .key_algorithm
        .map(|said| said.to_string().parse::<Algorithm>());
    let mut algorithms = match said {
        None => of_kind,
        Some(Ok(said)) if of_kind.contains(&said) => vec![said],
        Some(_) => return None,
    };
    if let AlgorithmParameters::OctetKey(secret) = &key.algorithm {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&secret.value).ok()?.len();
        algorithms.retain(|algorithm| bytes >= hash_bytes(*algorithm));
    }
    Some(algorithms)
}

/// Returns the bytes of a hash, which are the least bytes of a key for it (RFC 7518 §3.2).
fn hash_bytes(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 32,
    }
}
