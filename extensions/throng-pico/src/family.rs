//! The channels between a parent and its children.
//!
//! A parent has such a channel for each child, but stores none of them. Their secrets are derived from its key and the child's id, so a secret alone
//! says which child it belongs to. Only the other pico of the pair can use the channel. So the sender is what grants access, and the secret only
//! names the channel.

use crate::id::{Eci, PicoId, Secret};
use ring::{digest, hmac};

/// The secrets from which a parent derives the channels to and from its children. No other pico knows them.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pico: PicoId,
    key: Secret,
}

impl Family {
    pub(crate) fn of(pico: PicoId, key: Secret) -> Self {
        Self { pico, key }
    }

    /// Returns the ECI by which the parent reaches the child with this number.
    pub(crate) fn down(self, child: PicoId, number: u32) -> Eci {
        let mac = self.mac(b'd', child, number) >> 32;
        Eci::new(child, Secret((u128::from(number) << 96) | mac))
    }

    /// Returns the number of the child that this ECI reaches, if it is one of ours.
    pub(crate) fn number(self, eci: Eci) -> Option<u32> {
        let number = u32::try_from(eci.secret.0 >> 96).ok()?;
        (self.down(eci.pico, number) == eci).then_some(number)
    }

    /// Returns the ECI by which this child reaches its parent.
    pub(crate) fn up(self, child: PicoId) -> Eci {
        let mac = self.mac(b'u', child, 0) >> 64;
        Eci::new(self.pico, Secret((u128::from(child.0) << 64) | mac))
    }

    /// Returns the secret of the channel over which other picos are introduced.
    pub(crate) fn well_known(self) -> Secret {
        Secret(self.mac(b'w', self.pico, 0))
    }

    /// Returns the child whose channel to its parent has this secret, if there is one.
    pub(crate) fn child(self, secret: Secret) -> Option<PicoId> {
        let child = PicoId(u64::try_from(secret.0 >> 64).ok()?);
        (self.up(child).secret == secret).then_some(child)
    }

    fn mac(self, way: u8, child: PicoId, number: u32) -> u128 {
        let mut text = [0; 13];
        text[0] = way;
        text[1..9].copy_from_slice(&child.0.to_be_bytes());
        text[9..].copy_from_slice(&number.to_be_bytes());
        first(self.key, &text)
    }
}

/// Returns a pico's channel for the console. All picos of an engine can derive each other's. It stays the same when the pico moves.
pub(crate) fn ui(realm: Secret, pico: PicoId) -> Eci {
    let mut text = [0; 9];
    text[0] = b'i';
    text[1..].copy_from_slice(&pico.0.to_be_bytes());
    Eci::new(pico, Secret(first(realm, &text)))
}

/// Returns a number that cannot be guessed without the key.
pub(crate) fn first(key: Secret, text: &[u8]) -> u128 {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key.0.to_be_bytes());
    number(hmac::sign(&key, text).as_ref())
}

/// Returns the number in the first 16 bytes.
fn number(bytes: &[u8]) -> u128 {
    bytes.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes))
}

/// The fresh numbers of one command, derived from its seed: SHA-256 over the seed and a counter, both of fixed length. So a known number tells
/// nothing about the others.
pub(crate) struct Fresh {
    entropy: Secret,
    digests: u64,
    /// The unused second half of the last digest.
    half: Option<u128>,
}

impl Fresh {
    pub(crate) fn of(entropy: u128) -> Self {
        Self {
            entropy: Secret(entropy),
            digests: 0,
            half: None,
        }
    }

    pub(crate) fn number(&mut self) -> u128 {
        if let Some(half) = self.half.take() {
            return half;
        }
        self.digests += 1;
        let mut text = [0; 24];
        text[..16].copy_from_slice(&self.entropy.0.to_be_bytes());
        text[16..].copy_from_slice(&self.digests.to_be_bytes());
        let digest = digest::digest(&digest::SHA256, &text);
        let (first, second) = digest.as_ref().split_at(16);
        self.half = Some(number(second));
        number(first)
    }

    pub(crate) fn secret(&mut self) -> Secret {
        Secret(self.number())
    }

    pub(crate) fn pico(&mut self) -> PicoId {
        // 0 is the root's id.
        PicoId((self.number() as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_knows_the_channels_it_made_and_no_others() {
        let (ours, theirs) = (Family::of(PicoId(7), Secret(1)), Family::of(PicoId(7), Secret(2)));
        let down = ours.down(PicoId(9), 70_000);
        assert_eq!(
            (down.pico, ours.number(down), theirs.number(down)),
            (PicoId(9), Some(70_000), None)
        );
        let up = ours.up(PicoId(9));
        assert_eq!(
            (up.pico, ours.child(up.secret), theirs.child(up.secret)),
            (PicoId(7), Some(PicoId(9)), None)
        );
        assert_eq!(ours.child(down.secret), None);
        assert_eq!(ours.number(up), None);
    }

    #[test]
    fn one_command_makes_many_numbers_and_another_makes_others() {
        let (mut one, mut other) = (Fresh::of(1), Fresh::of(2));
        let made = [one.number(), one.number(), one.number(), other.number(), other.number()];
        let different: std::collections::HashSet<_> = made.iter().collect();
        assert_eq!(different.len(), made.len());
        assert_eq!(Fresh::of(1).number(), made[0]);
    }
}
