//! Streams of some shards each.

use super::{Expected, Harness, Process, is_refused, shards};
use crate::{Error, Journal as _, ShardSet};

/// A node's new stream ends its earlier one; the other nodes' go on, side by side.
pub fn opening_again_ends_the_nodes_own_stream_and_no_other<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let mut b = Process::serving(harness, &place, "b", &[2, 3]);
    for _ in 0..3 {
        a.append(&mut expected, &[(0, "of-a")]);
        b.append(&mut expected, &[(2, "of-b")]);
    }
    let earlier = (a.writer, a.number);
    a.open(&[0, 1]);
    assert!(a.writer > b.writer, "a later stream has a greater number");
    let ended = a.run(a.member.journal.seal(earlier.0)).expect("it has ended");
    assert_eq!(ended.0, earlier.1);
    let later = (a.writer, a.number);
    (a.writer, a.number) = earlier;
    assert!(a.try_append(&mut expected, &[(0, "of-a")]).is_err(), "it has ended");
    (a.writer, a.number) = later;
    b.append(&mut expected, &[(3, "of-b-too")]);
    a.append(&mut expected, &[(1, "of-a-too")]);
}

/// A stream of a shard that is another's, or nobody's, is not opened; what the node has open goes on.
pub fn a_refused_opening_ends_nothing<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let mut b = Process::serving(harness, &place, "b", &[2]);
    for others in [[0, 2], [0, 9]] {
        let refused = a.try_open(&others);
        assert!(is_refused(&refused), "found {refused:?}");
    }
    a.append(&mut expected, &[(0, "of-a")]);
    b.append(&mut expected, &[(2, "of-b")]);
}

/// A node that was declared dead, or has left, opens no stream and lands nothing any more.
pub fn a_node_that_is_over_opens_nothing<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let judge = Process::joined(harness, &place, "judge");
    let mut dead = Process::serving(harness, &place, "dead", &[0]);
    let mut left = Process::serving(harness, &place, "left", &[1]);
    assert!(judge.declare_dead(&dead, dead.beats()).expect("a living one declares"));
    left.leave();
    for over in [&mut dead, &mut left] {
        assert!(
            over.try_append(&mut expected, &[(0, "late")]).is_err(),
            "its stream has ended"
        );
        let opened = over.try_open(&[0]);
        assert!(
            matches!(opened, Err(Error::Gone(id)) if id == over.id),
            "found {opened:?}"
        );
        let beaten = over.beat(crate::NodeState::Serving);
        assert!(
            matches!(beaten, Err(Error::Gone(id)) if id == over.id),
            "found {beaten:?}"
        );
    }
}

/// Exactly those that overlap, each once, in the order of their numbers.
pub fn take_lists_the_ended_streams_that_may_hold_the_shards<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    a.append(&mut expected, &[(0, "zero"), (1, "one")]);
    let mut b = Process::serving(harness, &place, "b", &[2, 3]);
    b.append(&mut expected, &[(2, "two")]);
    b.append(&mut expected, &[(3, "three")]);
    let (first_of_a, first_of_b) = ((a.writer, 1), (b.writer, 2));
    assert!(a.before().is_empty() && b.before().is_empty());
    // Shard 1 moves.
    a.open(&[0]);
    a.append(&mut expected, &[(0, "zero")]);
    a.give(&b, &[1]).expect("no open stream of the giver may hold it");
    b.open(&[1, 2, 3]);
    b.append(&mut expected, &[(1, "one")]);
    assert_eq!(a.before(), [first_of_a], "the other's first never held shard 0");
    assert_eq!(b.before(), [first_of_a, first_of_b]);
    let some = b.taken(&shards(&[3])).expect("an open stream's engine takes");
    assert_eq!(some, [first_of_b], "only of the shards asked for");
    let none = b.taken(&ShardSet::default()).expect("an open stream's engine takes");
    assert!(none.is_empty(), "nothing holds no shard");
    // The other one dies: what it had open is the taker's too.
    assert!(b.declare_dead(&a, a.beats()).expect("a living one declares"));
    assert_eq!(b.take(&[0]), shards(&[0]));
    let refused = a.taken(&shards(&[0]));
    assert!(
        matches!(refused, Err(Error::Sealed(writer)) if writer == a.writer),
        "found {refused:?}"
    );
    let second_of_b = (b.writer, 1);
    b.open(&[0, 1, 2, 3]);
    assert_eq!(b.before(), [first_of_a, first_of_b, (a.writer, 1), second_of_b]);
}

/// A single engine and a cluster never serve a journal at a time.
pub fn an_engine_alone_is_refused_while_a_node_lives_and_takes_all_after_them<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut alone = Process::alone(harness, &place);
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let mut b = Process::serving(harness, &place, "b", &[2]);
    a.append(&mut expected, &[(0, "zero")]);
    b.append(&mut expected, &[(2, "two")]);
    let refused = alone.open_alone();
    assert!(is_refused(&refused), "found {refused:?}");
    a.append(&mut expected, &[(0, "zero")]);
    a.seal();
    a.leave();
    let refused = alone.open_alone();
    assert!(is_refused(&refused), "one of them lives: {refused:?}");
    b.seal();
    b.leave();
    alone.open_alone().expect("all of them have left");
    assert_eq!(alone.before(), [(a.writer, 2), (b.writer, 1)]);
    alone.append(&mut expected, &[(0, "zero"), (2, "two")]);
    alone.checkpoint();
    alone.assert_histories(&expected);
}
