//! Checkpoints of some shards each.

use super::{Expected, Harness, Process, is_refused, join, shards};
use crate::{Checkpoint, Error, Maybe, ShardSet, Store as _};

/// Each covers its own shards, and nothing is said of those of nobody.
pub fn checkpoints_of_two_nodes_stand_side_by_side<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let mut b = Process::serving(harness, &place, "b", &[2, 3]);
    a.append(&mut expected, &[(0, "zero"), (1, "one")]);
    b.append(&mut expected, &[(2, "two"), (3, "three"), (2, "two")]);
    a.checkpoint();
    assert_eq!(a.covered(0), Some(a.position()));
    assert_eq!((a.covered(2), a.covered(9)), (None, None));
    b.checkpoint();
    let first = b.position();
    b.append(&mut expected, &[(2, "two")]);
    a.append(&mut expected, &[(1, "one")]);
    a.checkpoint();
    assert_eq!((a.covered(1), a.covered(3)), (Some(a.position()), Some(first)));
    let covers = a.covers();
    let all = covers
        .iter()
        .flat_map(|covered| covered.shards.iter().collect::<Vec<_>>());
    assert_eq!(
        all.count(),
        usize::from(super::SHARDS),
        "each stands in one entry: {covers:?}"
    );
    assert_eq!(covers.len(), 3, "those that are covered alike share one: {covers:?}");
    b.checkpoint();
    a.assert_histories(&expected);
}

/// Some of a shard's events were covered where it was before, some were not.
pub fn the_events_of_a_shard_that_moves_are_indexed_once<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let mut b = Process::serving(harness, &place, "b", &[2]);
    a.append(&mut expected, &[(0, "zero"), (1, "one"), (1, "uno")]);
    a.checkpoint();
    a.append(&mut expected, &[(1, "one"), (0, "zero")]);
    b.append(&mut expected, &[(2, "two")]);
    // What is behind the checkpoint of it is read by whom it comes to.
    a.open(&[0]);
    a.give(&b, &[1]).expect("no open stream of the giver may hold it");
    b.open(&[1, 2]);
    b.append(&mut expected, &[(1, "one"), (2, "two")]);
    a.append(&mut expected, &[(0, "zero")]);
    a.checkpoint();
    assert_ne!(
        a.covered(1),
        a.covered(0),
        "a checkpoint says nothing of what was given away"
    );
    b.checkpoint();
    assert_eq!((a.covered(1), a.covered(2)), (Some(b.position()), Some(b.position())));
    assert_eq!(a.covered(0), Some(a.position()));
    a.assert_histories(&expected);
    // And back, to a stream with a greater number than both.
    b.append(&mut expected, &[(1, "one"), (1, "uno")]);
    b.open(&[2]);
    b.give(&a, &[1]).expect("no open stream of the giver may hold it");
    a.open(&[0, 1]);
    a.append(&mut expected, &[(1, "uno"), (0, "zero")]);
    b.checkpoint();
    a.checkpoint();
    a.checkpoint();
    a.assert_histories(&expected);
}

/// Its engine does not know what the next owner of its shards has stored since.
pub fn a_checkpoint_of_a_stream_that_has_ended_leaves_nothing<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let b = Process::joined(harness, &place, "b");
    a.append(&mut expected, &[(0, "zero")]);
    let late = Checkpoint {
        system: vec![(b"row".to_vec(), Some(b"of a dead node".to_vec()))],
        ..a.upto_here()
    };
    assert!(b.declare_dead(&a, a.beats()).expect("a living one declares"));
    let refused = a.advance(late.clone());
    assert!(
        matches!(refused, Err(Error::Sealed(writer)) if writer == a.writer),
        "found {refused:?}"
    );
    let row = match a.member.store.system(b"row") {
        Maybe::Ready(row) => row,
        Maybe::Later(later) => a.run(later),
    };
    assert_eq!(row.expect("a system row"), None);
    assert_eq!(a.covered(0), None);
    assert!(a.history("zero").is_empty(), "nothing of it is there");
    // Nor if its node lives, and has given the shard away.
    let mut c = Process::serving(harness, &place, "c", &[5]);
    c.append(&mut expected, &[(5, "five")]);
    let late = c.upto_here();
    c.seal();
    c.give(&b, &[5]).expect("no open stream of the giver may hold it");
    assert!(c.advance(late).is_err(), "its stream has ended");
    assert_eq!(c.covered(5), None);
}

/// Only the owner of a shard says how far it is covered.
pub fn a_checkpoint_says_nothing_of_shards_that_are_not_its_streams<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    a.append(&mut expected, &[(0, "zero")]);
    let refused = a.advance(Checkpoint {
        shards: shards(&[0, 1, 2]),
        ..a.upto_here()
    });
    assert!(is_refused(&refused), "found {refused:?}");
    assert_eq!((a.covered(0), a.covered(2)), (None, None));
}

/// Nodes go on from the coverage of a single engine, shard by shard; and a single engine goes on from theirs.
pub fn from_one_engine_to_a_cluster_and_back_nothing_is_indexed_twice<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let ids = [(0, "zero"), (1, "one"), (2, "two"), (3, "three")];
    let mut alone = Process::alone(harness, &place);
    for round in 0..2 {
        alone.open_alone().expect("no node lives");
        alone.append(&mut expected, &ids);
        alone.checkpoint();
        let covers = alone.covers();
        assert_eq!(covers.len(), 1, "all are covered alike: {covers:?}");
        assert_eq!(covers[0].shards, ShardSet::first(super::SHARDS));
        assert_eq!(covers[0].upto, Some(alone.position()));
        alone.append(&mut expected, &ids);
        alone.seal();
        let covered = alone.covered(0);
        let mut a = Process::alone(harness, &place);
        a.id = a.join(&join("a")).expect("the engine before has ended");
        let mut b = Process::joined(harness, &place, "b");
        let (of_a, of_b) = if round == 0 { ([0, 1], [2, 3]) } else { ([2, 1], [0, 3]) };
        a.take(&of_a);
        a.open(&of_a);
        b.take(&of_b);
        b.open(&of_b);
        for (shard, id) in ids {
            let owner = if of_a.contains(&shard) { &mut a } else { &mut b };
            owner.append(&mut expected, &[(shard, id)]);
        }
        a.checkpoint();
        assert_eq!((a.covered(1), a.covered(3)), (Some(a.position()), covered));
        a.append(&mut expected, &[(1, "one")]);
        if round == 0 {
            // In the other round one of them has covered nothing.
            b.checkpoint();
            a.assert_histories(
                &expected
                    .iter()
                    .filter(|(id, _)| *id != "one")
                    .map(|(id, of)| (id.clone(), of.clone()))
                    .collect(),
            );
        }
        for node in [a, b] {
            node.seal();
            node.leave();
        }
    }
    alone.open_alone().expect("all nodes have left");
    alone.checkpoint();
    alone.assert_histories(&expected);
}
