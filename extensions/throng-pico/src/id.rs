//! The identity of a pico, and its channels.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// A pico's id: 16 hexadecimal digits. It finds the pico, but grants no access.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PicoId(pub(crate) u64);

/// The unguessable part of a channel: 32 hexadecimal digits. Its alignment is that of the fields beside it. So no padding is stored, which counts
/// for a million picos with several channels each.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))]
pub struct Secret(pub(crate) u128);

/// An event channel identifier: the pico's id and the channel's secret. Its holder may do what the channel's policies allow. The id in it finds the
/// pico without a directory.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eci {
    /// The pico that it reaches. Its id also determines the shard.
    pub pico: PicoId,
    /// The secret that identifies the channel within the pico. It cannot be guessed.
    pub secret: Secret,
}

/// The error for a text that is no id or no ECI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {digits} digits of 0-9 and a-f")]
pub struct NoId {
    what: &'static str,
    digits: usize,
}

/// True if a text may contain a channel's secret: it has that many hexadecimal digits in a row.
pub(crate) fn holds_secret(text: &str) -> bool {
    let mut runs = text.split(|letter: char| !letter.is_ascii_hexdigit());
    runs.any(|run| run.len() >= Secret::DIGITS)
}

impl PicoId {
    /// The pico that exists from the first start on.
    pub const ROOT: Self = Self(0);
    const DIGITS: usize = 16;
}

impl Secret {
    const DIGITS: usize = 32;
}

impl Eci {
    const DIGITS: usize = PicoId::DIGITS + Secret::DIGITS;

    /// Returns the channel of a pico with this secret.
    #[must_use]
    pub const fn new(pico: PicoId, secret: Secret) -> Self {
        Self { pico, secret }
    }
}

/// Writes a number with a fixed count of digits. An event writes a dozen of them, and the padding of `{:x}` takes several times as long.
fn write_digits<const DIGITS: usize>(mut number: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::from(number as u8 & 0xf)];
        number >>= 4;
    }
    f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
}

impl fmt::Display for PicoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits::<{ Self::DIGITS }>(self.0.into(), f)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits::<{ Self::DIGITS }>(self.0, f)
    }
}

impl fmt::Display for Eci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.pico, self.secret)
    }
}

impl fmt::Debug for PicoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Omits the secret, because logs have other readers.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl fmt::Debug for Eci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.pico)
    }
}

/// Returns the text if it is exactly this many lower-case digits. So no id has two spellings.
fn digits(text: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_digit)).then_some(text)
}

impl FromStr for PicoId {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        let number = digits(text, Self::DIGITS).and_then(|text| u64::from_str_radix(text, 16).ok());
        number.map(Self).ok_or(NoId {
            what: "a pico's id",
            digits: Self::DIGITS,
        })
    }
}

impl FromStr for Secret {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        let number = digits(text, Self::DIGITS).and_then(|text| u128::from_str_radix(text, 16).ok());
        number.map(Self).ok_or(NoId {
            what: "a channel's secret",
            digits: Self::DIGITS,
        })
    }
}

impl FromStr for Eci {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        let parts = digits(text, Self::DIGITS).map(|text| text.split_at(PicoId::DIGITS));
        let eci = parts.and_then(|(pico, secret)| {
            Some(Self {
                pico: pico.parse().ok()?,
                secret: secret.parse().ok()?,
            })
        });
        eci.ok_or(NoId {
            what: "an ECI",
            digits: Self::DIGITS,
        })
    }
}

/// Serializes these types as text.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]+$" })
            }
        }
    )*};
}

as_text!(PicoId, Secret, Eci);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eci_is_read_as_it_is_written() {
        let eci = Eci::new(PicoId(0x2a), Secret(u128::MAX - 1));
        let text = eci.to_string();
        assert_eq!(text, "000000000000002afffffffffffffffffffffffffffffffe");
        assert_eq!(text.parse(), Ok(eci));
        assert_eq!(
            serde_json::from_str::<Eci>(&serde_json::to_string(&eci).unwrap()).unwrap(),
            eci
        );
    }

    #[test]
    fn ids_and_channels_take_the_room_of_their_content() {
        assert_eq!((size_of::<Eci>(), size_of::<Option<Eci>>()), (24, 32));
        assert_eq!(size_of::<crate::channel::Channel>(), 40);
    }

    #[test]
    fn no_two_texts_are_one_eci() {
        let text = Eci::default().to_string();
        for other in [
            text.to_uppercase().replace('0', "A"),
            format!("+{}", &text[1..]),
            text[1..].into(),
            format!("{text}0"),
        ] {
            assert!(other.parse::<Eci>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_logged_channel_id_opens_no_channel() {
        let eci = Eci::new(PicoId(1), Secret(0xfeed));
        assert!(!format!("{eci:?}").contains("feed"));
    }
}
