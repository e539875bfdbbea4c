//! Lost, late and duplicated answers, for each operation: an unknown outcome is never reported as known.

use crate::{
    SERVER, block_on, fresh_place, opened,
    proxy::{Fate, Proxy},
};
use servers::{Seaweed, Stop};
use std::sync::Arc;
use throng_conditional::{ConditionalStore as _, Fault, Object, PutNew, Replaced, Version};
use throng_object_storage::Bucket;

/// Returns a fresh prefix behind a proxy.
fn behind() -> (Arc<Bucket>, Proxy) {
    let proxy = Proxy::to(SERVER.port());
    (opened(&fresh_place(), &proxy.endpoint(), ""), proxy)
}

fn stored(put: PutNew) -> Version {
    match put {
        PutNew::Stored(version) => version,
        other => panic!("{other:?}"),
    }
}

fn body(bucket: &Bucket, key: &str) -> Option<Vec<u8>> {
    block_on(bucket.get(key))
        .unwrap()
        .map(|object: Object| object.body.to_vec())
}

#[test]
fn put_with_a_lost_answer_is_unknown_and_then_its_own() {
    for fate in [Fate::LoseAnswer, Fate::CutAnswer] {
        let (bucket, proxy) = behind();
        proxy.plan([fate]);
        let first = block_on(bucket.put_new("a", "one".into()));
        assert!(matches!(first, PutNew::Unknown(_)), "{fate:?}: {first:?}");
        assert_eq!(block_on(bucket.put_new("a", "one".into())), PutNew::Exists);
        assert_eq!(body(&bucket, "a").unwrap(), b"one", "reading it tells whose it is");
        assert_eq!(proxy.requests(), 3, "the client repeats nothing by itself");
    }
}

#[test]
fn put_that_never_arrived_is_unknown_and_then_stored() {
    let (bucket, proxy) = behind();
    proxy.plan([Fate::LoseRequest]);
    assert!(matches!(
        block_on(bucket.put_new("a", "one".into())),
        PutNew::Unknown(_)
    ));
    stored(block_on(bucket.put_new("a", "one".into())));
}

#[test]
fn put_delivered_twice_is_refused_for_its_own_sake() {
    let (bucket, proxy) = behind();
    proxy.plan([Fate::Twice]);
    assert_eq!(block_on(bucket.put_new("a", "one".into())), PutNew::Exists);
    assert_eq!(body(&bucket, "a").unwrap(), b"one");
}

#[test]
fn put_that_arrives_late_changes_nothing() {
    let (bucket, proxy) = behind();
    let name = bucket.location().to_string();
    let place = name.trim_start_matches("s3://").split(' ').next().unwrap();
    let hasty = opened(place, &proxy.endpoint(), "&timeout=300ms");
    proxy.plan([Fate::Delay]);
    let late = block_on(hasty.put_new("a", "late".into()));
    assert!(
        matches!(&late, PutNew::Unknown(why) if why.contains("300ms")),
        "{late:?}"
    );
    let version = stored(block_on(bucket.put_new("a", "one".into())));
    proxy.release(1);
    assert_eq!(
        block_on(bucket.get("a")),
        Ok(Some(Object {
            body: "one".into(),
            version
        }))
    );
}

#[test]
fn replacement_with_a_lost_answer_is_unknown() {
    let (bucket, proxy) = behind();
    let version = stored(block_on(bucket.put_new("a", "one".into())));
    for (fate, again) in [(Fate::LoseRequest, false), (Fate::LoseAnswer, true)] {
        proxy.plan([fate]);
        let lost = block_on(bucket.replace("a", "two".into(), &version));
        assert!(matches!(lost, Replaced::Unknown(_)), "{lost:?}");
        assert_eq!(body(&bucket, "a").unwrap() == b"two", again);
    }
    assert_eq!(block_on(bucket.replace("a", "two".into(), &version)), Replaced::Changed);
    let version = block_on(bucket.version("a")).unwrap().unwrap();
    proxy.plan([Fate::Twice]);
    assert_eq!(
        block_on(bucket.replace("a", "three".into(), &version)),
        Replaced::Changed
    );
    assert_eq!(body(&bucket, "a").unwrap(), b"three");
}

#[test]
fn deletion_with_a_lost_answer_may_be_repeated() {
    let (bucket, proxy) = behind();
    stored(block_on(bucket.put_new("a", "one".into())));
    for fate in [Fate::LoseRequest, Fate::LoseAnswer] {
        proxy.plan([fate]);
        assert!(matches!(block_on(bucket.delete("a")), Err(Fault::Unavailable(_))));
    }
    assert_eq!(body(&bucket, "a"), None);
    assert_eq!(block_on(bucket.delete("a")), Ok(()));
}

#[test]
fn read_that_is_lost_or_cut_short_is_no_answer() {
    let (bucket, proxy) = behind();
    stored(block_on(bucket.put_new("a", vec![b'x'; 100_000].into())));
    for fate in [Fate::LoseRequest, Fate::LoseAnswer, Fate::CutAnswer] {
        proxy.plan([fate; 2]);
        assert!(
            matches!(block_on(bucket.get("a")), Err(Fault::Unavailable(_))),
            "{fate:?}"
        );
        assert!(
            matches!(block_on(bucket.get_range("a", 0, 90_000)), Err(Fault::Unavailable(_))),
            "{fate:?}"
        );
    }
    for fate in [Fate::LoseRequest, Fate::LoseAnswer] {
        proxy.plan([fate]);
        assert!(
            matches!(block_on(bucket.version("a")), Err(Fault::Unavailable(_))),
            "{fate:?}"
        );
    }
}

#[test]
fn answer_of_something_between_is_not_taken_for_the_storages() {
    let (bucket, proxy) = behind();
    let page = "<html>not here</html>";
    proxy.plan([
        Fate::Say(404, "", page),
        Fate::Say(200, "", page),
        Fate::Say(502, "", page),
    ]);
    assert!(
        matches!(block_on(bucket.get("a")), Err(Fault::Refused(_))),
        "a page is not the end of a stream"
    );
    assert!(
        matches!(block_on(bucket.get("a")), Err(Fault::Refused(_))),
        "an object has an ETag"
    );
    assert!(matches!(block_on(bucket.get("a")), Err(Fault::Unavailable(_))));
    let conflict = "<Error><Code>ConditionalRequestConflict</Code></Error>";
    let slow = "<Error><Code>SlowDown</Code></Error>";
    proxy.plan([
        Fate::Say(409, "", conflict),
        Fate::Say(503, "", slow),
        Fate::Say(404, "", page),
    ]);
    assert_eq!(block_on(bucket.put_new("a", "one".into())), PutNew::Conflict);
    assert!(matches!(
        block_on(bucket.put_new("a", "one".into())),
        PutNew::Unknown(_)
    ));
    assert!(matches!(
        block_on(bucket.put_new("a", "one".into())),
        PutNew::Refused(_)
    ));
    assert_eq!(body(&bucket, "a"), None);
}

#[test]
fn restarted_storage_has_the_objects_it_acknowledged() {
    let mut server = Seaweed::start().unwrap();
    server.create_bucket("restarts").unwrap();
    let bucket = opened("restarts/box", &server.endpoint(), "");
    let version = stored(block_on(bucket.put_new("a", "one".into())));
    server.stop(Stop::Immediate);
    assert!(matches!(
        block_on(bucket.put_new("b", "two".into())),
        PutNew::Unknown(_)
    ));
    assert!(matches!(block_on(bucket.get("a")), Err(Fault::Unavailable(_))));
    server.resume().unwrap();
    assert_eq!(
        block_on(bucket.get("a")),
        Ok(Some(Object {
            body: "one".into(),
            version
        }))
    );
    assert_eq!(block_on(bucket.put_new("a", "two".into())), PutNew::Exists);
    stored(block_on(bucket.put_new("b", "two".into())));
}
