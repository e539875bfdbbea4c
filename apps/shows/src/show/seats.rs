//! A show's seats, with one bit each.

use super::SEATS_MAX;
use serde::{Deserialize, Serialize};

/// Up to 100 seats, numbered from 0. A reserved seat is a set bit in `reserved`. In JSON that number is hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seats {
    count: u8,
    #[serde(with = "hexadecimal")]
    reserved: u128,
}

impl Seats {
    pub(super) fn new(count: u8) -> Self {
        assert!(u32::from(count) <= SEATS_MAX, "a show has at most {SEATS_MAX} seats");
        Self { count, reserved: 0 }
    }

    pub(super) fn count(&self) -> u8 {
        self.count
    }

    pub(super) fn available(&self) -> u32 {
        u32::from(self.count) - self.reserved.count_ones()
    }

    /// Returns true for a reserved seat; `None` for a seat that does not exist.
    pub(super) fn is_reserved(&self, seat: u8) -> Option<bool> {
        (seat < self.count).then(|| self.reserved >> seat & 1 == 1)
    }

    /// Sets the state of a seat. Returns true if the seat exists.
    pub(super) fn set(&mut self, seat: u8, is_reserved: bool) -> bool {
        if seat >= self.count {
            return false;
        }
        let bit = 1 << seat;
        self.reserved = if is_reserved {
            self.reserved | bit
        } else {
            self.reserved & !bit
        };
        true
    }
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::borrow::Cow;

    pub(super) fn serialize<S: Serializer>(bits: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{bits:x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn seats_are_a_set_of_numbers_below_their_count(
            count in 0..=100_u8,
            changes in proptest::collection::vec((0..120_u8, any::<bool>()), 0..200),
        ) {
            let mut seats = Seats::new(count);
            let mut expected = BTreeSet::new();
            for (seat, is_reserved) in changes {
                prop_assert_eq!(seats.set(seat, is_reserved), seat < count);
                match (seat < count, is_reserved) {
                    (true, true) => drop(expected.insert(seat)),
                    (true, false) => drop(expected.remove(&seat)),
                    _ => {}
                }
            }
            for seat in 0..=u8::MAX {
                prop_assert_eq!(seats.is_reserved(seat), (seat < count).then(|| expected.contains(&seat)));
            }
            prop_assert_eq!(seats.available() as usize, usize::from(count) - expected.len());
            let read: Seats = serde_json::from_str(&serde_json::to_string(&seats).unwrap()).unwrap();
            prop_assert_eq!(read, seats);
        }
    }

    #[test]
    #[should_panic(expected = "at most 100 seats")]
    fn there_are_at_most_100() {
        Seats::new(101);
    }
}
