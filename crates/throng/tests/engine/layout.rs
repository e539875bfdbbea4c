//! The number of shards is fixed at the first start.

use crate::kinds::*;
use throng::{Engine, StartError, journal::MemoryStore, layout::LayoutError};

async fn with_shards(world: &World, shards: u16) -> Result<Engine, StartError> {
    world.start(World::builder().shards(shards)).await
}

async fn assert_refused(world: &World, shards: u16) {
    match with_shards(world, shards).await {
        Err(StartError::Layout(error)) => {
            assert_eq!(
                error,
                LayoutError::OtherShards {
                    stored: 64,
                    given: shards
                }
            );
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started with {shards} shards"),
    }
}

#[tokio::test]
async fn another_shard_count_is_refused_and_the_stored_one_works() {
    for (entities, graceful) in [(20, true), (20, false), (0, false)] {
        let world = World::new();
        let engine = with_shards(&world, 64).await.unwrap();
        for n in 0..entities {
            open(&engine, &format!("a{n}"), n).await;
        }
        if graceful {
            engine.stop().await;
        }
        drop(engine);
        for other in [48, 256] {
            assert_refused(&world, other).await;
        }
        let engine = with_shards(&world, 64).await.unwrap();
        for n in 0..entities {
            assert_eq!(balance(&engine, &format!("a{n}")).await, n);
        }
    }
}

#[tokio::test]
async fn the_records_refuse_another_shard_count_without_the_store() {
    let mut world = World::new();
    let engine = with_shards(&world, 64).await.unwrap();
    let opened = (0..20).map(|n| {
        let engine = engine.clone();
        tokio::spawn(async move { open(&engine, &format!("a{n}"), n).await })
    });
    for opened in opened.collect::<Vec<_>>() {
        opened.await.unwrap();
    }
    engine.stop().await;
    world.store = MemoryStore::new(world.journal.clone());
    let refused = with_shards(&world, 48).await;
    assert!(matches!(refused, Err(StartError::Layout(_))));
    let engine = with_shards(&world, 64).await.unwrap();
    assert_eq!(balance(&engine, "a7").await, 7);
    engine.stop().await;
    assert_refused(&world, 48).await;
}
