//! The store below a journal: objects under keys. Each can be created once, and replaced on condition.
//!
//! The trait is as small as the protocol allows. An adapter translates one call into one request, and returns the store's answer. It never repeats a
//! request: a repetition would hide the outcome of the first one. Only the protocol repeats.
//!
//! # What each adapter promises
//!
//! - A call ends within a bounded time, whatever the network does. The outcome of a request without an answer by then is *unknown*.
//! - An unknown request may take effect at any later time, once or twice, or never. So may one whose future is dropped.
//! - Keys consist of `[a-z0-9/._-]`, at most 256 bytes, without an empty part between two `/`. The adapter prepends its own prefix.
//! - A body is returned as it was sent, byte for byte.
//! - The futures may be polled on any executor. An adapter that needs a runtime of its own runs its requests there.
//!
//! # What the protocol relies on
//!
//! Exactly one of several `put_new` of a key wins, and one of several `replace` of a version. A trial tests both before the first use. Reads may be
//! stale: a `get` may find nothing, or an old body. The protocol never lists keys.

use bytes::Bytes;
use throng_journal::Later;

/// Names an object's content at one moment, as an ETag or a generation does. Opaque: only the store that issued it compares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Box<str>);

/// An object with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The whole content.
    pub body: Bytes,
    /// The version of this content.
    pub version: Version,
}

/// The outcome of [`ConditionalStore::put_new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutNew {
    /// The object is durable with this body (HTTP 200, 201). No other request has created this key.
    Stored(Version),
    /// An object with this key exists (412). Another caller created it, or an earlier request of this one did; only a read tells which.
    Exists,
    /// The store could not decide between requests for this key (409). The outcome of each is unknown: put the same bytes again.
    Conflict,
    /// The request may have taken effect, or may do so later (5xx, time-out, reset). Put the same bytes again.
    Unknown(String),
    /// The store refuses this request for good (403, 400, quota, too large). This request changes nothing, but an earlier unknown one still may.
    Refused(String),
}

/// The outcome of [`ConditionalStore::replace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The object has this body now, durably. Until then it had the given version.
    Stored(Version),
    /// The object has another version (412), or is gone (404). An earlier request of this caller may be the cause: read the object.
    Changed,
    /// The store could not decide between requests for this key (409). The outcome is unknown: read, then decide anew.
    Conflict,
    /// The request may have taken effect, or may do so later (5xx, time-out, reset). Read, then decide anew.
    Unknown(String),
    /// The store refuses this request for good. This request changes nothing, but an earlier unknown one still may.
    Refused(String),
}

/// A failure of a request that changes nothing, or that can be repeated without harm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store did not answer, or was busy (5xx, 429, time-out, reset). Ask again after a pause.
    #[error("{0}")]
    Unavailable(String),
    /// The store refuses the request (403, 400, no such bucket). Asking again does not help until a person has changed something.
    #[error("{0}")]
    Refused(String),
}

/// Objects under keys, with conditional puts.
pub trait ConditionalStore: Send + Sync + 'static {
    /// Creates an object unless one with this key exists (`If-None-Match: *`). Of all requests for a key, at most one is ever
    /// [stored](PutNew::Stored) until the object is deleted. This includes requests of other callers and requests delivered twice.
    fn put_new<'a>(&'a self, key: &'a str, body: Bytes) -> Later<'a, PutNew>;

    /// Replaces an object if it still has this version (`If-Match`). Of all requests that name one version, at most one is ever stored.
    fn replace<'a>(&'a self, key: &'a str, body: Bytes, seen: &'a Version) -> Later<'a, Replaced>;

    /// Reads an object. `None`: there is none (404). A stale read, an older body or `None`, is harmless.
    ///
    /// # Errors
    /// [`Fault`]: nothing is known. A truncated answer is [`Fault::Unavailable`].
    fn get<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Object>, Fault>>;

    /// Reads bytes `from..from + len` of an object, fewer at its end. `None`: there is no such object.
    ///
    /// # Errors
    /// Same as [`get`](Self::get).
    fn get_range<'a>(&'a self, key: &'a str, from: u64, len: u64) -> Later<'a, Result<Option<Bytes>, Fault>> {
        Box::pin(async move {
            let object = self.get(key).await?;
            Ok(object.map(|object| {
                let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(object.body.len());
                object.body.slice(clamp(from)..clamp(from.saturating_add(len)))
            }))
        })
    }

    /// Reads only an object's version (`HEAD`). `None`: there is no such object.
    ///
    /// # Errors
    /// Same as [`get`](Self::get).
    fn version<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Version>, Fault>>;

    /// Deletes an object. A missing object is no error. A request of unknown outcome may take effect later, on any object that has the key by then.
    /// Therefore the protocol deletes only keys that are never used again.
    ///
    /// # Errors
    /// [`Fault`]: the object may still exist or be gone.
    fn delete<'a>(&'a self, key: &'a str) -> Later<'a, Result<(), Fault>>;
}
