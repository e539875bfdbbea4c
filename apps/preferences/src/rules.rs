//! The rules and weights that turn a summary into a list, over every item of the catalogue. They are pure: the same summary always gives the same
//! list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{CATEGORIES, Catalogue, ITEMS, TRAITS},
    user::{ActionKind, Summary},
};

/// The most items in a list.
pub const LIMIT_MAX: usize = 50;
/// The most items of one category in a list, so that it does not consist only of shoes.
pub const OF_CATEGORY_MAX: usize = 3;

/// The weight of the interest in an item's category.
const INTEREST: f32 = 1.0;
/// The share of that interest that each related category gets.
const RELATED: f32 = 0.15;
/// The weight of the similarity to items that the user liked.
const TASTE: f32 = 0.6;
/// The weight of an item's popularity.
const POPULARITY: f32 = 0.25;
/// The penalty for a price that differs from the user's usual price.
const PRICE: f32 = 0.2;
/// The penalty for an item that the user has seen recently.
const SEEN: f32 = 0.3;

/// An item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recommended {
    /// The item's number.
    pub item: u32,
    /// The number of its category in the catalogue.
    pub category: u8,
    /// The score; higher is better. Scores are comparable only within one list.
    pub score: f32,
}

/// Returns the best items for a user, best first: at most `limit`, none bought recently, and at most [`OF_CATEGORY_MAX`] of one category.
#[must_use]
#[inline(never)] // a single copy, so that the benchmark measures the code that requests run
pub fn recommend(summary: &Summary, limit: usize) -> Vec<Recommended> {
    let catalogue = Catalogue::get();
    let interest = interest(summary, catalogue);
    let taste = Taste::of(summary, catalogue);
    let (seen, bought) = marks(summary);
    let mut best = Best::new();
    for item in 0..ITEMS {
        let category = catalogue.categories[item];
        let score = interest[usize::from(category) % CATEGORIES]
            + taste.likes(&catalogue.traits[item], catalogue.price[item])
            + POPULARITY * catalogue.popularity[item]
            - SEEN * f32::from(u8::from(seen.has(item)));
        if score > best.least(category) && !bought.has(item) {
            best.add(item, category, score);
        }
    }
    best.list(limit.min(LIMIT_MAX))
}

/// Returns the user's interest in each category, from 0 to about 1.
fn interest(summary: &Summary, catalogue: &Catalogue) -> [f32; CATEGORIES] {
    let mut own = [0.0_f32; CATEGORIES];
    for (category, weight) in summary.interests() {
        own[usize::from(category) % CATEGORIES] = weight;
    }
    let all = own.iter().sum::<f32>().max(f32::MIN_POSITIVE);
    let mut interest = [0.0; CATEGORIES];
    for (category, weight) in own.iter().enumerate() {
        // The root dampens: a category with ten times the views does not get ten times the interest.
        let part = INTEREST * (weight / all).sqrt();
        interest[category] += part;
        for related in catalogue.related[category] {
            interest[usize::from(related) % CATEGORIES] += RELATED * part;
        }
    }
    interest
}

/// The common features of the items in the user's actions.
struct Taste {
    traits: [f32; TRAITS],
    /// The user's mean price, from 0 to 1. `price_weight` is 0 while it is unknown.
    price: f32,
    price_weight: f32,
}

impl Taste {
    fn of(summary: &Summary, catalogue: &Catalogue) -> Self {
        let mut traits = [0.0_f32; TRAITS];
        let (mut paid, mut buys) = (0.0, 0.0_f32);
        for (action, item) in summary.recent() {
            let weight = action.weight();
            for (sum, of) in traits.iter_mut().zip(catalogue.traits[item]) {
                *sum += weight * of;
            }
            if action == ActionKind::Buy {
                paid += catalogue.price[item];
                buys += 1.0;
            }
        }
        let length = traits
            .iter()
            .map(|of| of * of)
            .sum::<f32>()
            .sqrt()
            .max(f32::MIN_POSITIVE);
        Self {
            traits: traits.map(|of| TASTE * of / length),
            price: paid / buys.max(1.0),
            price_weight: if buys > 0.0 { PRICE } else { 0.0 },
        }
    }

    fn likes(&self, traits: &[f32; TRAITS], price: f32) -> f32 {
        let alike: f32 = self.traits.iter().zip(traits).map(|(own, of)| own * of).sum();
        alike - self.price_weight * (price - self.price).abs()
    }
}

/// A set of items, with one bit each.
struct Marks([u64; ITEMS / 64]);

impl Marks {
    fn add(&mut self, item: usize) {
        self.0[item / 64] |= 1 << (item % 64);
    }

    fn has(&self, item: usize) -> bool {
        self.0[item / 64] >> (item % 64) & 1 == 1
    }
}

/// Returns the items seen recently, and the items bought.
fn marks(summary: &Summary) -> (Marks, Marks) {
    let (mut seen, mut bought) = (Marks([0; ITEMS / 64]), Marks([0; ITEMS / 64]));
    for (_, item) in summary.recent() {
        seen.add(item);
    }
    for item in summary.bought() {
        bought.add(item);
    }
    (seen, bought)
}

/// The best items of each category, best first.
struct Best([[(f32, u32); OF_CATEGORY_MAX]; CATEGORIES]);

const NOTHING: (f32, u32) = (f32::NEG_INFINITY, u32::MAX);

impl Best {
    fn new() -> Self {
        Self([[NOTHING; OF_CATEGORY_MAX]; CATEGORIES])
    }

    fn least(&self, category: u8) -> f32 {
        self.0[usize::from(category) % CATEGORIES][OF_CATEGORY_MAX - 1].0
    }

    fn add(&mut self, item: usize, category: u8, score: f32) {
        let best = &mut self.0[usize::from(category) % CATEGORIES];
        let mut place = OF_CATEGORY_MAX - 1;
        while place > 0 && best[place - 1].0 < score {
            best[place] = best[place - 1];
            place -= 1;
        }
        best[place] = (score, u32::try_from(item).unwrap_or(u32::MAX));
    }

    fn list(&self, limit: usize) -> Vec<Recommended> {
        let of = |(category, best): (usize, &[(f32, u32); OF_CATEGORY_MAX])| {
            let category = u8::try_from(category).unwrap_or(u8::MAX);
            best.map(|(score, item)| Recommended { item, category, score })
        };
        let mut all: Vec<Recommended> = self.0.iter().enumerate().flat_map(of).collect();
        all.retain(|recommended| recommended.item != NOTHING.1);
        let order = |a: &Recommended, b: &Recommended| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item));
        if limit < all.len() && limit > 0 {
            all.select_nth_unstable_by(limit - 1, order);
        }
        all.truncate(limit);
        all.sort_unstable_by(order);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(actions: impl IntoIterator<Item = (ActionKind, u32)>) -> Summary {
        let mut summary = Summary::default();
        for (action, item) in actions {
            summary.add(action, item, Catalogue::get().category(item), 0);
        }
        summary
    }

    /// The plain definition: all scores, sorted and taken one by one.
    fn plainly(summary: &Summary, limit: usize) -> Vec<u32> {
        let catalogue = Catalogue::get();
        let (interest, taste) = (interest(summary, catalogue), Taste::of(summary, catalogue));
        let seen: Vec<usize> = summary.recent().map(|(_, item)| item).collect();
        let bought: Vec<usize> = summary.bought().collect();
        let mut all: Vec<(f32, usize)> = (0..ITEMS)
            .filter(|item| !bought.contains(item))
            .map(|item| {
                let category = usize::from(catalogue.categories[item]);
                let known = if seen.contains(&item) { SEEN } else { 0.0 };
                let likes = taste.likes(&catalogue.traits[item], catalogue.price[item]);
                (
                    interest[category] + likes + POPULARITY * catalogue.popularity[item] - known,
                    item,
                )
            })
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut of_category = [0; CATEGORIES];
        all.retain(|(_, item)| {
            let taken = &mut of_category[usize::from(catalogue.categories[*item])];
            *taken += 1;
            *taken <= OF_CATEGORY_MAX
        });
        all.iter().take(limit).map(|(_, item)| *item as u32).collect()
    }

    #[test]
    fn a_buyer_is_shown_more_of_the_category_and_nothing_twice() {
        let catalogue = Catalogue::get();
        let bought = 100;
        let list = recommend(&summary([(ActionKind::Buy, bought)]), 10);
        let category = catalogue.category(bought);
        assert_eq!(
            list.iter().filter(|of| of.category == category).count(),
            OF_CATEGORY_MAX
        );
        assert!(list.iter().all(|of| of.item != bought));
    }

    #[test]
    fn purchases_count_more_than_likes_and_likes_more_than_views() {
        let catalogue = Catalogue::get();
        let first = |category: u8| {
            let item = catalogue.categories.iter().position(|of| *of == category);
            u32::try_from(item.unwrap()).unwrap()
        };
        let summary = summary([
            (ActionKind::View, first(1)),
            (ActionKind::Like, first(2)),
            (ActionKind::Buy, first(3)),
        ]);
        let interest = interest(&summary, catalogue);
        assert!(interest[3] > interest[2] && interest[2] > interest[1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_list_follows_the_rules(
            actions in prop::collection::vec((0..3_u8, 0..ITEMS as u32), 0..200), limit in 0..=LIMIT_MAX
        ) {
            let kinds = [ActionKind::View, ActionKind::Like, ActionKind::Buy];
            let summary = summary(actions.into_iter().map(|(kind, item)| (kinds[usize::from(kind)], item)));
            let list = recommend(&summary, limit);
            let items: Vec<u32> = list.iter().map(|of| of.item).collect();
            prop_assert_eq!(items, plainly(&summary, limit));
            prop_assert!(list.iter().all(|of| of.score.is_finite()));
        }
    }
}
