//! The table `places`, which locates an entity's events in the commits.

use crate::kit;
use throng_journal::{
    Address, Append, Checkpoint, CommitBuilder, CommitNo, Journal, Position, RecordKind, ShardId, ShardSet, Stamp,
    Store,
};
use throng_postgres::open_postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_place_lists_are_lz4_compressed_where_the_server_can() {
    let schema = kit::schema();
    let opened = open_postgres(kit::options(&schema, "")).unwrap();
    let writer = opened.journal.open("node").await.unwrap().writer;
    let address = Address::new("thing", "one");
    let mut open = CommitBuilder::default();
    for seq in 1..=100 {
        open.push(
            RecordKind::Event,
            ShardId(9),
            &address,
            seq,
            "Reserved",
            1,
            seq.to_string().as_bytes(),
        );
    }
    let stamp = Stamp::new(writer, CommitNo(1), 1_700_000_000_123_456);
    let Append::Later(later) = opened.journal.append(open.finish(stamp)) else {
        panic!("it goes over the network");
    };
    later.await.result.unwrap();
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto: Position::new(writer, CommitNo(1)),
        ..Checkpoint::default()
    };
    opened.store.advance(checkpoint).await.unwrap();
    let psql = kit::psql(&kit::SERVER).await;
    let looked = format!(
        "SELECT pg_column_compression(places), (SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = \
         'default_toast_compression') FROM {schema}.places"
    );
    let row = psql.query_one(&looked, &[]).await.unwrap();
    let best = if row.get(1) { "lz4" } else { "pglz" };
    assert_eq!(row.get::<_, &str>(0), best);
    let history = opened.store.history(&address, 0, usize::MAX, usize::MAX).await.unwrap();
    let found: Vec<(u64, Vec<u8>)> = history.into_iter().map(|event| (event.seq, event.payload)).collect();
    let expected: Vec<(u64, Vec<u8>)> = (1..=100).map(|seq: u64| (seq, seq.to_string().into_bytes())).collect();
    assert_eq!(found, expected);
}
