//! Keys whose bytes sort like their values.

use crate::model::Timestamp;
use std::cmp::Reverse;

/// A key of a typed row. Its bytes sort like its values, so that a range of keys is a range of rows. [`Reverse`] puts the largest
/// first; a tuple holds several parts, the most significant first.
pub trait OrderedKey: Sized + Send + 'static {
    /// Appends its bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads a key from the beginning of the bytes; `None` if there is none.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// The end of a text. A zero within the text is written as zero and 255.
const END: [u8; 2] = [0, 0];

impl OrderedKey for String {
    fn encode(&self, out: &mut Vec<u8>) {
        for byte in self.bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(255);
            }
        }
        out.extend_from_slice(&END);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut text = Vec::new();
        loop {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            if *byte == 0 {
                let (escape, rest) = bytes.split_first()?;
                *bytes = rest;
                if *escape == 0 {
                    return Self::from_utf8(text).ok();
                }
            }
            text.push(*byte);
        }
    }
}

macro_rules! unsigned {
    ($($number:ty),*) => { $(
        impl OrderedKey for $number {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                let (number, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_be_bytes(*number))
            }
        }
    )* };
}

/// The sign bit is inverted, so that negative numbers come first.
macro_rules! signed {
    ($($number:ty),*) => { $(
        impl OrderedKey for $number {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(self ^ Self::MIN).to_be_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                let (number, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_be_bytes(*number) ^ Self::MIN)
            }
        }
    )* };
}

unsigned!(u8, u16, u32, u64, u128);
signed!(i8, i16, i32, i64, i128);

impl OrderedKey for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        u8::from(*self).encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(u8::decode(bytes)? != 0)
    }
}

impl OrderedKey for Timestamp {
    fn encode(&self, out: &mut Vec<u8>) {
        self.micros.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let micros = i64::decode(bytes)?;
        Some(Self { micros })
    }
}

impl OrderedKey for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl<T: OrderedKey> OrderedKey for Reverse<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        let from = out.len();
        self.0.encode(out);
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let turned: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        let mut rest = turned.as_slice();
        let key = T::decode(&mut rest)?;
        *bytes = &bytes[turned.len() - rest.len()..];
        Some(Self(key))
    }
}

macro_rules! tuple {
    ($($part:ident $at:tt),*) => {
        impl<$($part: OrderedKey),*> OrderedKey for ($($part,)*) {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$at.encode(out);)*
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode(bytes)?,)*))
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn in_order<K: OrderedKey + Debug + PartialEq>(keys: Vec<K>) {
        let encoded: Vec<Vec<u8>> = keys
            .iter()
            .map(|key| {
                let mut bytes = Vec::new();
                key.encode(&mut bytes);
                bytes
            })
            .collect();
        assert!(encoded.is_sorted_by(|one, next| one < next), "{keys:?} as {encoded:?}");
        for (key, mut bytes) in keys.iter().zip(encoded) {
            bytes.extend_from_slice(b"more");
            let mut rest = bytes.as_slice();
            assert_eq!(K::decode(&mut rest).as_ref(), Some(key));
            assert_eq!(rest, b"more");
        }
    }

    #[test]
    fn key_bytes_keep_the_order_of_values_and_read_back() {
        let text = |text: &str| text.to_owned();
        in_order(vec![
            text(""),
            text("\0"),
            text("\0a"),
            text("a"),
            text("a\0"),
            text("ab"),
            text("b"),
        ]);
        in_order(vec![0_u64, 1, 255, 256, u64::MAX]);
        in_order(vec![i32::MIN, -2, -1, 0, 1, i32::MAX]);
        in_order(vec![false, true]);
        in_order(vec![Reverse(9_u32), Reverse(1), Reverse(0)]);
        in_order(vec![
            Reverse(text("b")),
            Reverse(text("ab")),
            Reverse(text("a")),
            Reverse(text("")),
        ]);
        in_order(vec![
            (Reverse(7_u64), text("a")),
            (Reverse(7), text("b")),
            (Reverse(6), text("a")),
        ]);
        in_order(vec![Timestamp { micros: -1 }, Timestamp { micros: 1 }]);
    }

    #[test]
    fn cut_bytes_are_no_key() {
        assert_eq!(u64::decode(&mut &[1, 2][..]), None);
        assert_eq!(String::decode(&mut &b"abc"[..]), None);
        assert_eq!(Reverse::<String>::decode(&mut &[][..]), None);
    }
}
