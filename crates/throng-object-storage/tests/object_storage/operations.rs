//! Each operation on a real storage.

use crate::{SERVER, block_on, fresh, fresh_place, opened};
use std::sync::Arc;
use throng_conditional::{ConditionalStore as _, Fault, Object, PutNew, Replaced, Version};
use throng_object_storage::{Bucket, S3Location};

fn created(bucket: &Bucket, key: &str, body: &'static str) -> Version {
    match block_on(bucket.put_new(key, body.into())) {
        PutNew::Stored(version) => version,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn object_is_created_once_and_replaced_by_version() {
    let bucket = fresh();
    let first = created(&bucket, "a/b.1", "one");
    assert_eq!(block_on(bucket.put_new("a/b.1", "two".into())), PutNew::Exists);
    let object = Object {
        body: "one".into(),
        version: first.clone(),
    };
    assert_eq!(block_on(bucket.get("a/b.1")), Ok(Some(object)));
    let Replaced::Stored(second) = block_on(bucket.replace("a/b.1", "two".into(), &first)) else {
        panic!("it had this version")
    };
    assert_ne!(first, second);
    assert_eq!(
        block_on(bucket.replace("a/b.1", "three".into(), &first)),
        Replaced::Changed
    );
    assert_eq!(
        block_on(bucket.replace("a/none", "three".into(), &first)),
        Replaced::Changed
    );
    assert_eq!(block_on(bucket.version("a/b.1")), Ok(Some(second)));
    assert_eq!(block_on(bucket.version("a/none")), Ok(None));
    assert_eq!(block_on(bucket.get("a/none")), Ok(None));
}

#[test]
fn deleted_object_is_gone_and_deleting_again_is_no_error() {
    let bucket = fresh();
    let version = created(&bucket, "a", "one");
    for _ in 0..2 {
        assert_eq!(block_on(bucket.delete("a")), Ok(()));
    }
    assert_eq!(block_on(bucket.get("a")), Ok(None));
    assert_eq!(block_on(bucket.replace("a", "two".into(), &version)), Replaced::Changed);
}

#[test]
fn ranges_end_with_the_object() {
    let bucket = fresh();
    created(&bucket, "a", "0123456789");
    for (from, len, found) in [
        (0, 3, "012"),
        (8, 5, "89"),
        (10, 5, ""),
        (99, 5, ""),
        (2, 0, ""),
        (0, u64::MAX, "0123456789"),
    ] {
        assert_eq!(
            block_on(bucket.get_range("a", from, len)),
            Ok(Some(found.into())),
            "{from} {len}"
        );
    }
    for len in [0, 5] {
        assert_eq!(block_on(bucket.get_range("none", 0, len)), Ok(None));
    }
}

#[test]
fn empty_and_large_bodies_come_back_as_they_were() {
    let bucket = fresh();
    for (key, len) in [("none", 0), ("one", 1), ("large", 9 << 20)] {
        let body: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
        assert!(
            matches!(block_on(bucket.put_new(key, body.clone().into())), PutNew::Stored(_)),
            "{key}"
        );
        let object = block_on(bucket.get(key)).unwrap().unwrap();
        assert!(object.body == body, "{key}: {} bytes of {len}", object.body.len());
    }
}

#[test]
fn wrong_bucket_or_key_is_refused_with_the_reason() {
    let missing = opened("no-such-bucket/box", &SERVER.endpoint(), "");
    let said = |fault: Fault| match fault {
        Fault::Refused(why) => why,
        Fault::Unavailable(why) => panic!("it is refused: {why}"),
    };
    assert!(said(block_on(missing.get("a")).unwrap_err()).contains("no such bucket"));
    assert!(said(block_on(missing.version("a")).unwrap_err()).contains("no such bucket"));
    assert!(
        matches!(block_on(missing.put_new("a", "x".into())), PutNew::Refused(why) if why.contains("no such bucket"))
    );
    let location: S3Location = format!("s3://{}?endpoint={}", fresh_place(), SERVER.endpoint())
        .parse()
        .unwrap();
    for (access_key, secret) in [
        (servers::Seaweed::ACCESS_KEY, "wrong"),
        ("wrong", servers::Seaweed::SECRET_KEY),
    ] {
        let stranger = Arc::new(Bucket::open_as(location.clone(), access_key, secret).unwrap());
        let why = said(block_on(stranger.get("a")).unwrap_err());
        assert!(
            why.contains("access key") && !why.contains(servers::Seaweed::SECRET_KEY),
            "{why}"
        );
    }
}
