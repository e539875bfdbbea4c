//! Members of aggregates in groups. A place in the order has an aggregate, a member and an action. Neighbours in a group hit the same aggregates
//! within a short time, which makes the load concurrent.

use std::sync::{Mutex, PoisonError};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use super::model::Order;

/// Maps places to members.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) aggregates: usize,
    pub(super) aggregate_count: u64,
    pub(super) first_member: i64,
    pub(super) members: u64,
    pub(super) actions: Vec<String>,
    pub(super) group: u64,
    pub(super) order: Order,
    pub(super) seed: u64,
    /// The last shuffled order of a group, with its number; `None` at first.
    pub(super) current: Mutex<Option<(u64, Vec<u32>)>>,
}

impl Groups {
    /// Returns aggregate, member and action at a place of the whole order. The groups follow each other. In a group the actions follow each other,
    /// and each action visits all members of the group's aggregates.
    pub(super) fn at(&self, place: u64) -> (u64, u64, usize) {
        let actions = self.actions.len() as u64;
        let whole = self.group * self.members * actions;
        let group = place / whole;
        let first = group * self.group;
        let in_group = self.group.min(self.aggregate_count - first);
        let pairs = in_group * self.members;
        let within = place - group * whole;
        let (action, at) = (within / pairs, within % pairs);
        let pair = match self.order {
            Order::Serial => at,
            Order::Concurrent => {
                let round = group * actions + action;
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                let order = match &mut *current {
                    Some((known, order)) if *known == round => order,
                    other => {
                        let mut order: Vec<u32> = (0..pairs as u32).collect();
                        order.shuffle(&mut SmallRng::seed_from_u64(self.seed.wrapping_add(round)));
                        &mut other.insert((round, order)).1
                    }
                };
                u64::from(order[at as usize])
            }
        };
        (first + pair / self.members, pair % self.members, action as usize)
    }
}
