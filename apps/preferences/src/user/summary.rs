//! The summary of a user's actions. Its size is bounded, for any number of actions.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::ActionKind;

/// The number of recent actions whose items are remembered.
pub const RECENT_MAX: usize = 64;
/// The number of recent purchases that are remembered, so that they are not recommended.
pub const BOUGHT_MAX: usize = 256;
/// The time in seconds after which an action counts half: 30 days.
pub const HALF_LIFE_S: i64 = 30 * 24 * 3600;

/// The summary of a user's actions, at most about 3 KiB.
///
/// The summary depends only on the actions and their times, not on the time of a query: the weights are those at the newest action. So the same history always
/// gives the same recommendations, from a replay or from a stored state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    actions: u64,
    /// The time of the weights. Older actions have decayed to it.
    at_s: i64,
    /// The weights by category, ascending.
    interests: Vec<(u8, f32)>,
    /// The recent actions, newest last.
    recent: VecDeque<(ActionKind, u16)>,
    /// The recent purchases, newest last.
    bought: VecDeque<u16>,
}

impl Summary {
    /// Adds an action. Items and categories beyond the catalogue are ignored.
    pub fn add(&mut self, action: ActionKind, item: u32, category: u8, at_s: i64) {
        self.actions += 1;
        self.fade(at_s);
        match self.interests.binary_search_by_key(&category, |(of, _)| *of) {
            Ok(place) => self.interests[place].1 += action.weight(),
            Err(place) => self.interests.insert(place, (category, action.weight())),
        }
        let Ok(item) = u16::try_from(item) else { return };
        remember(&mut self.recent, (action, item), RECENT_MAX);
        if action == ActionKind::Buy && !self.bought.contains(&item) {
            remember(&mut self.bought, item, BOUGHT_MAX);
        }
    }

    /// Decays the weights to a later time. An earlier time changes nothing.
    fn fade(&mut self, at_s: i64) {
        if self.actions > 1 && at_s > self.at_s {
            let half_lives = (at_s - self.at_s) as f32 / HALF_LIFE_S as f32;
            let left = (-half_lives).exp2();
            for (_, weight) in &mut self.interests {
                *weight *= left;
            }
        }
        self.at_s = if self.actions == 1 { at_s } else { self.at_s.max(at_s) };
    }

    /// Returns the number of actions so far.
    #[must_use]
    pub fn actions(&self) -> u64 {
        self.actions
    }

    /// Returns the categories with actions, ascending, and their weights.
    pub fn interests(&self) -> impl Iterator<Item = (u8, f32)> {
        self.interests.iter().copied()
    }

    /// Returns the recent actions and their items, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = (ActionKind, usize)> {
        self.recent.iter().map(|(action, item)| (*action, usize::from(*item)))
    }

    /// Returns the recently bought items, oldest first.
    pub fn bought(&self) -> impl Iterator<Item = usize> {
        self.bought.iter().map(|item| usize::from(*item))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.interests.capacity() * size_of::<(u8, f32)>()
            + self.recent.capacity() * size_of::<(ActionKind, u16)>()
            + self.bought.capacity() * size_of::<u16>()
    }
}

fn remember<T>(all: &mut VecDeque<T>, newest: T, most: usize) {
    if all.len() == most {
        all.pop_front();
    }
    all.push_back(newest);
}
