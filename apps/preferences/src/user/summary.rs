//! The summary of a user's actions: its size is bounded, however many they were.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::ActionKind;

/// Actions whose items are remembered.
pub const RECENT_MAX: usize = 64;
/// Purchases that are remembered, so that they are not recommended.
pub const BOUGHT_MAX: usize = 256;
/// The time after which an action counts half, in seconds: 30 days.
pub const HALF_LIFE_S: i64 = 30 * 24 * 3600;

/// The summary of a user's actions: at most some 3 KiB.
///
/// Its numbers depend on the actions and their times alone, not on when they are looked at: weights are as of the newest
/// action. So the same history gives the same recommendations for ever, from a replay as from a stored state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    actions: u64,
    /// The time to which the weights have decayed.
    at_s: i64,
    /// Weights by category, ascending.
    interests: Vec<(u8, f32)>,
    /// The newest one comes last.
    recent: VecDeque<(ActionKind, u16)>,
    /// The newest one comes last.
    bought: VecDeque<u16>,
}

impl Summary {
    /// Takes an action in. Items and categories beyond the catalogue's are none of this one's.
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

    /// Lets the weights fade to a later time; an earlier one changes nothing.
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

    /// Actions so far.
    #[must_use]
    pub fn actions(&self) -> u64 {
        self.actions
    }

    /// Categories acted in, ascending, and what they are worth.
    pub fn interests(&self) -> impl Iterator<Item = (u8, f32)> {
        self.interests.iter().copied()
    }

    /// The last actions, oldest first, and their items.
    pub fn recent(&self) -> impl Iterator<Item = (ActionKind, usize)> {
        self.recent.iter().map(|(action, item)| (*action, usize::from(*item)))
    }

    /// The items bought last, oldest first.
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
