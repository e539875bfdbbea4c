//! The orders, the seats and the provider's ledger after a sale.

use anyhow::Context as _;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
};

use crate::http_client::{ANSWER_WAIT, Connection, get, told};

/// The result of a sale, according to the service and to the provider.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// The confirmed orders by their id: concert and seats.
    orders: BTreeMap<String, (String, Vec<u64>)>,
    /// The number of seats of each concert that are held by orders which can still be paid.
    held: BTreeMap<String, u64>,
    /// The numbers of seats of each concert: all, free, held, sold.
    seats: BTreeMap<String, [u64; 4]>,
    /// The lines of the provider's ledger.
    ledger: Vec<String>,
}

impl Books {
    pub(super) fn read(address: SocketAddr, ledger: &Path) -> anyhow::Result<Self> {
        let mut connection = Connection::open(address, ANSWER_WAIT).context("the service does not answer")?;
        let mut ask =
            |path: &str| -> anyhow::Result<Value> { Ok(serde_json::from_str(&told(&mut connection, &get(path))?)?) };
        let mut books = Self::default();
        for id in all("order", &mut ask)? {
            let order = ask(&format!("/orders/{id}"))?;
            let concert = order["concert"].as_str().unwrap_or_default().to_owned();
            let seats = order["seats"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_u64);
            match order["stage"].as_str() {
                Some("confirmed") => _ = books.orders.insert(id, (concert, seats.collect())),
                Some("held" | "paying") => *books.held.entry(concert).or_default() += seats.count() as u64,
                _ => {}
            }
        }
        for id in all("concert", &mut ask)? {
            let zone = &ask(&format!("/api/concert/{id}"))?["zones"][0];
            let of = |name: &str| zone[name].as_u64().unwrap_or_default();
            books.seats.insert(id, ["seats", "free", "held", "sold"].map(of));
        }
        let ledger = std::fs::read_to_string(ledger).context("cannot read the provider's ledger")?;
        books.ledger = ledger.lines().map(str::to_owned).collect();
        Ok(books)
    }

    /// Returns a sentence for each error. No order and no message may be in flight.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut taken = BTreeMap::new();
        let mut sold: BTreeMap<&str, u64> = BTreeMap::new();
        for (id, (concert, seats)) in &self.orders {
            *sold.entry(concert).or_default() += seats.len() as u64;
            for seat in seats {
                if let Some(other) = taken.insert((concert, seat), id) {
                    wrong.push(format!("{concert}: {id} and {other} have the seat {seat}"));
                }
            }
        }
        for (concert, [all, free, held, seats_sold]) in &self.seats {
            let of_orders = sold.get(concert.as_str()).copied().unwrap_or_default();
            let held_by_orders = self.held.get(concert).copied().unwrap_or_default();
            if free + held + seats_sold != *all || *held != held_by_orders || *seats_sold != of_orders {
                wrong.push(format!(
                    "{concert}: of {all} seats {free} are free, {held} held and {seats_sold} sold; orders hold {held_by_orders} and have {of_orders}"
                ));
            }
        }
        let mut charged = BTreeSet::new();
        for line in &self.ledger {
            let payment = line.strip_prefix("charged ");
            let order = payment
                .and_then(|payment| payment.split_once('/'))
                .map(|(order, _)| order);
            match order {
                Some(order) if self.orders.contains_key(order) && charged.insert(order) => {}
                _ => wrong.push(format!("the provider has: {line}")),
            }
        }
        let unpaid = self.orders.keys().filter(|id| !charged.contains(id.as_str()));
        wrong.extend(unpaid.map(|id| format!("{id} is confirmed, and was not charged")));
        wrong
    }
}

/// Returns the ids of all entities of a kind.
fn all(kind: &str, ask: &mut impl FnMut(&str) -> anyhow::Result<Value>) -> anyhow::Result<Vec<String>> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = ask(&format!("/api/{kind}?limit=1000{after}"))?;
        let found = page["entities"].as_array().into_iter().flatten();
        ids.extend(found.filter_map(|one| Some(one["id"].as_str()?.to_owned())));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(ids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        let order = |seat| ("hamlet".to_owned(), vec![seat]);
        Books {
            orders: [("a".into(), order(1)), ("b".into(), order(2))].into(),
            held: BTreeMap::new(),
            seats: [("hamlet".into(), [3, 1, 0, 2])].into(),
            ledger: vec!["charged a/1".into(), "charged b/1".into()],
        }
    }

    #[test]
    fn books_that_agree_have_nothing_wrong() {
        assert_eq!(books().wrong(), [""; 0]);
    }

    #[test]
    fn each_kind_of_fault_is_found() {
        let twice = Books {
            orders: [("a", 1), ("b", 1)]
                .map(|(id, seat)| (id.into(), ("hamlet".into(), vec![seat])))
                .into(),
            ..books()
        };
        assert_eq!(twice.wrong(), ["hamlet: b and a have the seat 1"]);
        let held = |by_orders| Books {
            held: [("hamlet".into(), by_orders)].into(),
            seats: [("hamlet".into(), [3, 0, 1, 2])].into(),
            ..books()
        };
        assert_eq!([0, 1, 2].map(|by_orders| held(by_orders).wrong().len()), [1, 0, 1]);
        let oversold = Books {
            seats: [("hamlet".into(), [3, 2, 0, 1])].into(),
            ..books()
        };
        assert_eq!(oversold.wrong().len(), 1);
        for (ledger, wrong) in [
            (&["charged a/1"][..], "b is confirmed, and was not charged"),
            (
                &["charged a/1", "charged b/1", "charged a/1"][..],
                "the provider has: charged a/1",
            ),
            (
                &["charged a/1", "charged b/1", "charged c/1"][..],
                "the provider has: charged c/1",
            ),
            (
                &["charged a/1", "charged b/1", "reversed b/1"][..],
                "the provider has: reversed b/1",
            ),
        ] {
            let books = Books {
                ledger: ledger.iter().map(|line| (*line).to_owned()).collect(),
                ..books()
            };
            assert_eq!(books.wrong(), [wrong]);
        }
    }
}
