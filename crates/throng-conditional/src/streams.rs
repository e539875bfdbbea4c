//! Reading and writing the numbered objects of streams.

use crate::{
    ConditionalStore, Fault, Host, PutNew,
    body::{self, Entry, Head},
    host::Pauses,
    root::Writer,
};
use bytes::Bytes;
use std::{fmt, future::poll_fn, sync::Arc, task::Poll};
use throng_journal::{CommitNo, Error, Position, WriterId};

/// The number of objects read at a time.
pub(crate) const WINDOW: u64 = 16;
/// The most reads in a row without an answer, or that find nothing although the store said that the object exists.
const STALE_MAX: u32 = 50;

/// The outcome of putting a body under a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// The body is stored there for good.
    Mine,
    /// A seal stands there: the stream is over.
    Sealed,
    /// Another commit is stored there. The writer must not put anything more to this stream.
    Taken,
    /// The store refuses, or the object there cannot be read.
    Stop(String),
}

/// The reason that an object of a stream was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The store refuses, or does not answer.
    Store(String),
    /// The object is not the one that was written.
    Damaged(String),
}

impl Trouble {
    pub(crate) fn error(self, writer: &Writer, number: u64) -> Error {
        let key = key(writer.stream(), number);
        match self {
            Self::Store(why) => Error::backend(format!("reading {key}"), why),
            Self::Damaged(why) => damaged(writer.id(), number, key, why),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Store(why) | Self::Damaged(why)) = self;
        why.fmt(f)
    }
}

/// The objects of streams.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) store: Arc<dyn ConditionalStore>,
    pub(crate) host: Arc<dyn Host>,
}

pub(crate) fn key(name: u128, number: u64) -> String {
    format!("s/{name:032x}/{number:016x}")
}

impl Streams {
    /// Puts a body under its number. Repeats the put with the same bytes until the content of that number is known.
    pub(crate) async fn put(&self, head: Head, body: Bytes) -> Landed {
        let key = key(head.name, head.number);
        let mut pauses = Pauses::new();
        loop {
            match self.store.put_new(&key, body.clone()).await {
                PutNew::Stored(_) => return Landed::Mine,
                PutNew::Exists => break,
                PutNew::Refused(why) => return Landed::Stop(why),
                PutNew::Conflict | PutNew::Unknown(_) => pauses.pause(&*self.host).await,
            }
        }
        match self.get_until_known(head.name, head.number).await {
            Ok(entry) if entry.nonce() == head.nonce => Landed::Mine,
            Ok(Entry::Seal { .. }) => Landed::Sealed,
            Ok(Entry::Commit { .. }) => Landed::Taken,
            Err(why) => Landed::Stop(format!("{key}: {why}")),
        }
    }

    /// Reads the object under a number, if it exists.
    ///
    /// # Errors
    /// `Trouble`: the store refuses, or the object is damaged.
    pub(crate) async fn get(&self, name: u128, number: u64) -> Result<Option<Entry>, Trouble> {
        let key = key(name, number);
        let mut pauses = Pauses::new();
        let mut last = String::new();
        for _ in 0..STALE_MAX {
            match self.store.get(&key).await {
                Ok(None) => return Ok(None),
                Ok(Some(object)) => {
                    return match body::parse(&object.body, name, number) {
                        Ok(entry) => Ok(Some(entry)),
                        Err(why) => Err(Trouble::Damaged(why)),
                    };
                }
                Err(Fault::Refused(why)) => return Err(Trouble::Store(why)),
                Err(Fault::Unavailable(why)) => last = why,
            }
            pauses.pause(&*self.host).await;
        }
        Err(Trouble::Store(format!("it does not answer: {last}")))
    }

    /// Reads an object that is known to exist. If the store does not find it, it is asked again.
    ///
    /// # Errors
    /// Same as [`get`](Self::get), or the object is not found for too long.
    pub(crate) async fn get_until_known(&self, name: u128, number: u64) -> Result<Entry, Trouble> {
        let mut pauses = Pauses::new();
        for _ in 0..STALE_MAX {
            if let Some(entry) = self.get(name, number).await? {
                return Ok(entry);
            }
            pauses.pause(&*self.host).await;
        }
        Err(Trouble::Store(
            "it has said that the object exists, and does not return it".into(),
        ))
    }

    /// Ends a stream whose commits up to `from` are known to have landed. Returns its last commit. No commit lands afterwards.
    ///
    /// Puts seals at all numbers that a writer may have in flight, and at the next one, so that a living writer meets a seal. The stream ends before
    /// its lowest seal, once every lower number is known to be a commit.
    pub(crate) async fn seal(&self, writer: &Writer, from: u64) -> Result<u64, Error> {
        let name = writer.stream();
        let failed = |why: String| Error::backend(format!("sealing the stream of writer {}", writer.writer), why);
        let mut next = from + 1;
        loop {
            // A read that finds nothing is only a hint. The put decides.
            let window = self.window(name, next, WINDOW).await;
            let mut sealed = false;
            let mut first_missing = false;
            for entry in window {
                match entry.map_err(|trouble| trouble.error(writer, next))? {
                    Some(Entry::Commit { .. }) => next += 1,
                    Some(Entry::Seal { .. }) => {
                        sealed = true;
                        break;
                    }
                    None => {
                        first_missing = true;
                        break;
                    }
                }
            }
            if sealed {
                break;
            }
            if !first_missing {
                continue;
            }
            let puts = (next..=next + writer.depth).map(|number| {
                let head = Head {
                    name,
                    nonce: self.host.random(),
                    number,
                    before: 0,
                };
                async move { self.put(head, body::of_seal(head)).await }
            });
            for landed in all(puts.collect()).await {
                // A commit that landed first is no reason to stop.
                if let Landed::Stop(why) = landed {
                    return Err(failed(why));
                }
            }
        }
        let last = next - 1;
        self.look_again(writer, last).await?;
        Ok(last)
    }

    /// Searches behind the end of a stream for commits that prove that the store broke its promise.
    async fn look_again(&self, writer: &Writer, last: u64) -> Result<(), Error> {
        let name = writer.stream();
        let broken = |found: &str, number: u64| {
            Error::RolledBack(format!(
                "{} holds {found}: the store let two puts of one key win, and an acknowledged commit may be lost",
                key(name, number)
            ))
        };
        let window = self.window(name, last + 1, writer.depth + 1).await;
        for (number, entry) in (last + 1..).zip(window) {
            match entry {
                Ok(Some(Entry::Commit { .. })) if number == last + 1 => {
                    return Err(broken("a commit where a seal was put", number));
                }
                Ok(Some(Entry::Commit { commit, .. })) if commit.stamp().synced.0 > last => {
                    return Err(broken("a commit that rests on one behind the seal", number));
                }
                Ok(_) => {}
                Err(trouble) => return Err(trouble.error(writer, number)),
            }
        }
        Ok(())
    }

    /// Reads `count` numbers concurrently, and returns them in order.
    pub(crate) async fn window(&self, name: u128, from: u64, count: u64) -> Vec<Result<Option<Entry>, Trouble>> {
        all((from..from + count).map(|number| self.get(name, number)).collect()).await
    }
}

/// Returns the error that a durable commit cannot be read.
pub(crate) fn damaged(writer: WriterId, number: u64, place: impl Into<String>, why: impl Into<String>) -> Error {
    Error::Damaged {
        position: Position::new(writer, CommitNo(number)),
        place: place.into(),
        why: why.into(),
    }
}

/// Waits for all futures, and returns their outputs in order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<(_, Option<F::Output>)> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_ready = true;
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => is_ready = false,
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}
