//! The number of shards is determined by the journal, not by the program.

use crate::{Command, ask, hits, quiet_options, service};

#[test]
fn another_shard_count_is_refused_at_start_and_loses_nothing() {
    service(0).shards(8).options(quiet_options()).run(|sim| async move {
        for number in 0..20 {
            ask(&sim, &number.to_string(), Command::Hit).await.unwrap();
        }
        sim.kill();
        sim.set_shards(5);
        let started = sim.start().await.unwrap();
        let why = started
            .expect_err("it started with another number of shards")
            .to_string();
        assert!(why.contains('8') && why.contains('5'), "it says what to do: {why}");
        sim.set_shards(8);
        sim.restart().await;
        for number in 0..20 {
            assert_eq!(hits(&sim, &number.to_string()).await, 1);
        }
    });
}

#[test]
fn another_shard_count_is_refused_also_when_the_store_was_lost() {
    service(1).shards(8).options(quiet_options()).run(|sim| async move {
        ask(&sim, "one", Command::Hit).await.unwrap();
        sim.kill();
        sim.lose_store();
        sim.set_shards(5);
        assert!(
            sim.start().await.unwrap().is_err(),
            "it started with another number of shards"
        );
    });
}
