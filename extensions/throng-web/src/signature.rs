//! The signatures of webhooks: HMAC-SHA256 over their time and body.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::hmac::{Context, HMAC_SHA256, Key, Tag};
use std::{fmt, str::FromStr};
use subtle::ConstantTimeEq as _;

/// The allowed lengths of a secret.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Prefix of a secret's text.
const PREFIX: &str = "whsec_";
/// The most signatures checked for a webhook. While a secret is being replaced, there are two.
const SIGNATURES_MAX: usize = 8;

/// A secret that a sender and a receiver of webhooks share: `whsec_` and the base64 of 24 to 64 random bytes.
#[derive(Clone)]
pub struct Secret(Key);

/// The text is not a secret. The error does not repeat the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a webhook secret is whsec_ and the base64 of 24 to 64 bytes, found {found}: copy it again, or make one of `openssl rand -base64 32`"
)]
pub struct InvalidSecret {
    found: String,
}

impl Secret {
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(Key::new(HMAC_SHA256, bytes))
    }

    fn tag(&self, signed: &[&[u8]]) -> Tag {
        let mut context = Context::with_key(&self.0);
        for (at, part) in signed.iter().enumerate() {
            if at > 0 {
                context.update(b".");
            }
            context.update(part);
        }
        context.sign()
    }

    /// Returns the value of the header `webhook-signature`.
    #[must_use]
    pub fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let tag = self.tag(&[id.as_bytes(), seconds.to_string().as_bytes(), body]);
        format!("v1,{}", BASE64_STANDARD.encode(tag))
    }
}

impl FromStr for Secret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let found = |found: String| InvalidSecret { found };
        let encoded = text
            .trim()
            .strip_prefix(PREFIX)
            .ok_or_else(|| found("a text without whsec_".into()))?;
        let bytes = BASE64_STANDARD
            .decode(encoded)
            .map_err(|_| found("a text that is no base64".into()))?;
        match BYTES.contains(&bytes.len()) {
            true => Ok(Self::of_bytes(&bytes)),
            false => Err(found(format!("{} bytes", bytes.len()))),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Tells whether a signature was made with one of the secrets, compared in constant time. The signed parts are joined by dots.
pub(crate) fn is_signed(secrets: &[Secret], signed: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
    let mut fits = subtle::Choice::from(0);
    for secret in secrets {
        let tag = secret.tag(signed);
        for signature in signatures {
            fits |= tag.as_ref().ct_eq(signature);
        }
    }
    fits.into()
}

/// Returns the signatures of the header `webhook-signature`: `v1,BASE64`, separated by spaces. Other versions are ignored.
pub(crate) fn standard(field: &str) -> Vec<Vec<u8>> {
    let signatures = field
        .split(' ')
        .take(SIGNATURES_MAX)
        .filter_map(|signature| signature.strip_prefix("v1,"));
    signatures
        .filter_map(|signature| BASE64_STANDARD.decode(signature).ok())
        .collect()
}

/// Returns the time and the signatures of the header `stripe-signature`: `t=SECONDS,v1=HEX`. Other versions are ignored.
pub(crate) fn stripe(field: &str) -> (Option<&str>, Vec<Vec<u8>>) {
    let parts = || {
        field
            .split(',')
            .take(SIGNATURES_MAX)
            .filter_map(|part| part.trim().split_once('='))
    };
    let time = parts().find(|(name, _)| *name == "t").map(|(_, seconds)| seconds);
    let signatures = parts()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, hex)| bytes_of(hex));
    (time, signatures.collect())
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::try_from(digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn reference_vector_of_standard_webhooks_holds() {
        let secret: Secret = SECRET.parse().unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn one_signature_of_one_secret_is_enough() {
        let other: Secret = "whsec_c2VjcmV0LW9mLWEtcm90YXRlZC1lbmRwb2ludA==".parse().unwrap();
        let secret: Secret = SECRET.parse().unwrap();
        let signed: [&[u8]; 3] = [b"a", b"1", b"{}"];
        let field = format!(
            "v2,AAAA v1,no-base64 {} {}",
            other.sign("b", 1, b"{}"),
            secret.sign("a", 1, b"{}")
        );
        let secrets = [other, secret];
        assert!(is_signed(&secrets, &signed, &standard(&field)));
        assert!(!is_signed(&secrets[..1], &signed, &standard(&field)));
        assert!(!is_signed(&secrets, &[b"a", b"1", b"[]"], &standard(&field)));
        assert!(!is_signed(&secrets, &signed, &standard("v1, v1,AAAA")));
        let many = format!(
            "{}{}",
            "v1,AAAA ".repeat(SIGNATURES_MAX),
            secrets[1].sign("a", 1, b"{}")
        );
        assert!(
            !is_signed(&secrets, &signed, &standard(&many)),
            "so many are not looked at"
        );
    }

    #[test]
    fn stripe_field_is_read_with_its_versions() {
        let (time, signatures) = stripe("t=12, v0=ff,v1=00ff,v1=0g,v1=abc");
        assert_eq!((time, signatures), (Some("12"), vec![vec![0, 0xff]]));
        assert_eq!(stripe("nonsense"), (None, Vec::new()));
    }

    #[test]
    fn text_that_is_no_secret_is_refused_unseen() {
        for (text, found) in [
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "without whsec_"),
            ("whsec_$$", "no base64"),
            ("whsec_MfKQ9r8GKYqr", "9 bytes"),
        ] {
            let why = text.parse::<Secret>().unwrap_err().to_string();
            assert!(why.contains(found) && !why.contains("MfKQ"), "{why}");
        }
        assert_eq!(format!("{:?}", SECRET.parse::<Secret>().unwrap()), "Secret");
    }
}
