//! The root: one small object that lists the streams, the layers of rows and the nodes. A conditional put replaces the version that was read.
//!
//! Each change has a greater revision and a nonce, so no two bodies are equal. A version that is a checksum of the body never returns. A change is a
//! function. After a request of unknown outcome it is applied again to the root that is read then. It recognizes its own earlier effect by a name
//! that is used once.

use crate::{ConditionalStore, Fault, Host, Replaced, Version, host::Pauses, members::Members};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use throng_journal::{Error, NodeId, ShardSet, WriterId};

/// The key of the root, the first object of a journal.
pub const KEY: &str = "root.json";
const FORMAT: u32 = 1;
/// The number of nonces of earlier revisions in a root.
const TRAIL_MAX: usize = 64;
/// The most reads in a row that find an older root than one seen before.
const STALE_MAX: u32 = 50;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Root {
    format: u32,
    /// The unique id of this journal.
    pub(crate) journal: String,
    pub(crate) revision: u64,
    /// The nonces of the last revisions, the newest last. If that of a revision seen before is missing, the store let two changes of one version win.
    trail: Vec<u64>,
    /// The writers in the order of their numbers.
    pub(crate) writers: Vec<Writer>,
    /// The rows of the store. A later layer overrides the earlier ones.
    pub(crate) layers: Vec<Layer>,
    pub(crate) members: Members,
    /// Objects without any reference, still to be deleted.
    pub(crate) garbage: Vec<Garbage>,
}

/// A stream's entry in the root: its writer, the name of its objects, and its extent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Writer {
    pub(crate) writer: u64,
    /// The random name in the keys of its objects.
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// The shards whose records it may hold. `None`: all.
    pub(crate) shards: Option<Vec<u8>>,
    /// The number of appends that it may have in flight.
    pub(crate) depth: u64,
    /// True once the stream is being sealed. From then on its writer cannot change the root.
    pub(crate) is_ending: bool,
    /// The last commit, once the stream is sealed.
    pub(crate) last: Option<u64>,
    /// The last commit that a checkpoint covers. All numbers up to it are commits.
    pub(crate) covered: u64,
    /// True once no engine answers from its knowledge of this stream.
    pub(crate) is_released: bool,
    pub(crate) begun_micros: i64,
    pub(crate) ended_micros: Option<i64>,
    /// Parts of the history that were written anew without the removed records, in order, from the first commit on.
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Owner {
    /// An engine that is alone.
    Alone(String),
    Node(u64),
}

/// Consecutive commits in one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) after: u64,
    pub(crate) upto: u64,
    pub(crate) key: String,
    /// The checksum that the next commit must name.
    pub(crate) sum: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Garbage {
    Object(String),
    /// Commits of a stream that a segment has replaced.
    Commits {
        name: String,
        after: u64,
        upto: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) key: String,
    pub(crate) bytes: u64,
    pub(crate) sum: u32,
}

impl Writer {
    pub(crate) fn id(&self) -> WriterId {
        WriterId(self.writer)
    }

    pub(crate) fn shard_set(&self) -> Option<ShardSet> {
        self.shards.as_deref().map(ShardSet::from_bytes)
    }

    pub(crate) fn may_hold(&self, shards: &ShardSet) -> bool {
        self.shard_set().is_none_or(|own| own.overlaps(shards))
    }

    /// Returns the random name as a number, as bodies hold it.
    pub(crate) fn stream(&self) -> u128 {
        u128::from_str_radix(&self.name, 16).unwrap_or_default()
    }

    /// Returns the last commit in a segment.
    pub(crate) fn segmented(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.upto)
    }

    pub(crate) fn is_of(&self, node: NodeId) -> bool {
        self.owner == Owner::Node(node.0)
    }
}

impl Root {
    pub(crate) fn writer(&self, writer: WriterId) -> Option<&Writer> {
        let at = self
            .writers
            .binary_search_by_key(&writer.0, |entry| entry.writer)
            .ok()?;
        self.writers.get(at)
    }

    pub(crate) fn writer_mut(&mut self, writer: WriterId) -> Option<&mut Writer> {
        let at = self
            .writers
            .binary_search_by_key(&writer.0, |entry| entry.writer)
            .ok()?;
        self.writers.get_mut(at)
    }

    pub(crate) fn next_writer(&self) -> u64 {
        self.writers.last().map_or(1, |last| last.writer + 1)
    }

    /// Returns a stream that is not sealed and may hold records of these shards, of any owner except the node `but`.
    pub(crate) fn open_stream(&self, shards: &ShardSet, but: Option<NodeId>) -> Option<WriterId> {
        let mut open = self
            .writers
            .iter()
            .filter(|writer| writer.last.is_none() && writer.may_hold(shards));
        let open = open.find(|writer| but.is_none_or(|node| !writer.is_of(node)));
        open.map(Writer::id)
    }
}

/// The result of a change.
pub(crate) enum Change<T> {
    /// The changed root must be written.
    Write(T),
    /// Nothing is to be changed, or an earlier request made the change.
    Leave(T),
}

#[derive(Clone)]
struct Seen {
    root: Arc<Root>,
    version: Version,
}

/// Reads and changes the root, for one process.
pub(crate) struct Roots {
    store: Arc<dyn ConditionalStore>,
    host: Arc<dyn Host>,
    /// The newest root read or written. An older one is ignored.
    seen: Mutex<Option<Seen>>,
}

impl Roots {
    pub(crate) fn new(store: Arc<dyn ConditionalStore>, host: Arc<dyn Host>) -> Self {
        Self {
            store,
            host,
            seen: Mutex::default(),
        }
    }

    fn newest(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the newest root that this process knows, without a request if it knows one.
    pub(crate) async fn known(&self) -> Result<Arc<Root>, Error> {
        match self.newest() {
            Some(seen) => Ok(seen.root),
            None => self.read().await,
        }
    }

    pub(crate) async fn read(&self) -> Result<Arc<Root>, Error> {
        Ok(self.fetch().await?.root)
    }

    fn nonce(&self) -> u64 {
        self.host.random() as u64
    }

    /// Reads the root, and creates it if it does not exist.
    async fn fetch(&self) -> Result<Seen, Error> {
        let mut pauses = Pauses::new();
        for _ in 0..STALE_MAX {
            let found = match self.store.get(KEY).await {
                Err(Fault::Refused(why)) => return Err(Error::backend("reading the root of the journal", why)),
                Err(Fault::Unavailable(_)) => None,
                Ok(Some(object)) => Some(Seen {
                    root: Arc::new(read(&object.body)?),
                    version: object.version,
                }),
                Ok(None) => {
                    if self.newest().is_none() {
                        let root = Root {
                            format: FORMAT,
                            journal: format!("{:032x}", self.host.random()),
                            trail: vec![self.nonce()],
                            revision: 1,
                            ..Root::default()
                        };
                        // The next read shows the outcome.
                        self.store.put_new(KEY, write(&root)?).await;
                    }
                    None
                }
            };
            if let Some(found) = found
                && self.note(&found)?
            {
                return Ok(found);
            }
            pauses.pause(&*self.host).await;
        }
        Err(Error::backend(
            "reading the root of the journal",
            "the store does not answer, or answers again and again with what was replaced before",
        ))
    }

    /// Keeps the newest root. Returns false for an older one than seen before.
    fn note(&self, found: &Seen) -> Result<bool, Error> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = &*seen {
            if before.root.journal != found.root.journal {
                return Err(Error::RolledBack(format!(
                    "the root is of journal {}, and was of journal {} before",
                    found.root.journal, before.root.journal
                )));
            }
            let Some(newer) = found.root.revision.checked_sub(before.root.revision) else {
                return Ok(false);
            };
            let nonce = found
                .root
                .trail
                .iter()
                .rev()
                .nth(usize::try_from(newer).unwrap_or(usize::MAX));
            if nonce.is_some_and(|nonce| Some(nonce) != before.root.trail.last()) {
                return Err(Error::RolledBack(format!(
                    "revision {} of the root was replaced by another of the same number: the store let two changes of one version win",
                    before.root.revision
                )));
            }
        }
        *seen = Some(found.clone());
        Ok(true)
    }

    /// Changes the root by a function. After each request without certain success the function is applied again to the newly read root. It must be
    /// able to tell whether an earlier request of its own took effect.
    pub(crate) async fn change<T>(
        &self,
        mut change: impl FnMut(&mut Root) -> Result<Change<T>, Error>,
    ) -> Result<T, Error> {
        let mut pauses = Pauses::new();
        let mut is_first = true;
        loop {
            let seen = match self.newest().filter(|_| std::mem::take(&mut is_first)) {
                Some(seen) => seen,
                None => self.fetch().await?,
            };
            let mut root = (*seen.root).clone();
            let result = match change(&mut root) {
                Ok(Change::Write(result)) => result,
                // A decision made on an outdated root does not count.
                Ok(Change::Leave(_)) | Err(_) if !self.is_current(&seen).await? => continue,
                Ok(Change::Leave(result)) => return Ok(result),
                Err(refused) => return Err(refused),
            };
            root.revision += 1;
            root.trail.push(self.nonce());
            let old = root.trail.len().saturating_sub(TRAIL_MAX);
            root.trail.drain(..old);
            match self.store.replace(KEY, write(&root)?, &seen.version).await {
                Replaced::Stored(version) => {
                    let root = Arc::new(root);
                    self.note(&Seen { root, version })?;
                    return Ok(result);
                }
                Replaced::Refused(why) => return Err(Error::backend("changing the root of the journal", why)),
                Replaced::Changed | Replaced::Conflict | Replaced::Unknown(_) => pauses.pause(&*self.host).await,
            }
        }
    }

    /// Checks by the version alone if the root is still this one.
    async fn is_current(&self, seen: &Seen) -> Result<bool, Error> {
        let mut pauses = Pauses::new();
        for _ in 0..STALE_MAX {
            match self.store.version(KEY).await {
                Ok(version) => return Ok(version.as_ref() == Some(&seen.version)),
                Err(Fault::Refused(why)) => return Err(Error::backend("reading the root of the journal", why)),
                Err(Fault::Unavailable(_)) => pauses.pause(&*self.host).await,
            }
        }
        Err(Error::backend(
            "reading the root of the journal",
            "the store does not answer",
        ))
    }
}

fn read(body: &[u8]) -> Result<Root, Error> {
    let unreadable = |why: String| Error::backend("reading the root of the journal", why);
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_slice(body).map_err(|why| unreadable(why.to_string()))?;
    if format != FORMAT {
        return Err(Error::OtherVersion {
            what: KEY.into(),
            found: format,
            expected: FORMAT,
        });
    }
    serde_json::from_slice(body).map_err(|why| unreadable(why.to_string()))
}

fn write(root: &Root) -> Result<Bytes, Error> {
    let body = serde_json::to_vec(root).map_err(|why| Error::backend("writing the root of the journal", why))?;
    Ok(body.into())
}
