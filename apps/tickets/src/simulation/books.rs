//! The books of a sale after everything has settled, and the rules for them.

use super::Money;
use crate::{
    concert::{Concert, ConcertView},
    customer::{CustomerView, TICKETS_MAX},
    order::{OrderView, PaymentStatus, Stage},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use throng_app::model::Entity;
use throng_sim::{History, Sim};

/// All data known at the end.
#[derive(Default, PartialEq)]
pub(super) struct Books {
    pub(super) concerts: BTreeMap<String, ConcertView>,
    pub(super) customers: BTreeMap<String, CustomerView>,
    pub(super) orders: BTreeMap<String, OrderView>,
    pub(super) money: BTreeMap<String, Money>,
}

impl Books {
    /// Returns the orders whose held seats are not paid yet.
    pub(super) fn held(&self) -> impl Iterator<Item = &str> {
        let held = self.orders.iter().filter(|(_, order)| order.stage == Stage::Held);
        held.map(|(id, _)| id.as_str())
    }

    /// True if nothing is in progress.
    pub(super) fn has_settled(&self) -> bool {
        let seats_held = |concert: &ConcertView| concert.zones.iter().any(|zone| zone.held > 0);
        self.orders.values().all(has_settled) && !self.concerts.values().any(seats_held)
    }

    /// Checks all rules, and counts the outcomes.
    pub(super) fn check(&self, sim: &Sim) {
        self.orders
            .iter()
            .for_each(|(id, order)| self.check_order(sim, id, order));
        self.check_seats(sim);
        for (name, customer) in &self.customers {
            let counts = |order: &&OrderView| order.customer == *name && has_a_place(order);
            let tickets: u32 = self.orders.values().filter(counts).map(|order| order.tickets).sum();
            if customer.tickets != tickets || tickets > TICKETS_MAX {
                sim.wrong(format!("{name} has {tickets} tickets: {customer:?}"));
            }
        }
    }

    /// Checks that a confirmed order is paid once, and an ended one not at all.
    fn check_order(&self, sim: &Sim, id: &str, order: &OrderView) {
        let of = |payment: &str| self.money.get(payment).copied().unwrap_or_default();
        let payments: Vec<Money> = order.payments.iter().map(|payment| of(&payment.payment)).collect();
        let net: i64 = payments
            .iter()
            .map(|money| i64::from(money.charged) - i64::from(money.reversed))
            .sum();
        let is_once = payments
            .iter()
            .all(|money| money.charged <= 1 && money.reversed <= money.charged);
        let is_confirmed = order.stage == Stage::Confirmed;
        if net != i64::from(is_confirmed) || !is_once || !has_settled(order) {
            sim.wrong(format!("order {id}: {order:?}, {payments:?}"));
        }
        self.count(sim, order);
    }

    fn count(&self, sim: &Sim, order: &OrderView) {
        let has = |status: PaymentStatus| order.payments.iter().any(|payment| payment.status == status);
        match order.stage {
            Stage::Confirmed if has(PaymentStatus::Reversed) => sim.count("paid again after an unknown payment"),
            Stage::Confirmed => sim.count("confirmed"),
            Stage::Expired if has(PaymentStatus::Reversed) => sim.count("reversed after the end"),
            Stage::Expired => sim.count("expired"),
            Stage::Cancelled if has(PaymentStatus::Reversed) => sim.count("sold seats cancelled"),
            Stage::Refused if order.why.as_deref().is_some_and(|why| why.contains("at most")) => {
                sim.count("refused by the limit");
            }
            _ => {}
        }
        if has(PaymentStatus::Failed) {
            sim.count("declined");
        }
    }

    /// Checks that each seat is sold to at most one order, and that the concert agrees.
    fn check_seats(&self, sim: &Sim) {
        for (name, concert) in &self.concerts {
            for zone in &concert.zones {
                let of_zone = |order: &&OrderView| order.concert == *name && order.zone == zone.zone.name;
                let confirmed = |order: &&OrderView| order.stage == Stage::Confirmed;
                let orders = || self.orders.values().filter(of_zone);
                let sold: Vec<u32> = orders()
                    .filter(confirmed)
                    .flat_map(|order| order.seats.clone())
                    .collect();
                let different: BTreeSet<u32> = sold.iter().copied().collect();
                let waiting = orders().filter(|order| order.stage == Stage::Waiting).count();
                let is_right = different.len() == sold.len()
                    && different.last().is_none_or(|last| *last <= zone.zone.seats)
                    && zone.sold as usize == sold.len()
                    && zone.held == 0
                    && zone.waiting as usize == waiting;
                if !is_right {
                    sim.wrong(format!("{name}: {zone:?}, {sold:?} sold, {waiting} wait"));
                }
            }
        }
    }
}

fn has_settled(order: &OrderView) -> bool {
    let is_open = |status| {
        matches!(
            status,
            PaymentStatus::Asked | PaymentStatus::Reversing | PaymentStatus::ReversalRefused
        )
    };
    !matches!(order.stage, Stage::Asked | Stage::Held | Stage::Paying)
        && !order.payments.iter().any(|payment| is_open(payment.status))
}

fn has_a_place(order: &OrderView) -> bool {
    matches!(
        order.stage,
        Stage::Waiting | Stage::Held | Stage::Paying | Stage::Confirmed
    )
}

/// Checks that seats go to the first waiting order, and to no other order while one waits.
pub(super) fn check_line(sim: &Sim, history: &History, concert: &str) {
    let mut lines: BTreeMap<String, VecDeque<String>> = BTreeMap::new();
    for event in history.events(Concert::KIND, concert) {
        let payload: Value = serde_json::from_slice(&event.payload).unwrap();
        let text = |name: &str| payload[name].as_str().unwrap_or_default().to_owned();
        let line = lines.entry(text("zone")).or_default();
        match &*event.name {
            "wait_listed" => line.push_back(text("order")),
            "seats_held" => match line.pop_front() {
                Some(first) if first != text("order") => sim.wrong(format!("{first} was overtaken: {payload}")),
                Some(_) => sim.count("offered to the first who waits"),
                None => {}
            },
            "released" => line.retain(|order| *order != text("order")),
            _ => {}
        }
    }
}
