//! The table `events`, for queries by people.

use crate::{
    counter::{Command, Counter, engine},
    kit,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use throng_journal::{
    Address, Append, Checkpoint, CommitBuilder, CommitNo, Journal, Pace, Position, RecordKind, ShardId, ShardSet,
    Stamp, Store,
};
use throng_postgres::open_postgres;

/// Bodies of every sort, and how each is stored: as payload, or as base64.
const BODIES: [(&[u8], Option<&str>); 7] = [
    (br#"{"seats":50}"#, Some(r#"{"seats": 50}"#)),
    (b"null", Some("null")),
    (b"not json", None),
    (&[0, 159, 146, 150], None),
    (b"", None),
    (br#"{"a":"\u0000"}"#, None),
    (br#""\ud800""#, None),
];

async fn append(journal: &dyn Journal, number: u64, writer: throng_journal::WriterId, bodies: &[&[u8]], from: u64) {
    let mut open = CommitBuilder::default();
    for (seq, body) in (from..).zip(bodies) {
        let address = Address::new("thing", "a \u{0} ü");
        open.push(RecordKind::Event, ShardId(9), &address, seq, "Was", 3, body);
    }
    commit(journal, open, writer, number).await;
}

async fn commit(journal: &dyn Journal, mut open: CommitBuilder, writer: throng_journal::WriterId, number: u64) {
    let stamp = Stamp::after_synced(writer, CommitNo(number), 1_700_000_000_123_456);
    let Append::Later(later) = journal.append(open.finish(stamp)) else {
        panic!("it goes over the network");
    };
    later.await.result.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_holds_every_event_also_those_jsonb_refuses() {
    let schema = kit::schema();
    let opened = open_postgres(kit::options(&schema, "")).unwrap();
    let writer = opened.journal.open("node").await.unwrap().writer;
    let bodies: Vec<&[u8]> = BODIES.iter().map(|(body, _)| *body).collect();
    append(&*opened.journal, 1, writer, &bodies, 1).await;
    let upto = Position::new(writer, CommitNo(1));
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto,
        ..Checkpoint::default()
    };
    opened.store.advance(checkpoint).await.unwrap();
    let psql = kit::psql(&kit::SERVER).await;
    let rows = psql
        .query(
            &format!(
                "SELECT payload::text, decode(metadata->>'base64', 'base64'), id, recorded_at::text, shard, version, type \
                 FROM {schema}.events WHERE kind = 'thing' ORDER BY seq"
            ),
            &[],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), BODIES.len());
    for (row, (body, json)) in rows.iter().zip(BODIES) {
        assert_eq!(row.get::<_, Option<&str>>(0), json);
        assert_eq!(row.get::<_, Option<&[u8]>>(1), json.is_none().then_some(body));
        assert_eq!(row.get::<_, &str>(2), "a ␀ ü");
        assert!(
            row.get::<_, &str>(3).contains(":13:20.123456"),
            "{}",
            row.get::<_, &str>(3)
        );
        assert_eq!(
            (row.get::<_, i32>(4), row.get::<_, i32>(5), row.get::<_, &str>(6)),
            (9, 3, "Was")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_an_entity_stand_together() {
    const COMMITS: u64 = 30;
    const ENTITIES: u64 = 40;
    let schema = kit::schema();
    let opened = open_postgres(kit::options(&schema, "")).unwrap();
    let writer = opened.journal.open("node").await.unwrap().writer;
    let mut expected = Vec::new();
    for number in 1..=COMMITS {
        let mut open = CommitBuilder::default();
        for entity in 0..ENTITIES {
            let address = Address::new("thing", format!("{entity:02}"));
            // One body is refused by `jsonb`, which shows only when the server parses it.
            let is_refused = (number, entity) == (7, 11);
            let body: &[u8] = if is_refused { br#"{"a":"\u0000"}"# } else { b"1" };
            open.push(RecordKind::Event, ShardId(9), &address, number, "Was", 3, body);
            expected.push((format!("{entity:02}"), number.cast_signed(), is_refused));
        }
        commit(&*opened.journal, open, writer, number).await;
    }
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto: Position::new(writer, CommitNo(COMMITS)),
        ..Checkpoint::default()
    };
    opened.store.advance(checkpoint).await.unwrap();
    let psql = kit::psql(&kit::SERVER).await;
    let rows = psql
        .query(
            &format!("SELECT id, seq, payload IS NULL, commit FROM {schema}.events ORDER BY ctid"),
            &[],
        )
        .await
        .unwrap();
    assert!(rows.iter().all(|row| row.get::<_, i64>(1) == row.get::<_, i64>(3)));
    let found: Vec<(String, i64, bool)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switched_on_again_it_catches_up() {
    let schema = kit::schema();
    let hit = |engine: throng::Engine| async move {
        for _ in 0..10 {
            engine.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
        }
        engine.stop().await;
    };
    hit(engine(kit::options(&schema, "events=off")).await).await;
    let psql = kit::psql(&kit::SERVER).await;
    let count = || async {
        let counted = format!(
            "SELECT count(*), coalesce(max(seq), 0) FROM {schema}.events WHERE kind = 'counter' AND id = 'one'"
        );
        let row = psql.query_one(&counted, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    assert_eq!(count().await, (0, 0));
    hit(engine(kit::options(&schema, "")).await).await;
    assert_eq!(count().await, (20, 20));
    hit(engine(kit::options(&schema, "events=off")).await).await;
    hit(engine(kit::options(&schema, "events=on")).await).await;
    assert_eq!(count().await, (40, 40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_takes_its_time_until_somebody_waits_for_it() {
    let schema = kit::schema();
    let opened = open_postgres(kit::options(&schema, "")).unwrap();
    let writer = opened.journal.open("node").await.unwrap().writer;
    for number in 1..=3 {
        append(&*opened.journal, number, writer, &[b"1"], number).await;
    }
    let (looks, is_urgent) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (looked, urgent) = (looks.clone(), is_urgent.clone());
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto: Position::new(writer, CommitNo(3)),
        pace: Pace::within(Duration::from_secs(100 * 24 * 3_600), move || {
            looked.fetch_add(1, Ordering::Relaxed);
            urgent.load(Ordering::Relaxed)
        }),
        ..Checkpoint::default()
    };
    let store = opened.store.clone();
    let under_way = tokio::spawn(async move { store.advance(checkpoint).await });
    while looks.load(Ordering::Relaxed) < 10 {
        tokio::task::yield_now().await;
    }
    assert!(!under_way.is_finished());
    assert_eq!(
        opened.store.covers(&ShardSet::first(256)).await.unwrap()[0].upto,
        None,
        "nothing of it is to be seen"
    );
    is_urgent.store(true, Ordering::Relaxed);
    under_way.await.unwrap().unwrap();
    assert_eq!(
        opened.store.covers(&ShardSet::first(256)).await.unwrap()[0]
            .upto
            .map(|at| at.commit),
        Some(CommitNo(3))
    );
}
