//! A race that shows if a store keeps its word, run against the real one before its first use.

use crate::{ConditionalStore, Fault, Host, PutNew, Replaced, Version, host::Pauses, streams::all};
use bytes::Bytes;
use throng_journal::Error;

const RACERS: u8 = 32;

fn fault<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::backend("the race that tests the store", why.into()))
}

/// Lets 32 writers create one object at once, and 32 replace one version of it: one wins each time, and those that come late see it.
///
/// # Errors
/// [`Error::Backend`] names the fault: this store must not hold a journal.
pub async fn race(store: &dyn ConditionalStore, host: &dyn Host) -> Result<(), Error> {
    let key = &*format!("race/{:032x}", host.random());
    let bodies: Vec<Bytes> = (0..=RACERS).map(|racer| vec![racer; 64].into()).collect();
    let created = all(bodies[1..].iter().map(|body| create(store, host, key, body)).collect()).await;
    let won = winners(&bodies[1..], created)?;
    let [winner] = *won else {
        return fault(format!(
            "{} of {RACERS} writers have created one object: the store ignores `If-None-Match`",
            won.len()
        ));
    };
    let first = read(store, host, key).await?;
    if first.0 != *winner {
        return fault("the object is not the winner's: the store has replaced it");
    }
    if create(store, host, key, &bodies[0]).await? {
        return fault("a late writer has created the object again: the store ignores `If-None-Match`");
    }
    let others: Vec<Bytes> = (0..RACERS).map(|racer| vec![racer; 65].into()).collect();
    let replaced = all(others
        .iter()
        .map(|body| replace(store, host, key, body, &first.1))
        .collect())
    .await;
    let won = winners(&others, replaced)?;
    let [winner] = *won else {
        return fault(format!(
            "{} of {RACERS} writers have replaced one version of an object: the store ignores `If-Match`",
            won.len()
        ));
    };
    if read(store, host, key).await?.0 != *winner {
        return fault("the object is not that of the writer who replaced it");
    }
    if replace(store, host, key, &bodies[0], &first.1).await? {
        return fault("a late writer has replaced a version that was gone: the store ignores `If-Match`");
    }
    // A rest of it harms nobody: no other race has this key.
    _ = store.delete(key).await;
    Ok(())
}

fn winners(bodies: &[Bytes], won: Vec<Result<bool, Error>>) -> Result<Vec<&Bytes>, Error> {
    let mut winners = Vec::new();
    for (body, won) in bodies.iter().zip(won) {
        if won? {
            winners.push(body);
        }
    }
    Ok(winners)
}

/// True if this caller has created the object, once that is known.
async fn create(store: &dyn ConditionalStore, host: &dyn Host, key: &str, body: &Bytes) -> Result<bool, Error> {
    let mut pauses = Pauses::new();
    loop {
        match store.put_new(key, body.clone()).await {
            PutNew::Stored(_) => return Ok(true),
            PutNew::Exists => return Ok(read(store, host, key).await?.0 == *body),
            PutNew::Refused(why) => return fault(why),
            PutNew::Conflict | PutNew::Unknown(_) => pauses.pause(host).await,
        }
    }
}

/// True if this caller has replaced the version, once that is known.
async fn replace(
    store: &dyn ConditionalStore,
    host: &dyn Host,
    key: &str,
    body: &Bytes,
    seen: &Version,
) -> Result<bool, Error> {
    let mut pauses = Pauses::new();
    loop {
        match store.replace(key, body.clone(), seen).await {
            Replaced::Stored(_) => return Ok(true),
            Replaced::Changed => return Ok(read(store, host, key).await?.0 == *body),
            Replaced::Refused(why) => return fault(why),
            Replaced::Conflict | Replaced::Unknown(_) => pauses.pause(host).await,
        }
    }
}

async fn read(store: &dyn ConditionalStore, host: &dyn Host, key: &str) -> Result<(Bytes, Version), Error> {
    let mut pauses = Pauses::new();
    loop {
        match store.get(key).await {
            Ok(Some(object)) => return Ok((object.body, object.version)),
            Ok(None) => return fault("an object that exists is not found"),
            Err(Fault::Refused(why)) => return fault(why),
            Err(Fault::Unavailable(_)) => pauses.pause(host).await,
        }
    }
}
