//! Filters over entities, by the fields their kind indexes.

use crate::{
    kinds::{Command, World, ask, failing::Failing, open},
    nodes::{Cluster, SHARDS, ids, shards},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst, time::Duration};
use throng::{
    ASKED_MAX, Builder, Engine, Filter, MatchRange, Matches, Options,
    journal::{MemoryStore, Store},
    model::*,
};

async fn matches(engine: &Engine, filter: &str, range: MatchRange<'_>) -> Matches {
    let filter = Filter::read(filter, &engine.registry().kinds()[0].indexed).unwrap();
    engine.matches(0, &filter, range).await.unwrap()
}

fn all() -> MatchRange<'static> {
    MatchRange {
        limit: usize::MAX,
        ..MatchRange::default()
    }
}

/// The ids of all accounts that a filter matches.
async fn found(engine: &Engine, filter: &str) -> Vec<String> {
    let matches = matches(engine, filter, all()).await;
    assert_eq!((matches.next, matches.unknown), (None, 0));
    matches.found.into_iter().map(|found| found.head.id.into()).collect()
}

/// Asks, and makes room in memory with a checkpoint where there is none.
async fn ask_with_room(engine: &Engine, id: &str, command: Command) {
    while let Err(error) = ask(engine, id, command.clone()).await {
        assert!(matches!(error, Error::Overloaded { .. }), "{error}");
        engine.checkpoint().await.unwrap();
    }
}

/// The ids with indexed fields in the store.
async fn rows(world: &World) -> Vec<String> {
    let mut rows = Vec::new();
    let mut visit = |row: &[u8], _: &[u8]| rows.push(String::from_utf8_lossy(row).into_owned());
    world
        .store
        .system_scan(b"i", b"", usize::MAX, &mut visit)
        .await
        .unwrap();
    rows
}

async fn resident(engine: &Engine) -> usize {
    engine.populations().await.unwrap()[0].resident
}

#[tokio::test]
async fn filter_matches_entities_as_they_are_now() {
    for (is_stored, is_restarted, is_rebuilt) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (true, true, true),
    ] {
        let mut world = World::new();
        let mut engine = world.engine().await;
        for number in 0..30 {
            open(&engine, &format!("a{number:02}"), number).await;
        }
        engine.checkpoint().await.unwrap();
        for (id, amount) in [("a03", 100), ("a29", 100)] {
            ask(&engine, id, Command::Deposit { amount }).await.unwrap();
        }
        open(&engine, "b", 28).await;
        if is_stored {
            engine.checkpoint().await.unwrap();
        }
        if is_restarted {
            engine.stop().await;
            if is_rebuilt {
                world.store = MemoryStore::new(world.journal.clone());
            }
            engine = world.engine().await;
        }
        for _ in 0..2 {
            assert_eq!(found(&engine, "balance >= 28").await, ["a03", "a28", "a29", "b"]);
            assert_eq!(
                found(&engine, "balance < 5, last = null").await,
                ["a00", "a01", "a02", "a04"]
            );
        }
        assert_eq!(found(&engine, "").await.len(), 31);
        engine.stop().await;
    }
}

/// An account as it has to be.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    balance: i64,
    heard: Vec<String>,
    has_ended: bool,
    /// The number of its ends that its history still holds.
    ends: u32,
}

impl Expected {
    fn fields(&self) -> Vec<Value> {
        vec![json!(self.balance), json!(self.heard.last()), json!(self.heard)]
    }
}

/// Fails unless the filter tells of each account what it is. One that has ended may be gone. One that ended before, too, may have come back from
/// its events with what it was at first, since only the last end is known; as it has ended, no command sees that.
async fn check(engine: &Engine, expected: &BTreeMap<String, Expected>, after: &str) {
    let page = matches(engine, "", all()).await;
    assert_eq!((page.next, page.unknown), (None, 0), "{after}");
    let found = page.found.into_iter();
    let found: BTreeMap<String, Vec<Value>> = found.map(|one| (one.head.id.into(), one.fields)).collect();
    for (id, account) in expected.iter().filter(|(_, account)| !account.has_ended) {
        assert_eq!(found.get(id), Some(&account.fields()), "{id} {after}");
    }
    for (id, fields) in &found {
        let account = expected.get(id).unwrap_or_else(|| panic!("{id} is not there {after}"));
        if account.ends < 2 || !account.has_ended {
            assert_eq!(account.fields(), *fields, "{id} {after}");
        }
    }
}

async fn change(engine: &Engine, id: &str, account: &mut Option<Expected>, dice: usize) {
    match account {
        Some(alive) if !alive.has_ended => match dice % 8 {
            0..4 => {
                alive.balance += dice as i64;
                let amount = dice as i64;
                ask_with_room(engine, id, Command::Deposit { amount }).await;
            }
            4 | 5 => {
                alive.heard.push(dice.to_string());
                let text = dice.to_string();
                ask_with_room(engine, id, Command::Heard { text }).await;
            }
            6 => {
                alive.heard.push("closed".into());
                alive.has_ended = true;
                alive.ends += 1;
                ask_with_room(engine, id, Command::Close).await;
            }
            _ => {
                *account = None;
                engine.erase("account", id).await.unwrap();
            }
        },
        Some(_) if dice.is_multiple_of(3) => {
            *account = None;
            engine.erase("account", id).await.unwrap();
        }
        _ => {
            *account = Some(Expected {
                balance: 1,
                ends: account.as_ref().map_or(0, |ended| ended.ends),
                ..Expected::default()
            });
            ask_with_room(engine, id, Command::Reopen).await;
        }
    }
}

#[tokio::test]
async fn rows_are_right_whatever_has_happened() {
    for seed in 1..5_usize {
        let mut world = World::new();
        let options = Options {
            memory_bytes_max: if seed % 2 == 0 { 16 << 10 } else { 64 << 20 },
            keep: BTreeMap::from([("account".to_owned(), Keep::Age(Duration::ZERO))]),
            prune_every: Some(Duration::from_hours(1)),
            ..Options::default()
        };
        let mut engine = world.engine_with(options.clone()).await;
        let mut expected = BTreeMap::new();
        let mut random = seed;
        for round in 0..60 {
            for _ in 0..8 {
                // The constants of Knuth's MMIX; the low bits are not random enough.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let (dice, id) = (random >> 40, format!("a{}", (random >> 33) % 24));
                let mut account = expected.remove(&id);
                change(&engine, &id, &mut account, dice % 1_000).await;
                expected.extend(account.map(|account| (id, account)));
            }
            let what = (random >> 50) % 8;
            match what {
                0 => engine.checkpoint().await.unwrap(),
                1 => _ = engine.prune(false).await.unwrap(),
                2 | 3 => {
                    engine.stop().await;
                    if what == 3 {
                        world.store = MemoryStore::new(world.journal.clone());
                    }
                    engine = world.engine_with(options.clone()).await;
                }
                // As after a crash. The first one must not live on: it would take the journal back.
                4 => {
                    drop(engine);
                    engine = world.engine_with(options.clone()).await;
                }
                _ => {}
            }
            check(&engine, &expected, &format!("after {what} in round {round} of {seed}")).await;
        }
        engine.stop().await;
    }
}

#[tokio::test]
async fn list_is_matched_by_its_members_unless_too_long() {
    let world = World::new();
    let engine = world.engine().await;
    for id in ["a", "b", "c"] {
        open(&engine, id, 1).await;
        for text in ["ann", id] {
            ask(&engine, id, Command::Heard { text: text.into() }).await.unwrap();
        }
    }
    for is_stored in [false, true] {
        if is_stored {
            engine.checkpoint().await.unwrap();
        }
        assert_eq!(found(&engine, "heard = b").await, ["b"]);
        assert_eq!(found(&engine, "heard = ann, heard != b").await, ["a", "c"]);
        let holding = engine.matches(0, &Filter::default().holding("c"), all()).await.unwrap();
        assert_eq!((holding.found.len(), &*holding.found[0].head.id), (1, "c"));
    }
    for _ in 0..70 {
        ask(&engine, "b", Command::Grow { bytes: 300 }).await.unwrap();
    }
    for is_stored in [false, true] {
        if is_stored {
            engine.checkpoint().await.unwrap();
        }
        let page = matches(&engine, "heard = ann", all()).await;
        assert_eq!((page.found.len(), page.examined, page.unknown), (2, 3, 1));
        assert_eq!(found(&engine, "balance = 1").await, ["a", "b", "c"]);
    }
    engine.stop().await;
}

#[tokio::test]
async fn unchanged_entities_are_matched_without_a_load() {
    let world = World::new();
    let engine = world.engine().await;
    for number in 0..9 {
        open(&engine, &format!("a{number}"), number).await;
    }
    engine.stop().await;
    let engine = world.engine().await;
    assert_eq!(found(&engine, "balance = 4").await, ["a4"]);
    assert_eq!(resident(&engine).await, 0);
    ask(&engine, "a2", Command::Deposit { amount: 2 }).await.unwrap();
    assert_eq!(found(&engine, "balance = 4").await, ["a2", "a4"]);
    assert_eq!(resident(&engine).await, 1);
    engine.stop().await;
}

#[tokio::test]
async fn passivated_entities_keep_their_rows() {
    let world = World::new();
    let engine = world
        .engine_with(Options {
            memory_bytes_max: 64 << 10,
            ..Options::default()
        })
        .await;
    for number in 0..200 {
        let id = format!("a{number:03}");
        ask_with_room(&engine, &id, Command::Open { balance: number }).await;
        ask_with_room(&engine, &id, Command::Grow { bytes: 4_000 }).await;
    }
    assert_eq!(found(&engine, "balance > 196").await, ["a197", "a198", "a199"]);
    engine.checkpoint().await.unwrap();
    assert_eq!(found(&engine, "balance < 3").await, ["a000", "a001", "a002"]);
    assert_eq!(
        rows(&world).await.len(),
        200,
        "most were passivated before the checkpoint"
    );
    engine.stop().await;
}

#[tokio::test]
async fn pages_go_on_where_they_ended() {
    let world = World::new();
    let engine = world.engine().await;
    for number in 0..40 {
        open(&engine, &format!("a{number:02}"), number % 2).await;
        if number == 20 {
            engine.checkpoint().await.unwrap();
        }
    }
    let (mut paged, mut after): (Vec<String>, Option<Box<str>>) = (Vec::new(), None);
    loop {
        let range = MatchRange {
            prefix: "a",
            after: after.as_deref(),
            limit: 3,
        };
        let page = matches(&engine, "balance=1", range).await;
        assert!(page.found.len() <= 3);
        paged.extend(page.found.into_iter().map(|found| found.head.id.into()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, found(&engine, "balance=1").await);
    let tens = MatchRange { prefix: "a1", ..all() };
    assert_eq!(matches(&engine, "balance=0", tens).await.found.len(), 5);
    engine.stop().await;
}

#[tokio::test]
async fn ended_account_matches_as_it_was_and_erased_one_not() {
    let world = World::new();
    let engine = world.engine().await;
    for id in ["a", "b"] {
        open(&engine, id, 7).await;
        ask(&engine, id, Command::Close).await.unwrap();
    }
    engine.checkpoint().await.unwrap();
    assert_eq!(found(&engine, "last = closed").await, ["a", "b"]);
    engine.erase("account", "a").await.unwrap();
    assert_eq!(found(&engine, "last = closed").await, ["b"]);
    engine.checkpoint().await.unwrap();
    assert_eq!(rows(&world).await, ["iaccount\0b"]);
    engine.stop().await;
}

#[tokio::test]
async fn match_tells_only_of_durable_events() {
    let world = World::new();
    let failing = Failing::new(&world.journal);
    let engine = world.start_on(failing.clone(), World::builder()).await;
    open(&engine, "a", 1).await;
    failing.fails();
    let deposit = ask(&engine, "a", Command::Deposit { amount: 6 });
    let filter = Filter::read("balance=7", &["balance"]).unwrap();
    let matching = async {
        let matched = engine.matches(0, &filter, all()).await;
        failing.recovers();
        matched
    };
    let (_, matched) = tokio::join!(deposit, matching);
    assert!(
        !matched.is_ok_and(|matched| !matched.found.is_empty()),
        "nobody was told of it"
    );
    engine.stop().await;
}

#[tokio::test]
async fn nodes_match_the_entities_of_all_nodes() {
    let cluster = Cluster::new();
    let nodes = [cluster.node("one").await, cluster.node("other").await];
    cluster.take(&nodes[0], &shards(0, 128)).await;
    cluster.take(&nodes[1], &shards(128, SHARDS)).await;
    for (id, number) in ids().zip(0..) {
        open(&nodes[0].engine, &id, number).await;
    }
    nodes[0].engine.checkpoint().await.unwrap();
    let check = async || {
        for node in &nodes {
            let mut expected: Vec<String> = ids().skip(50).collect();
            expected.sort();
            assert_eq!(found(&node.engine, "balance >= 50").await, expected);
        }
    };
    check().await;
    cluster.give(&nodes[0], &nodes[1], &shards(0, 100)).await;
    check().await;
    cluster.wires.lost_every.store(3, SeqCst);
    check().await;
    cluster.wires.lost_every.store(0, SeqCst);
    nodes[1].engine.checkpoint().await.unwrap();
    check().await;
    cluster.wires.are_cut.store(true, SeqCst);
    let untold = nodes[1].engine.matches(0, &Filter::default(), all()).await.unwrap_err();
    assert!(untold.to_string().contains("cannot be reached"), "{untold}");
    cluster.wires.are_cut.store(false, SeqCst);
    *cluster.wires.old.lock().unwrap() = Some("one".into());
    let refused = nodes[1].engine.matches(0, &Filter::default(), all()).await.unwrap_err();
    assert!(refused.to_string().contains("upgrade it first"), "{refused}");
    assert!(cluster.wires.asked.load(SeqCst) > 0);
    for node in nodes {
        node.engine.stop().await;
    }
}

/// A lot of an auction, as programs with different fields know it.
#[derive(Default, Serialize, Deserialize)]
struct Lot<const KNOWN: usize> {
    price: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Bid {
    Bid(u64),
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum LotEvent {
    Bid(u64),
}
impl Event for LotEvent {}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("a lot never says no")]
struct Never;
impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl<const KNOWN: usize> Entity for Lot<KNOWN> {
    const KIND: &'static str = "lot";
    const INDEXED: &'static [IndexedField<Self>] = match KNOWN {
        0 => &[],
        1 => &[IndexedField::of("price", |lot| lot.price.into())],
        _ => &[
            IndexedField::of("price", |lot| (lot.price * 2).into()),
            IndexedField::of("odd", |lot| match lot.price {
                3 => panic!("three is odd"),
                price => (price % 2 == 1).into(),
            }),
        ],
    };
    type Id = String;
    type Command = Bid;
    type Event = LotEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, Bid::Bid(price): Bid, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(LotEvent::Bid(price));
        Ok(CommandAnswer::after(|lot: &Self| lot.price))
    }

    fn evolve(&mut self, LotEvent::Bid(price): &LotEvent) {
        assert!(KNOWN < 2 || *price != 13, "thirteen is no price any more");
        self.price = *price;
    }
}

async fn engine_with<const KNOWN: usize>(world: &World) -> Engine {
    let builder: Builder = Engine::builder().with::<Lot<KNOWN>>();
    world.start(builder).await.unwrap()
}

#[tokio::test]
async fn journal_without_fields_gets_them_as_it_is_filtered() {
    let world = World::new();
    let engine = engine_with::<0>(&world).await;
    let lots = ASKED_MAX + 500;
    for number in 0..lots {
        let lot = engine.entity::<Lot<0>>(&format!("{number:05}"));
        lot.ask(Bid::Bid(number as u64)).await.unwrap();
    }
    engine.stop().await;
    assert!(rows(&world).await.is_empty(), "a kind without fields pays nothing");

    let engine = engine_with::<1>(&world).await;
    let first = matches(&engine, &format!("price >= {}", ASKED_MAX - 1), all()).await;
    assert_eq!(
        (first.found.len(), first.examined),
        (1, ASKED_MAX),
        "it asks so many at most"
    );
    let last = format!("{:05}", ASKED_MAX - 1);
    assert_eq!(first.next.as_deref(), Some(&*last));
    let range = MatchRange {
        after: first.next.as_deref(),
        ..all()
    };
    let rest = matches(&engine, "price >= 0", range).await;
    assert_eq!((rest.found.len(), rest.next), (500, None));
    engine.stop().await;
    assert_eq!(rows(&world).await.len(), lots);

    let engine = engine_with::<1>(&world).await;
    assert_eq!(found(&engine, "price >= 0").await.len(), lots);
    assert_eq!(resident(&engine).await, 0, "all of it was read from rows");
    engine.stop().await;
}

#[tokio::test]
async fn rows_of_other_fields_count_for_nothing() {
    let world = World::new();
    let engine = engine_with::<1>(&world).await;
    for price in 1..5 {
        engine
            .entity::<Lot<1>>(&price.to_string())
            .ask(Bid::Bid(price))
            .await
            .unwrap();
    }
    engine.stop().await;
    for _ in 0..2 {
        let engine = engine_with::<2>(&world).await;
        for (filter, id) in [("price = 4", "2"), ("odd = true", "1")] {
            let page = matches(&engine, filter, all()).await;
            assert_eq!((page.found.len(), &*page.found[0].head.id, page.unknown), (1, id, 1));
        }
        let unread = matches(&engine, "price > 0", all()).await;
        assert_eq!(
            (unread.found.len(), unread.unknown),
            (3, 1),
            "a panic leaves fields unknown"
        );
        engine.stop().await;
    }
}

#[tokio::test]
async fn quarantined_entity_is_told_as_unknown() {
    let world = World::new();
    let engine = engine_with::<0>(&world).await;
    for price in [12, 13, 14] {
        engine
            .entity::<Lot<0>>(&price.to_string())
            .ask(Bid::Bid(price))
            .await
            .unwrap();
    }
    engine.stop().await;
    let engine = engine_with::<2>(&world).await;
    for _ in 0..2 {
        let all = matches(&engine, "odd = false", all()).await;
        assert_eq!((all.found.len(), all.examined, all.unknown), (2, 3, 1));
        engine.checkpoint().await.unwrap();
    }
    engine.stop().await;
}
