use super::{
    key::{BUCKET_MICROS, CommandKey, KeyLife, REFUSED_MAX, REFUSED_MICROS, until},
    *,
};
use crate::limits::KEY_MICROS;
use std::time::Duration;

const SHARD: ShardId = ShardId(3);

fn at(micros: i64) -> Timestamp {
    Timestamp { micros }
}

fn kept(print: u64, until: i64) -> KeptOutcome {
    KeptOutcome {
        print,
        until,
        answer: KeptAnswer::Reply("1".into()),
        rests_on: 0,
    }
}

fn rows(keys: &mut Keys, now: Timestamp) -> Vec<SystemRow> {
    let mut rows = Vec::new();
    keys.rows(SHARD, now, &mut rows);
    rows
}

/// Looks the key up in these rows.
fn look(keys: &mut Keys, key: u128, now: Timestamp, stored: &[SystemRow]) {
    let asked = keys.rows_of(SHARD, key, now);
    let row = |name| stored.iter().find(|(stored, _)| stored == name)?.1.as_deref();
    let mut found = asked
        .rows
        .iter()
        .filter_map(row)
        .filter_map(|row| asked.find(row).unwrap());
    keys.looked(&asked, found.next());
}

#[test]
fn a_key_is_found_fresh_stored_and_never_after_its_hour() {
    let (mut keys, now) = (Keys::default(), at(5));
    let until = until(now, KeyLife::default());
    assert!(matches!(keys.find(1, now), KeyLookup::Fresh));
    look(&mut keys, 1, now, &[]);
    keys.insert(1, kept(7, until));
    let stored = rows(&mut keys, now);
    assert!(
        matches!(keys.find(1, now), KeyLookup::Kept(_)),
        "while it is being stored"
    );
    keys.stored();
    assert!(
        matches!(keys.find(1, now), KeyLookup::Look),
        "it is a row now, whatever was looked up before"
    );
    look(&mut keys, 1, now, &stored);
    assert!(matches!(keys.find(1, now), KeyLookup::Kept(found) if found == kept(7, until)));
    assert!(matches!(keys.find(1, at(until)), KeyLookup::Fresh));
    let over = at(until + BUCKET_MICROS);
    assert!(keys.expired(now).is_empty());
    let expired = keys.expired(over);
    let names: Vec<_> = stored.iter().map(|(name, _)| name).collect();
    assert!(
        names
            .iter()
            .zip(&expired)
            .all(|(name, prefix)| name.starts_with(prefix)),
        "first the key, then what finds it"
    );
    assert_eq!((names.len(), expired.len()), (2, 2));
    keys.removed(&expired[0]);
    assert_eq!(keys.expired(over), expired, "until both are gone");
    keys.removed(&expired[1]);
    assert!(keys.expired(over).is_empty(), "once");
    look(&mut keys, 1, now, &[]);
    keys.insert(1, kept(7, until));
    keys.rows(SHARD, over, &mut Vec::new());
    assert_eq!((keys.bytes(), keys.pending_bytes()), (0, 0));
}

#[test]
fn a_longer_life_is_kept_in_full_and_ends_in_few_steps() {
    let day = KeyLife::at_least(Duration::from_secs(24 * 3_600 - 1));
    assert_eq!(day.duration(), Duration::from_secs(24 * 3_600));
    assert_eq!(KeyLife::at_least(Duration::ZERO), KeyLife::default());
    assert_eq!(KeyLife::at_least(Duration::MAX), KeyLife::MAX);
    let mut buckets = std::collections::BTreeSet::new();
    for minute in 0..2 * 24 * 60 {
        let now = at(minute * 60_000_000);
        let kept = until(now, day) - now.micros;
        assert!((24 * KEY_MICROS..29 * KEY_MICROS).contains(&kept), "{kept}");
        buckets.insert(bucket(until(now, day)));
    }
    assert!(buckets.len() <= 13, "{} steps in two days", buckets.len());
}

#[test]
fn keys_of_many_checkpoints_are_in_one_row_also_after_a_start() {
    let (mut keys, mut again) = (Keys::default(), Keys::default());
    let mut stored = Vec::new();
    let key = |n: i64| id_of(7, "entity", &n.to_string());
    for round in 0..50_i64 {
        let now = at(round * 20_000_000);
        (0..200).for_each(|n| keys.insert(key(round * 200 + n), kept(n as u64, until(now, KeyLife::default()))));
        stored.extend(rows(&mut keys, now));
        keys.stored();
    }
    assert_eq!(keys.pending_bytes(), 0);
    assert!(stored.len() < 1_000, "{} rows for 10,000 keys", stored.len());
    stored.sort();
    for (name, value) in stored.iter().filter(|(name, _)| name[0] == b'l') {
        assert_eq!(shard_of_list(name), Some(SHARD));
        assert!(again.restore(name, value.as_deref().unwrap()));
    }
    let now = at(50 * 20_000_000);
    assert_eq!(again.bytes(), keys.bytes(), "what finds them is in the budget");
    let mut asked = 0;
    for n in 0..10_000 {
        for keys in [&mut keys, &mut again] {
            assert!(matches!(keys.find(key(n), now), KeyLookup::Look));
            asked += keys.rows_of(SHARD, key(n), now).rows.len();
            look(keys, key(n), now, &stored);
            let found = keys.find(key(n), now);
            assert!(matches!(found, KeyLookup::Kept(found) if found.print == (n % 200) as u64));
        }
    }
    assert!(asked < 20_400, "{asked} rows asked for 20,000 keys");
    let fresh = (10_000..20_000).filter(|n| matches!(again.find(key(*n), now), KeyLookup::Fresh));
    assert!(fresh.count() > 9_800, "a fresh key is hardly ever looked for");
    assert!(!again.restore(b"l", &[]) && !again.restore(&stored.last().unwrap().0, &[1, 2]));
}

#[test]
fn a_key_that_expires_before_a_checkpoint_leaves_memory() {
    let mut keys = Keys::default();
    keys.insert(1, kept(7, until(at(0), KeyLife::default())));
    keys.insert(2, kept(7, until(at(1), KeyLife::default())));
    // Checkpoints fail for an hour.
    assert_eq!(rows(&mut keys, at(5)).len(), 2);
    let two = keys.pending_bytes();
    keys.failed();
    assert_eq!(keys.pending_bytes(), two);
    assert_eq!(rows(&mut keys, at(until(at(0), KeyLife::default()))).len(), 2);
    assert_eq!(keys.pending_bytes(), two / 2);
    keys.failed();
    assert!(rows(&mut keys, at(until(at(1), KeyLife::default()))).is_empty());
    assert_eq!((keys.bytes(), keys.pending_bytes()), (0, 0));
}

#[test]
fn a_failed_checkpoint_brings_back_no_older_answer() {
    let (mut keys, now) = (Keys::default(), at(5));
    keys.insert(1, kept(7, until(now, KeyLife::default())));
    rows(&mut keys, now);
    let later = at(until(now, KeyLife::default()));
    keys.insert(1, kept(8, until(later, KeyLife::default())));
    keys.failed();
    assert!(matches!(keys.find(1, later), KeyLookup::Kept(found) if found.print == 8));
    assert_eq!(rows(&mut keys, later).len(), 2);
    keys.stored();
    assert_eq!(keys.pending_bytes(), 0);
}

#[test]
fn an_answer_of_the_store_from_before_a_key_does_not_count() {
    let (mut keys, now) = (Keys::default(), at(5));
    let asked = keys.rows_of(SHARD, 1, now);
    keys.insert(1, kept(7, until(now, KeyLife::default())));
    keys.looked(&asked, None);
    assert!(matches!(keys.find(1, now), KeyLookup::Kept(_)));
    rows(&mut keys, now);
    keys.looked(&asked, None);
    assert!(matches!(keys.find(1, now), KeyLookup::Kept(_)), "it is being stored");
    keys.stored();
    assert!(
        matches!(keys.find(1, now), KeyLookup::Look),
        "it is accepted and stored"
    );
    keys.looked(&asked, None);
    assert!(
        matches!(keys.find(1, now), KeyLookup::Look),
        "the answer came after both"
    );
}

//= promise 4: a key takes effect once
#[test]
fn damaged_row_of_keys_does_not_count_as_no_key() {
    let (mut keys, now) = (Keys::default(), at(5));
    keys.insert(1, kept(7, until(now, KeyLife::default())));
    let stored = rows(&mut keys, now);
    keys.stored();
    let asked = keys.rows_of(SHARD, 1, now);
    let slice = stored.iter().find(|(name, _)| *name == asked.rows[0]);
    let slice = slice.and_then(|(_, value)| value.clone()).unwrap();
    assert!(asked.find(&slice).unwrap().is_some());
    assert!(asked.find(&slice[..slice.len() - 1]).is_err(), "it is cut off");
    let mut newer = slice.clone();
    *newer.last_mut().unwrap() = b'?';
    assert!(asked.find(&newer).is_err(), "its answer is none");
}

//= promise 4: a key takes effect once
#[test]
fn last_refusals_under_a_key_are_kept_for_minutes_also_as_rows() {
    let key = |fingerprint| CommandKey {
        number: 1,
        name: "k".into(),
        fingerprint,
        life: KeyLife::default(),
    };
    let (mut keys, now) = (Keys::default(), at(5));
    let found = |keys: &mut Keys, now| match keys.find(1, now) {
        KeyLookup::Kept(kept) => Some(kept),
        _ => None,
    };
    let mut stored = Vec::new();
    for fingerprint in 0..2 * REFUSED_MAX as u64 {
        let before = found(&mut keys, now);
        keys.insert(1, KeptOutcome::refused(&key(fingerprint), before.as_ref(), now));
        // The same key stands in several rows; the newest counts.
        stored.extend(rows(&mut keys, now));
        keys.stored();
        look(&mut keys, 1, now, &stored);
    }
    let kept = found(&mut keys, now).unwrap();
    assert!(kept.is_refusal());
    let remembered: Vec<u64> = (0..100).filter(|print| kept.has_refused(*print)).collect();
    let (first, end) = (REFUSED_MAX as u64, 2 * REFUSED_MAX as u64);
    assert_eq!(remembered, (first..end).collect::<Vec<u64>>());
    assert!(found(&mut keys, at(5 + REFUSED_MICROS - 1)).is_some());
    assert!(found(&mut keys, at(5 + REFUSED_MICROS)).is_none());
    let accepted = KeptOutcome::accepted(&key(3), KeptAnswer::Reply("1".into()), now);
    assert!(!accepted.is_refusal() && !accepted.has_refused(3));
}
