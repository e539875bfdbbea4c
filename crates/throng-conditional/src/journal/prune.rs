//! Removing records from history. Objects of a stream never change, so the remaining records are written anew, many commits in one object.

use super::{Inner, read::Linked};
use crate::{
    Fault, PutNew,
    host::Pauses,
    root::{Change, Garbage, Segment},
    streams,
};
use bytes::Bytes;
use throng_journal::{Commit, Error, Prune, PruneHow, Pruned};

/// The size of a segment, in bytes, at which the next one begins.
const SEGMENT_BYTES: usize = 16 << 20;
/// The most failed deletions of one object in a row.
const TRIES: u32 = 8;

impl Inner {
    pub(super) async fn prune(&self, prune: Prune) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        loop {
            let (piece, upto) = self.prune_piece(&prune).await?;
            pruned.add(piece);
            // Segments are contiguous from the first commit on. A piece may end before the range of this pass begins.
            if upto >= prune.upto.0 || upto > prune.after.commit.0 || prune.how == PruneHow::Dry {
                return Ok(pruned);
            }
        }
    }

    /// Writes one segment anew. Also returns the last commit in it.
    async fn prune_piece(&self, prune: &Prune) -> Result<(Pruned, u64), Error> {
        let writer = prune.after.writer;
        let entry = self.entry(writer).await?;
        // Commits that no checkpoint covers may still be read by an engine that seals the stream.
        let upto = prune.upto.0.min(entry.last.unwrap_or(entry.covered));
        let before = entry
            .segments
            .iter()
            .find(|segment| segment.upto > prune.after.commit.0)
            .cloned();
        let after = before.as_ref().map_or(entry.segmented(), |segment| segment.after);
        let end = before.as_ref().map_or(upto, |segment| segment.upto);
        let mut linked: Vec<Linked> = Vec::new();
        let mut bytes = 0;
        loop {
            let last = linked.last().map_or(after, |(commit, _)| commit.stamp().number.0);
            if last >= end || bytes >= SEGMENT_BYTES && before.is_none() {
                break;
            }
            let page = self.linked(entry.clone(), last, SEGMENT_BYTES).await?;
            let page = page.into_iter().filter(|(commit, _)| commit.stamp().number.0 <= end);
            let page: Vec<Linked> = page.collect();
            if page.is_empty() {
                break;
            }
            bytes += page.iter().map(|(commit, _)| commit.bytes().len()).sum::<usize>();
            linked.extend(page);
        }
        let Some(sum) = linked.last().and_then(|(_, sum)| *sum) else {
            return Ok((Pruned::default(), prune.upto.0));
        };
        let mut commits: Vec<Commit> = linked.into_iter().map(|(commit, _)| commit).collect();
        let last = commits.last().map_or(after, |commit| commit.stamp().number.0);
        let pruned = prune.in_memory(commits.iter_mut(), || false);
        if prune.how == PruneHow::Dry || pruned.records == 0 && before.is_some() {
            return Ok((pruned, last));
        }
        let segment = Segment {
            after,
            upto: last,
            key: format!("p/{}/{after:016x}-{:032x}", entry.name, self.host().random()),
            sum,
        };
        let body: Vec<u8> = commits.iter().flat_map(|commit| commit.bytes()).copied().collect();
        self.put_once(&segment.key, body.into()).await?;
        let change = self.roots.change(|root| {
            let garbage = match &before {
                Some(before) => Garbage::Object(before.key.clone()),
                None => Garbage::Commits {
                    name: entry.name.clone(),
                    after,
                    upto: last,
                },
            };
            let Some(entry) = root.writer_mut(writer) else {
                return Err(Error::NoCommit(prune.after));
            };
            if entry.segments.contains(&segment) {
                return Ok(Change::Leave(true));
            }
            match &before {
                Some(before) => match entry.segments.iter_mut().find(|segment| *segment == before) {
                    Some(place) => *place = segment.clone(),
                    None => return Ok(Change::Leave(false)),
                },
                None if entry.segmented() == after => entry.segments.push(segment.clone()),
                None => return Ok(Change::Leave(false)),
            }
            root.garbage.push(garbage);
            Ok(Change::Write(true))
        });
        if !change.await? {
            // Another engine was quicker. Its segment counts, and the next pass begins after it.
            self.delete(&segment.key).await?;
            return Ok((Pruned::default(), after));
        }
        self.sweep().await?;
        Ok((pruned, last))
    }

    /// Puts an object whose key is never used again.
    pub(crate) async fn put_once(&self, key: &str, body: Bytes) -> Result<(), Error> {
        let mut pauses = Pauses::new();
        loop {
            match self.streams.store.put_new(key, body.clone()).await {
                PutNew::Stored(_) | PutNew::Exists => return Ok(()),
                PutNew::Refused(why) => return Err(Error::backend(format!("writing {key}"), why)),
                PutNew::Conflict | PutNew::Unknown(_) => pauses.pause(self.host()).await,
            }
        }
    }

    /// Deletes the objects that the root lists as garbage. Seals are never among them.
    pub(crate) async fn sweep(&self) -> Result<(), Error> {
        let garbage = self.roots.known().await?.garbage.clone();
        for garbage in &garbage {
            match garbage {
                Garbage::Object(key) => self.delete(key).await?,
                Garbage::Commits { name, after, upto } => {
                    let name = u128::from_str_radix(name, 16).unwrap_or_default();
                    for number in after + 1..=*upto {
                        self.delete(&streams::key(name, number)).await?;
                    }
                }
            }
        }
        if garbage.is_empty() {
            return Ok(());
        }
        let change = self.roots.change(|root| {
            let before = root.garbage.len();
            root.garbage.retain(|left| !garbage.contains(left));
            Ok(if root.garbage.len() == before {
                Change::Leave(())
            } else {
                Change::Write(())
            })
        });
        change.await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        let mut pauses = Pauses::new();
        let mut why = String::new();
        for _ in 0..TRIES {
            match self.streams.store.delete(key).await {
                Ok(()) => return Ok(()),
                Err(Fault::Refused(refused)) => return Err(Error::backend(format!("deleting {key}"), refused)),
                Err(Fault::Unavailable(unavailable)) => why = unavailable,
            }
            pauses.pause(self.host()).await;
        }
        Err(Error::backend(format!("deleting {key}"), why))
    }
}
