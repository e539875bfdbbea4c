//! Typed rows of a read model, by key and in a second order.

use crate::kinds::*;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, sync::Arc};
use throng::{
    Engine,
    journal::MemoryViews,
    projection::{DurableEvent, Interrupt, Projection, Rows, Table, row_key},
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    coins: u64,
}

/// A table of the accounts with a balance, the richest first.
struct Rich;

impl Table for Rich {
    const NAME: &'static str = "rich";
    type Key = String;
    type Row = Held;
    type Order = Reverse<u64>;

    fn order(_: &String, row: &Held) -> Option<Reverse<u64>> {
        (row.coins > 0).then_some(Reverse(row.coins))
    }
}

/// A row with the number of accounts.
struct Count;

impl Table for Count {
    const NAME: &'static str = "count";
    type Key = ();
    type Row = u64;
    type Order = ();
}

struct Accounts;

impl Projection for Accounts {
    const NAME: &'static str = "accounts";
    type Of = Account;

    fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let before = rows.row::<Rich>(&seen.id)?;
        let coins = before.as_ref().map_or(0, |row| row.coins);
        let coins = match seen.event {
            AccountEvent::Opened { balance } => balance.unsigned_abs(),
            AccountEvent::Deposited { amount } => coins + amount.unsigned_abs(),
            AccountEvent::Withdrawn { amount } => coins - amount.unsigned_abs(),
            AccountEvent::Heard { .. } => return rows.remove_row::<Rich>(&seen.id),
            _ => return Ok(()),
        };
        if before.is_none() {
            let count = rows.row::<Count>(&())?.unwrap_or(0);
            rows.set_row::<Count>(&(), &(count + 1))?;
        }
        rows.set_row::<Rich>(&seen.id, &Held { coins })
    }

    fn reads(&self, seen: &DurableEvent<Account>) -> Vec<Vec<u8>> {
        vec![row_key::<Rich>(&seen.id), row_key::<Count>(&())]
    }
}

async fn engine(world: &World, views: &MemoryViews) -> Engine {
    world
        .start(World::builder().projection(Accounts).views(Arc::new(views.clone())))
        .await
        .unwrap()
}

/// Reads all rows page by page.
async fn richest(engine: &Engine, limit: usize) -> Vec<(String, u64)> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let rows = engine.read_model::<Accounts>();
        let page = rows.rows_in_order::<Rich>(after.as_deref(), limit).await.unwrap();
        assert!(page.rows.len() <= limit);
        all.extend(page.rows.into_iter().map(|(id, row)| (id, row.coins)));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn the_richest_come_first_page_by_page_and_change_places() {
    let (world, views) = (World::new(), MemoryViews::new());
    let started = engine(&world, &views).await;
    for (id, balance) in [("ann", 10), ("bob", 300), ("cid", 300), ("dan", 0), ("eve", 20)] {
        open(&started, id, balance).await;
    }
    let rows = started.read_model::<Accounts>();
    assert!(rows.caught_up().await);
    let owned = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
        rows.iter().map(|(id, coins)| ((*id).to_owned(), *coins)).collect()
    };
    let expected = owned(&[("bob", 300), ("cid", 300), ("eve", 20), ("ann", 10)]);
    for limit in [1, 2, 3, 4, 9] {
        assert_eq!(richest(&started, limit).await, expected, "{limit} a page");
    }
    started.stop().await;

    let started = engine(&world, &views).await;
    ask(&started, "ann", Command::Deposit { amount: 1_000 }).await.unwrap();
    ask(&started, "bob", Command::Withdraw { amount: 300 }).await.unwrap();
    let text = "closed".to_owned();
    ask(&started, "cid", Command::Heard { text }).await.unwrap();
    let rows = started.read_model::<Accounts>();
    assert!(rows.caught_up().await);
    assert_eq!(richest(&started, 9).await, owned(&[("ann", 1_010), ("eve", 20)]));
    let by_id = rows.rows::<Rich>(None, 9).await.unwrap();
    let ids: Vec<&str> = by_id.rows.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!((ids, by_id.next), (vec!["ann", "bob", "dan", "eve"], None));
    let bob = rows.row::<Rich>(&"bob".to_owned()).await.unwrap();
    assert_eq!(bob, Some(Held { coins: 0 }), "without a place among the richest");
    assert_eq!(rows.row::<Count>(&()).await.unwrap(), Some(5));
    assert!(rows.rows::<Rich>(Some("00"), 9).await.is_err(), "no page ended there");
}
