//! The catalogue of items: fictitious, but always the same.

use std::sync::LazyLock;

/// The number of items. They are numbered from 0.
pub const ITEMS: usize = 4_096;
/// The number of categories. They are numbered from 0.
pub const CATEGORIES: usize = 64;
/// The number of traits of an item, such as formal, colourful, durable. Each is from -1 to 1.
pub const TRAITS: usize = 8;
/// The number of categories related to one.
pub const RELATED: usize = 4;

const SEED: u64 = 0x7072_6566;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::make);

/// The items, in a layout for a computation over all of them.
pub struct Catalogue {
    pub(crate) categories: Box<[u8; ITEMS]>,
    pub(crate) traits: Box<[[f32; TRAITS]]>,
    /// The share of purchases of each item, from 0 to 1.
    pub(crate) popularity: Box<[f32]>,
    /// The rank of each item's price within its category, from 0 to 1.
    pub(crate) price: Box<[f32]>,
    pub(crate) related: [[u8; RELATED]; CATEGORIES],
}

impl Catalogue {
    /// Returns the only catalogue.
    #[must_use]
    pub fn get() -> &'static Self {
        &CATALOGUE
    }

    /// Returns an item's category.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    #[must_use]
    pub fn category(&self, item: u32) -> u8 {
        self.categories[item as usize]
    }

    fn make() -> Self {
        let mut random = fastrand::Rng::with_seed(SEED);
        let category = |random: &mut fastrand::Rng| random.u8(..u8::try_from(CATEGORIES).unwrap_or(u8::MAX));
        let mut categories = Box::new([0; ITEMS]);
        categories.fill_with(|| category(&mut random));
        let mut related = [[0; RELATED]; CATEGORIES];
        related.as_flattened_mut().fill_with(|| category(&mut random));
        let traits = (0..ITEMS).map(|_| std::array::from_fn(|_| random.f32() * 2.0 - 1.0));
        Self {
            categories,
            related,
            traits: traits.collect(),
            // Few items are popular; most are almost unknown.
            popularity: std::iter::repeat_with(|| random.f32().powi(4)).take(ITEMS).collect(),
            price: std::iter::repeat_with(|| random.f32()).take(ITEMS).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_always_the_same_and_fills_every_category() {
        let (one, other) = (Catalogue::make(), Catalogue::make());
        assert_eq!(one.categories, other.categories);
        assert_eq!(one.traits, other.traits);
        for category in 0..CATEGORIES {
            assert!(
                one.categories.iter().any(|of| usize::from(*of) == category),
                "{category}"
            );
        }
    }
}
