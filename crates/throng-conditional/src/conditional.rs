//! The store below: objects under keys, each of which can be created once and replaced on condition.
//!
//! The trait is as small as the protocol allows. An adapter translates one call into one request and tells what the store said; it repeats
//! nothing by itself, because a repetition hides what became of the first request. Every repetition is the protocol's.
//!
//! # What each adapter promises
//!
//! - A call ends within a bounded time, whatever the network does. A request without an answer until then is *unknown*.
//! - An unknown request may take effect at any later time, once or twice, or never. So may one whose future is dropped.
//! - Keys are of `[a-z0-9/._-]`, at most 256 bytes, without an empty part between two `/`. The adapter puts its own prefix before them.
//! - A body is returned as it was sent, byte for byte.
//! - The futures may be polled wherever the caller runs; an adapter that needs a runtime of its own hands its requests over to that.
//!
//! # What the protocol believes
//!
//! The protocol relies on `put_new` (of several one wins) and on `replace` (of several that name one version one wins). A trial tests both
//! before the first use. Everything else may be stale: a `get` that finds nothing, an old body. The protocol lists nothing.

use bytes::Bytes;
use throng_journal::Later;

/// The name of an object's content at one moment: an ETag, a generation. Opaque; only the store that gave it compares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Box<str>);

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The content, whole.
    pub body: Bytes,
    /// The name of this content.
    pub version: Version,
}

/// The outcome of [`ConditionalStore::put_new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutNew {
    /// The object is durable with this body (HTTP 200, 201). Nobody else has created this key.
    Stored(Version),
    /// An object of this key exists (412): another caller's, or an earlier request of this one. Only reading it tells.
    Exists,
    /// The store could not decide between requests for this key (409). Nothing is known about any of them: put the same again.
    Conflict,
    /// The request may have taken effect, or may do so later (5xx, time-out, reset). Put the same bytes again.
    Unknown(String),
    /// The store refuses this request for good (403, 400, quota, too large). This request changes nothing; an earlier unknown one may.
    Refused(String),
}

/// The outcome of [`ConditionalStore::replace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The object has this body now, durably, and had the version that was named until then.
    Stored(Version),
    /// The object has another version (412), or is gone (404). An earlier request of this caller may be the cause: read it.
    Changed,
    /// The store could not decide between requests for this key (409). Nothing is known: read, then decide anew.
    Conflict,
    /// The request may have taken effect, or may do so later (5xx, time-out, reset). Read, then decide anew.
    Unknown(String),
    /// The store refuses this request for good. This request changes nothing; an earlier unknown one may.
    Refused(String),
}

/// A failure of a request that changes nothing, or that may be made again without harm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store did not answer, or was busy (5xx, 429, time-out, reset). Ask again after a pause.
    #[error("{0}")]
    Unavailable(String),
    /// The store refuses (403, 400, no such bucket). Asking again does not help until a person has changed something.
    #[error("{0}")]
    Refused(String),
}

/// Objects under keys, with conditional puts.
pub trait ConditionalStore: Send + Sync + 'static {
    /// Creates an object unless one of this key exists (`If-None-Match: *`). Of all requests that name a key, those of others and those
    /// delivered twice included, one is ever [stored](PutNew::Stored) until the object is deleted.
    fn put_new<'a>(&'a self, key: &'a str, body: Bytes) -> Later<'a, PutNew>;

    /// Replaces an object if it still has this version (`If-Match`). Of all requests that name one version, one is ever stored.
    fn replace<'a>(&'a self, key: &'a str, body: Bytes, seen: &'a Version) -> Later<'a, Replaced>;

    /// Reads an object; `None`: there is none (404). Where the store reads stale, an older body or `None` is harmless.
    ///
    /// # Errors
    /// [`Fault`]; nothing is known then. An answer cut short is [`Fault::Unavailable`].
    fn get<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Object>, Fault>>;

    /// Reads bytes `from..from + len` of an object, fewer at its end; `None`: there is no such object.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_range<'a>(&'a self, key: &'a str, from: u64, len: u64) -> Later<'a, Result<Option<Bytes>, Fault>> {
        Box::pin(async move {
            let object = self.get(key).await?;
            Ok(object.map(|object| {
                let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(object.body.len());
                object.body.slice(clamp(from)..clamp(from.saturating_add(len)))
            }))
        })
    }

    /// Reads an object's version alone (`HEAD`); `None`: there is none.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn version<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Version>, Fault>>;

    /// Deletes an object; one that is not there is no error. A request of which nothing is known may take effect later, on whatever then
    /// bears the key: the protocol deletes only keys that are never used again.
    ///
    /// # Errors
    /// [`Fault`]; the object may be there or gone then.
    fn delete<'a>(&'a self, key: &'a str) -> Later<'a, Result<(), Fault>>;
}
