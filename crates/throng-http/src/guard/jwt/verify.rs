//! Signatures, by the cryptography that is in the tree already.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::ErrorKind,
    signature::{Error, Verifier},
};
use ring::{hmac, signature as ring_signature};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| {
        Ok(Box::new(Ring {
            algorithm: *algorithm,
            key: key.clone(),
        }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs this verifier, unless the process has another one.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        match self.key.kind() {
            DecodingKeyKind::SecretOrDer(key) if self.key.family() == self.algorithm.family() => {
                verify(self.algorithm, key, message, signature)
            }
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let algorithm = rsa(self.algorithm).ok_or_else(Error::new)?;
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(algorithm, message, signature).map_err(|_| Error::new())
            }
            DecodingKeyKind::SecretOrDer(_) => Err(Error::new()),
        }
    }
}

fn verify(algorithm: Algorithm, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Error> {
    let by: &dyn ring_signature::VerificationAlgorithm = match algorithm {
        Algorithm::HS256 => return symmetric(hmac::HMAC_SHA256, key, message, signature),
        Algorithm::HS384 => return symmetric(hmac::HMAC_SHA384, key, message, signature),
        Algorithm::HS512 => return symmetric(hmac::HMAC_SHA512, key, message, signature),
        Algorithm::ES256 => &ring_signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ring_signature::ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &ring_signature::ED25519,
        _ => return Err(Error::new()),
    };
    let key = ring_signature::UnparsedPublicKey::new(by, key);
    key.verify(message, signature).map_err(|_| Error::new())
}

fn symmetric(algorithm: hmac::Algorithm, key: &[u8], message: &[u8], tag: &[u8]) -> Result<(), Error> {
    hmac::verify(&hmac::Key::new(algorithm, key), message, tag).map_err(|_| Error::new())
}

fn rsa(algorithm: Algorithm) -> Option<&'static ring_signature::RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}
