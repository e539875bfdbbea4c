//! Admission of a storage: rules of real buckets, and the trial on a real server.

use crate::{
    SERVER, block_on, fresh, fresh_bucket, fresh_place, opened,
    proxy::{Fate, Proxy},
};
use http::Method;
use std::sync::Arc;
use throng_conditional::{ConditionalStore as _, PutNew, ROOT, trial};
use throng_object_storage::{Bucket, Inadmissible};

/// Returns a new bucket in which a journal has begun.
fn begun() -> Arc<Bucket> {
    let bucket = opened(&format!("{}/box", fresh_bucket()), &SERVER.endpoint(), "");
    assert!(matches!(block_on(bucket.put_new(ROOT, "{}".into())), PutNew::Stored(_)));
    bucket
}

/// Sets a rule of the bucket.
fn set(bucket: &Bucket, query: &str, rule: &str) {
    let answer = block_on(bucket.ask_bucket(Method::PUT, query, rule.to_owned().into())).unwrap();
    assert!(answer.status().is_success(), "{query}: {answer:?}");
}

/// Returns the sentences about an admitted bucket, without the one about the server.
fn admitted(bucket: &Arc<Bucket>) -> Vec<String> {
    let mut warnings = block_on(bucket.admit()).unwrap();
    assert!(warnings[0].starts_with("SeaweedFS"), "{warnings:?}");
    warnings.split_off(1)
}

#[test]
fn storage_is_tried_until_a_journal_has_begun() {
    let proxy = Proxy::to(SERVER.port());
    let bucket = opened(&fresh_place(), &proxy.endpoint(), "");
    assert_eq!(admitted(&bucket), [] as [String; 0]);
    let tried = proxy.requests();
    assert!(tried > 120, "{tried} requests");
    assert!(matches!(block_on(bucket.put_new(ROOT, "{}".into())), PutNew::Stored(_)));
    assert_eq!(admitted(&bucket), [] as [String; 0]);
    assert!(proxy.requests() < tried + 10, "a journal that has begun is believed");
    block_on(bucket.verify()).unwrap();
    assert!(proxy.requests() > tried + 120);
}

#[test]
fn prefix_with_objects_of_something_else_is_refused() {
    let bucket = fresh();
    let put = |key| {
        let put = block_on(bucket.put_new(key, "theirs".into()));
        assert!(matches!(put, PutNew::Stored(_)), "{put:?}");
    };
    put("trial/left-by-one-that-was-killed");
    assert_eq!(admitted(&bucket), [] as [String; 0]);
    put("photo.jpg");
    let said = block_on(bucket.admit()).unwrap_err().to_string();
    assert!(said.contains("something else") && said.contains("photo.jpg"), "{said}");
}

#[test]
fn bucket_with_a_rule_that_removes_objects_is_refused() {
    let bucket = begun();
    let rule = |prefix: &str| {
        format!(
            "<LifecycleConfiguration><Rule><ID>tidy</ID><Status>Enabled</Status><Filter><Prefix>{prefix}</Prefix></Filter>\
             <Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>"
        )
    };
    set(&bucket, "lifecycle=", &rule("logs/"));
    assert_eq!(admitted(&bucket), [] as [String; 0]);
    set(&bucket, "lifecycle=", &rule("box/"));
    let said = block_on(bucket.admit()).unwrap_err();
    assert!(
        matches!(&said, Inadmissible::Rule { why, .. } if why.contains("\"tidy\"")),
        "{said}"
    );
    assert!(block_on(bucket.verify()).is_err());
}

#[test]
fn bucket_that_keeps_versions_is_admitted_with_a_warning() {
    let bucket = begun();
    set(
        &bucket,
        "versioning=",
        "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
    );
    let warnings = admitted(&bucket);
    assert!(
        matches!(&warnings[..], [warning] if warning.contains("old versions")),
        "{warnings:?}"
    );
}

#[test]
fn trial_passes_over_a_network_that_loses_and_doubles() {
    let proxy = Proxy::to(SERVER.port());
    let bucket = opened(&fresh_place(), &proxy.endpoint(), "");
    let weather = [
        Fate::Pass,
        Fate::LoseAnswer,
        Fate::Pass,
        Fate::Pass,
        Fate::LoseRequest,
        Fate::Pass,
        Fate::CutAnswer,
    ];
    proxy.plan(weather.into_iter().cycle().take(350));
    assert_eq!(block_on(trial(&*bucket, &*bucket.host())), Ok(()));
    assert!(proxy.requests() > 140);
}
