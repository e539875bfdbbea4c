//! An issuer's keys.

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
    /// Reads a set; keys for other uses, or of kinds not known here, are passed over.
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
        let keys = set.keys.into_iter().filter_map(|key| Key::parse(key, takes_symmetric));
        let keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            return Err("none of its keys can verify a token".into());
        }
        Ok(Self(keys))
    }

    /// Those that may have signed a token.
    pub(super) fn for_token(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<&DecodingKey> {
        let fits = |key: &&Key| (id.is_none() || key.id.as_deref() == id) && key.algorithms.contains(&algorithm);
        self.0.iter().filter(fits).map(|key| &key.key).collect()
    }
}

impl Key {
    fn parse(key: Value, takes_symmetric: bool) -> Option<Self> {
        if key.get("use").is_some_and(|of| of != "sig") {
            return None;
        }
        let key: Jwk = serde_json::from_value(key).ok()?;
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
        let algorithms = match key
            .common
            .key_algorithm
            .map(|said| said.to_string().parse::<Algorithm>())
        {
            None => of_kind,
            Some(Ok(said)) if of_kind.contains(&said) => vec![said],
            Some(_) => return None,
        };
        Some(Self {
            algorithms,
            key: DecodingKey::from_jwk(&key).ok()?,
            id: key.common.key_id,
        })
    }
}
