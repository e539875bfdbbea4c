//! Membership and ownership.

use super::{Expected, Harness, Process, is_refused, join, shards};
use crate::{Directory as _, Error, FEATURES, Floor, Join, NodeId, NodeState, ShardId, ShardSet};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A name is free again once its node is over; a number never is. All nodes have as many shards.
pub fn one_name_is_one_node_that_lives<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let other = Process::alone(harness, &place);
    let refused = other.join(&join("a"));
    assert!(is_refused(&refused), "found {refused:?}");
    let refused = other.join(&Join {
        shards: super::SHARDS * 2,
        ..join("b")
    });
    assert!(is_refused(&refused), "found {refused:?}");
    let b = Process::joined(harness, &place, "b");
    assert!(b.id > a.id);
    let view = b.view();
    assert_eq!(view.owners, vec![None; usize::from(super::SHARDS)]);
    let found: Vec<_> = view
        .nodes
        .iter()
        .map(|node| (node.id, node.said.clone(), node.state))
        .collect();
    let serving = NodeState::Serving;
    assert_eq!(found, [(a.id, join("a"), serving), (b.id, join("b"), serving)]);
    assert!(!view.cluster.is_empty() && view.cluster == a.view().cluster);
    a.leave();
    let again = Process::joined(harness, &place, "a");
    assert!(again.id > b.id, "a number is given once");
}

/// All nodes see a node's state. Only leaving, or a declaration by others, ends it.
pub fn a_draining_node_is_given_nothing_and_a_beat_ends_no_life<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    let before = a.beats();
    let view = a.beat(NodeState::Draining).expect("a living node beats");
    assert_eq!(
        view.node(a.id).map(|node| (node.state, node.beat)),
        Some((NodeState::Draining, before + 1))
    );
    assert_eq!(b.view().node(a.id).expect("it lives").state, NodeState::Draining);
    b.take(&[0, 1]);
    let refused = b.give(&a, &[0]);
    assert!(is_refused(&refused), "found {refused:?}");
    a.beat(NodeState::Serving).expect("it serves again");
    b.give(&a, &[0]).expect("a serving node is given a shard");
    for over in [NodeState::Left, NodeState::Dead] {
        let refused = a.beat(over);
        assert!(is_refused(&refused), "found {refused:?}");
    }
    assert_eq!(
        a.beat(NodeState::Serving).expect("it lives").shards_of(Some(a.id)),
        shards(&[0])
    );
}

/// A beat in between is life; who is over judges nobody.
pub fn only_a_silent_node_is_declared_dead_and_only_by_one_that_lives<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let a = Process::joined(harness, &place, "a");
    let mut b = Process::serving(harness, &place, "b", &[0]);
    let seen = b.beats();
    b.beat(NodeState::Serving).expect("a living node beats");
    assert!(
        !a.declare_dead(&b, seen).expect("a living one asks"),
        "it has beaten since"
    );
    b.append(&mut expected, &[(0, "zero")]);
    assert!(a.declare_dead(&b, b.beats()).expect("a living one asks"));
    assert!(
        b.try_append(&mut expected, &[(0, "zero")]).is_err(),
        "nothing of it lands"
    );
    let late = b.declare_dead(&a, a.beats());
    assert!(matches!(late, Err(Error::Gone(id)) if id == b.id), "found {late:?}");
    let late = b.run(b.member.directory.take(b.id, &shards(&[5])));
    assert!(matches!(late, Err(Error::Gone(id)) if id == b.id), "found {late:?}");
    let late = b.give(&a, &[0]);
    assert!(matches!(late, Err(Error::Gone(id)) if id == b.id), "found {late:?}");
    assert_eq!(
        a.view().node(b.id).map(|node| node.state),
        Some(NodeState::Dead),
        "it still owns a shard"
    );
    assert_eq!(a.take(&[0]), shards(&[0]));
    assert_eq!(a.view().node(b.id), None, "nothing is left of it");
    let stranger = a.run(a.member.directory.declare_dead(a.id, NodeId(9_999), 0));
    assert!(!stranger.expect("a living one asks"), "nobody");
}

/// The second one changes nothing, and the shards are one's.
pub fn what_is_declared_dead_by_two_ends_once<H: Harness>(harness: &H) {
    let place = harness.create();
    let dead = Process::serving(harness, &place, "dead", &[0, 1, 2]);
    let (a, b) = (
        Process::joined(harness, &place, "a"),
        Process::joined(harness, &place, "b"),
    );
    let beat = dead.beats();
    assert!(a.declare_dead(&dead, beat).expect("a living one asks"));
    let version = a.view().version;
    assert!(!b.declare_dead(&dead, beat).expect("a living one asks"));
    assert_eq!(a.view().version, version, "nothing has changed");
    let (of_a, of_b) = (a.take(&[0, 1]), b.take(&[0, 1, 2]));
    assert_eq!((of_a, of_b), (shards(&[0, 1]), shards(&[2])));
}

/// Only what is nobody's, or is of one that is over.
pub fn nobody_takes_from_a_node_that_lives<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    assert_eq!(a.take(&[0, 1, 2, 500]), shards(&[0, 1, 2]), "there is no shard 500");
    assert_eq!(b.take(&[0, 1, 2, 3]), shards(&[3]));
    a.beat(NodeState::Draining).expect("a living node beats");
    assert_eq!(b.take(&[0]), ShardSet::default(), "who drains gives");
    a.leave();
    assert_eq!(b.take(&[1, 0]), shards(&[0, 1]));
    let view = b.view();
    assert_eq!(view.shards_of(Some(b.id)), shards(&[0, 1, 3]));
    assert_eq!(view.shards_of(Some(a.id)), shards(&[2]), "until somebody takes it");
}

/// All of them go, or none.
pub fn a_node_gives_only_what_it_owns_and_no_stream_of_it_may_hold<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut a = Process::serving(harness, &place, "a", &[0, 1, 2]);
    let b = Process::joined(harness, &place, "b");
    let refused = a.give(&b, &[1]);
    assert!(is_refused(&refused), "its open stream may hold it: {refused:?}");
    a.open(&[0, 2]);
    for others in [&[1, 0][..], &[1, 3], &[3]] {
        let refused = a.give(&b, others);
        assert!(is_refused(&refused), "{others:?}: {refused:?}");
    }
    assert_eq!((a.owned(), b.owned()), (shards(&[0, 1, 2]), ShardSet::default()));
    a.give(&b, &[1]).expect("no open stream of the giver may hold it");
    assert_eq!((a.owned(), b.owned()), (shards(&[0, 2]), shards(&[1])));
    let again = a.give(&b, &[1]);
    assert!(is_refused(&again), "as where the answer was lost: {again:?}");
    assert_eq!(b.owned(), shards(&[1]));
    let gone = Process::joined(harness, &place, "gone");
    gone.leave();
    a.seal();
    let refused = a.give(&gone, &[0]);
    assert!(is_refused(&refused), "found {refused:?}");
    a.give(&b, &[0, 2]).expect("no stream of the giver is open");
    assert_eq!(b.owned(), shards(&[0, 1, 2]));
}

/// Its stream ends with it.
pub fn a_node_that_leaves_frees_what_it_owns<H: Harness>(harness: &H) {
    let place = harness.create();
    let mut expected = Expected::new();
    let mut a = Process::serving(harness, &place, "a", &[0, 1]);
    let mut b = Process::joined(harness, &place, "b");
    a.append(&mut expected, &[(0, "zero")]);
    a.seal();
    a.leave();
    a.leave();
    assert!(
        a.try_append(&mut expected, &[(0, "zero")]).is_err(),
        "its stream has ended"
    );
    assert_eq!(b.take(&[0, 1]), shards(&[0, 1]));
    b.open(&[0, 1]);
    assert_eq!(b.before(), [(a.writer, 1)]);
}

/// The node is asked by its name, while it lives.
pub fn a_node_that_is_asked_to_drain_knows_it<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    let ask = |name, drain| b.run(b.member.directory.ask_drain(name, drain)).expect("it is asked");
    let wants = |id| a.run(a.member.directory.wants_drain(id)).expect("it knows");
    assert!(!wants(a.id));
    assert!(ask("a", true));
    assert!(wants(a.id) && !wants(b.id));
    assert!(ask("a", false));
    assert!(!wants(a.id));
    assert!(!ask("c", true), "nobody is called so");
    a.leave();
    assert!(!ask("a", true), "nobody of the name lives");
}

/// The drain is of a name, as long as nobody says otherwise.
pub fn a_drain_outlives_a_restart<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let ask = |drain| a.run(a.member.directory.ask_drain("a", drain)).expect("it is asked");
    let starts_again = |before: &Process<'_, H>| {
        before.leave();
        let again = Process::joined(harness, &place, "a");
        let wants = again.run(again.member.directory.wants_drain(again.id));
        (wants.expect("it knows"), again)
    };
    assert!(ask(true));
    let (wants, a) = starts_again(&a);
    assert!(wants, "the drain is forgotten");
    let ask = |drain| a.run(a.member.directory.ask_drain("a", drain)).expect("it is asked");
    assert!(ask(false));
    assert!(!starts_again(&a).0, "its end is forgotten");
}

/// Nodes that live go by one lease, and have the kinds of all; a newer release may have given one up.
pub fn unequal_leases_and_missing_kinds_are_refused<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let other = Process::alone(harness, &place);
    let is_told = |join: Join, said: &[&str]| match other.join(&join) {
        Err(Error::Refused(why)) => assert!(said.iter().all(|said| why.contains(said)), "{why}"),
        joined => panic!("{said:?}: found {joined:?}"),
    };
    let longer = Join {
        lease: Duration::from_secs(20),
        ..join("b")
    };
    is_told(longer.clone(), &["20s", "3s", "\"a\"", "--cluster-lease"]);
    let without = Join {
        kinds: vec!["show".into()],
        ..join("b")
    };
    is_told(without.clone(), &["account", "\"a\"", "--app-number"]);
    let newer = Join { app: 8, ..without };
    let id = other.join(&newer).expect("a newer release");
    other.run(other.member.directory.leave(id)).expect("it leaves");
    a.leave();
    other.join(&longer).expect("nobody else lives");
}

/// A node that says that it drains is cut off no more, and is given nothing until it serves again.
pub fn a_node_that_others_miss_is_cut_off_until_it_drains<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    let reach = |from: &Process<'_, H>, of: &[NodeId]| {
        let reaches = of.iter().copied().collect();
        from.run(from.member.directory.reach(from.id, &reaches))
            .expect("it is noted");
    };
    let cut_off = |of: &Process<'_, H>| a.run(a.member.directory.cut_off(a.id, of.id)).expect("it is asked");
    a.take(&[0, 1]);
    reach(&a, &[a.id, b.id]);
    reach(&b, &[a.id, b.id]);
    assert!(!cut_off(&b), "all reach it");
    reach(&a, &[a.id]);
    assert_eq!(b.view().node(a.id).expect("it lives").reaches, [a.id].into());
    assert!(!cut_off(&a) && cut_off(&b), "only the one that is missed");
    let seen = b.beat(NodeState::Serving).expect("it lives");
    assert!(
        seen.node(b.id).expect("it lives").is_cut_off,
        "a beat that did not know it"
    );
    let refused = a.give(&b, &[0]);
    assert!(is_refused(&refused), "found {refused:?}");
    b.beat(NodeState::Draining).expect("it lives");
    let seen = b.beat(NodeState::Serving).expect("it lives");
    assert!(!seen.node(b.id).expect("it lives").is_cut_off);
    a.give(&b, &[0]).expect("it serves again");
    a.leave();
    let late = a.run(a.member.directory.cut_off(a.id, b.id));
    assert!(matches!(late, Err(Error::Gone(id)) if id == a.id), "found {late:?}");
}

/// Checks that shards stay pinned to a node's name over its restarts, until they are pinned otherwise. The owner of the
/// shards is not asked.
pub fn shards_stay_pinned_to_a_name_until_it_is_said_otherwise<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    let pin = |of: &[u16], to| b.run(b.member.directory.pin(&shards(of), to));
    let pins = |of: &[(u16, &str)]| {
        let pins = of.iter().map(|(shard, name)| (ShardId(*shard), (*name).to_owned()));
        let pins: BTreeMap<ShardId, String> = pins.collect();
        assert_eq!(b.view().pins, pins);
        assert_eq!(b.beat(NodeState::Serving).expect("a living node beats").pins, pins);
    };
    a.take(&[0, 1]);
    pins(&[]);
    pin(&[0, 1, 5], Some("b")).expect("it serves");
    pins(&[(0, "b"), (1, "b"), (5, "b")]);
    assert_eq!(
        (a.owned(), b.owned()),
        (shards(&[0, 1]), ShardSet::default()),
        "a wish gives nothing"
    );
    pin(&[1, 2], Some("a")).expect("it serves");
    pins(&[(0, "b"), (1, "a"), (2, "a"), (5, "b")]);
    a.leave();
    pins(&[(0, "b"), (1, "a"), (2, "a"), (5, "b")]);
    let again = Process::joined(harness, &place, "a");
    assert_eq!(again.view().pins, b.view().pins);
    pin(&[0, 2, 9], None).expect("whatever was pinned");
    pins(&[(1, "a"), (5, "b")]);
}

/// Each says what stands against it.
pub fn shards_that_cannot_be_pinned_change_nothing<H: Harness>(harness: &H) {
    let place = harness.create();
    let none = Process::alone(harness, &place);
    let pin = |of: &[u16], to| none.run(none.member.directory.pin(&shards(of), to));
    let is_told = |refused: Result<(), Error>, said: &str| match refused {
        Err(Error::Refused(why)) => assert!(why.contains(said), "{why}"),
        other => panic!("{said}: found {other:?}"),
    };
    is_told(pin(&[0], Some("a")), "no node of a cluster has ever joined");
    is_told(pin(&[0], None), "no node of a cluster has ever joined");
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    pin(&[0], Some("a")).expect("it serves");
    is_told(pin(&[1], Some("c")), "there is no node \"c\" that lives");
    is_told(pin(&[], Some("a")), "no shard is named");
    for to in [Some("a"), None] {
        is_told(pin(&[0, 15, 16, 20], to), "there are no shards 16,20");
    }
    b.leave();
    is_told(pin(&[1], Some("b")), "there is no node \"b\" that lives");
    assert_eq!(a.view().pins, BTreeMap::from([(ShardId(0), "a".to_owned())]));
    let old = Process::alone(harness, &place);
    old.join(&Join {
        features: 0,
        ..join("old")
    })
    .expect("it joins");
    is_told(pin(&[1], Some("a")), "the node \"old\" runs an older program (test 1)");
}

/// This holds for a node that drains by itself and for one that was asked to.
pub fn a_draining_node_is_pinned_nothing<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let pin = |to| a.run(a.member.directory.pin(&shards(&[3]), to));
    let is_told = |refused: Result<(), Error>, part| match refused {
        Err(Error::Refused(why)) => assert!(why.contains(part), "{why}"),
        other => panic!("found {other:?}"),
    };
    let ask = |drain| a.run(a.member.directory.ask_drain("a", drain)).expect("it is asked");
    assert!(ask(true));
    is_told(pin(Some("a")), "gives away its shards");
    assert!(ask(false));
    a.beat(NodeState::Draining).expect("a living node beats");
    is_told(pin(Some("a")), "may own no shards now");
    assert!(a.view().pins.is_empty());
    a.beat(NodeState::Serving).expect("a living node beats");
    pin(Some("a")).expect("it serves");
    assert_eq!(a.view().pins.len(), 1);
}

/// Finalizing makes what all living nodes have a condition for nodes that join later.
pub fn after_it_is_finalized_older_programs_and_releases_are_not_let_in<H: Harness>(harness: &H) {
    let place = harness.create();
    let none = Process::alone(harness, &place);
    let finalize = || none.run(none.member.directory.finalize());
    let nobody = finalize();
    assert!(is_refused(&nobody), "found {nobody:?}");
    let a = Process::joined(harness, &place, "a");
    let floor = |features, app| Floor { features, app };
    let older = |features, app| Join {
        features,
        app,
        ..join("older")
    };
    let old = Process::alone(harness, &place);
    let id = old.join(&older(0, 5)).expect("nothing is finalized");
    assert_eq!(finalize().expect("two live"), (floor(0, 0), floor(0, 5)));
    assert_eq!(a.view().floor, floor(0, 5));
    old.run(old.member.directory.leave(id)).expect("it leaves");
    let is_told = |older: &Join, said: &str| match old.join(older) {
        Err(Error::Refused(why)) => assert!(why.contains(said), "{why}"),
        other => panic!("{said}: found {other:?}"),
    };
    is_told(&older(0, 4), "this is release 4 of the service");
    let id = old.join(&older(0, 6)).expect("it is new enough");
    old.run(old.member.directory.leave(id)).expect("it leaves");
    assert_eq!(finalize().expect("one lives"), (floor(0, 5), floor(FEATURES, 7)));
    assert_eq!(finalize().expect("one lives").1, floor(FEATURES, 7));
    is_told(&older(0, 7), "this program (test 1) knows the features up to 0");
    is_told(&older(FEATURES, 6), "this is release 6 of the service");
    assert_eq!(a.beat(NodeState::Serving).expect("it lives").floor, floor(FEATURES, 7));
    old.join(&older(FEATURES, 7)).expect("it is as new as all");
}

/// A node that has seen a version has seen everything before it; a beat alone raises none.
pub fn the_version_grows_with_every_change<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let mut last = a.view().version;
    let mut grows = |what: &str| {
        let version = a.view().version;
        assert!(version > last, "{what}");
        last = version;
    };
    let b = Process::joined(harness, &place, "b");
    grows("a join");
    a.take(&[0, 1]);
    grows("shards taken");
    a.give(&b, &[1]).expect("no stream of the giver is open");
    grows("shards given");
    b.beat(NodeState::Draining).expect("a living node beats");
    grows("another state");
    b.leave();
    grows("a node that left");
    a.take(&[1]);
    grows("shards taken again");
    let pin = |to| a.run(a.member.directory.pin(&shards(&[1]), to)).expect("it serves");
    pin(Some("a"));
    grows("a shard pinned");
    pin(None);
    grows("a shard pinned no more");
    let seen = a.view();
    a.take(&[0, 1]);
    let beaten = a.beat(NodeState::Serving).expect("a living node beats");
    assert_eq!(beaten.version, seen.version, "nothing has changed");
}

/// Also when the change comes right behind the call; and it ends when nothing changes.
pub fn a_change_is_told_and_a_wait_for_none_ends<H: Harness>(harness: &H) {
    let place = harness.create();
    let a = Process::joined(harness, &place, "a");
    let b = Process::joined(harness, &place, "b");
    let short = Duration::from_millis(100);
    // One that begins to listen may look once more than it has to.
    let waits = (0..10).any(|_| {
        let begun = Instant::now();
        a.run(a.member.directory.changed(short));
        begun.elapsed() >= short
    });
    assert!(waits, "nothing changes");
    for shard in 0..8 {
        let begun = Instant::now();
        let changed = a.member.directory.changed(LONG);
        b.take(&[shard]);
        a.run(changed);
        assert!(begun.elapsed() < LONG / 2, "the change was not told");
    }
}
