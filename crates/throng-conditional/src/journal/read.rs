//! Reading commits of streams, up to those known to be durable.

use super::Inner;
use crate::{
    Fault,
    body::{Entry, HEADER_BYTES},
    host::Pauses,
    root::{Segment, Writer},
    streams::{self, WINDOW, all, damaged},
};
use std::sync::Arc;
use throng_journal::{Commit, CommitNo, Error, Place, Position, WriterId};

/// The most reads in a row that find nothing although an object is known to exist.
const STALE_MAX: u32 = 50;

/// A commit, and the checksum that the next commit must name. Within a segment only the last commit's is known.
pub(super) type Linked = (Commit, Option<u32>);

impl Inner {
    /// Returns the last durable commit of a stream.
    pub(super) async fn last(&self, entry: &Writer) -> Result<u64, Error> {
        let mut last = self.known(entry);
        while entry.last.is_none() {
            let window = self.streams.window(entry.stream(), last + 1, WINDOW).await;
            let landed = window
                .iter()
                .take_while(|found| matches!(found, Ok(Some(Entry::Commit { .. }))));
            let landed = landed.count() as u64;
            last += landed;
            if landed < WINDOW {
                break;
            }
        }
        Ok(last)
    }

    pub(super) async fn read(&self, after: Position, bytes_max: usize) -> Result<Vec<Commit>, Error> {
        let entry = match self.entry(after.writer).await {
            Err(Error::NoCommit(_)) => return Ok(Vec::new()),
            entry => entry?,
        };
        let linked = self.linked(entry, after.commit.0, bytes_max).await?;
        Ok(linked.into_iter().map(|(commit, _)| commit).collect())
    }

    /// Reads the commits after a number: at least one if there is any, then as many as fit.
    pub(super) async fn linked(&self, mut entry: Writer, after: u64, bytes_max: usize) -> Result<Vec<Linked>, Error> {
        let writer = entry.id();
        let mut pauses = Pauses::new();
        for _ in 0..STALE_MAX {
            let found = match entry.segments.iter().find(|segment| segment.upto > after) {
                Some(segment) => self.segment_page(&entry, segment, after, bytes_max).await?,
                None => self.object_page(&entry, after, bytes_max).await?,
            };
            match found {
                Some(linked) => return Ok(linked),
                // The objects may have been merged into a segment meanwhile.
                None => entry = self.roots.read().await?.writer(writer).cloned().unwrap_or(entry),
            }
            pauses.pause(self.host()).await;
        }
        let place = streams::key(entry.stream(), after + 1);
        Err(damaged(writer, after + 1, place, "the object is gone"))
    }

    /// Reads a page of a segment. `None`: the object is gone.
    async fn segment_page(
        &self,
        entry: &Writer,
        segment: &Segment,
        after: u64,
        bytes_max: usize,
    ) -> Result<Option<Vec<Linked>>, Error> {
        let Some(commits) = self.segment(entry.id(), segment).await? else {
            return Ok(None);
        };
        let mut bytes = 0;
        let page = commits
            .iter()
            .filter(|commit| commit.stamp().number.0 > after)
            .take_while(|commit| {
                let is_first = bytes == 0;
                bytes += commit.bytes().len();
                is_first || bytes <= bytes_max
            });
        let linked = page.map(|commit| {
            let is_last = commit.stamp().number.0 == segment.upto;
            (commit.clone(), is_last.then_some(segment.sum))
        });
        Ok(Some(linked.collect()))
    }

    /// Reads a page of objects. `None`: an object that must exist is not found.
    async fn object_page(&self, entry: &Writer, after: u64, bytes_max: usize) -> Result<Option<Vec<Linked>>, Error> {
        let (writer, name, known) = (entry.id(), entry.stream(), self.known(entry));
        let mut linked: Vec<Linked> = Vec::new();
        let (mut next, mut bytes) = (after + 1, 0);
        let mut before = match entry.segments.last() {
            _ if after == 0 => Some(0),
            Some(segment) if segment.upto == after => Some(segment.sum),
            _ => None,
        };
        loop {
            let end = entry
                .last
                .map_or(WINDOW, |last| (last + 1).saturating_sub(next).min(WINDOW));
            // The first page shows how large the commits are.
            let fit = match linked.len() {
                0 => 2,
                read => bytes_max.saturating_sub(bytes) / (bytes / read).max(1) + 1,
            };
            let count = end.min(fit as u64);
            let window = self.streams.window(name, next, count).await;
            if window.is_empty() {
                return Ok(Some(linked));
            }
            for found in window {
                let damage = |why: String| damaged(writer, next, streams::key(name, next), why);
                let (head, sum, commit) = match found.map_err(|trouble| trouble.error(entry, next))? {
                    Some(Entry::Commit { head, sum, commit }) => (head, sum, commit),
                    Some(Entry::Seal { .. }) if next <= known => {
                        return Err(damage("a seal stands where a commit was durable".into()));
                    }
                    None if next <= known => return Ok((!linked.is_empty()).then_some(linked)),
                    Some(Entry::Seal { .. }) | None => return Ok(Some(linked)),
                };
                if before.is_some_and(|before| before != head.before) {
                    return Err(damage("it does not follow the commit before it".into()));
                }
                bytes += commit.bytes().len();
                if !linked.is_empty() && bytes > bytes_max {
                    return Ok(Some(linked));
                }
                before = Some(sum);
                linked.push((commit, Some(sum)));
                next += 1;
            }
        }
    }

    /// Returns the commits of a segment. `None`: it is gone.
    pub(super) async fn segment(&self, writer: WriterId, segment: &Segment) -> Result<Option<Arc<[Commit]>>, Error> {
        let mut cached = self.segment.lock().await;
        if let Some((key, commits)) = &*cached
            && *key == segment.key
        {
            return Ok(Some(Arc::clone(commits)));
        }
        let Some(body) = self.body(&segment.key).await? else {
            return Ok(None);
        };
        let (mut commits, mut rest) = (Vec::new(), &body[..]);
        while !rest.is_empty() {
            let damage = |why: String| damaged(writer, segment.after + 1, segment.key.clone(), why);
            let length = Commit::length(rest).map_err(|why| damage(why.to_string()))?;
            let (commit, behind) = rest
                .split_at_checked(length)
                .ok_or_else(|| damage("it is cut short".into()))?;
            commits.push(Commit::parse(commit.to_vec(), &[]).map_err(|why| damage(why.to_string()))?);
            rest = behind;
        }
        let commits: Arc<[Commit]> = commits.into();
        *cached = Some((segment.key.clone(), Arc::clone(&commits)));
        Ok(Some(commits))
    }

    /// Reads an object that does not belong to a stream.
    pub(crate) async fn body(&self, key: &str) -> Result<Option<bytes::Bytes>, Error> {
        let mut pauses = Pauses::new();
        let mut last = String::new();
        for _ in 0..STALE_MAX {
            match self.streams.store.get(key).await {
                Ok(object) => return Ok(object.map(|object| object.body)),
                Err(Fault::Refused(why)) => return Err(Error::backend(format!("reading {key}"), why)),
                Err(Fault::Unavailable(why)) => last = why,
            }
            pauses.pause(self.host()).await;
        }
        Err(Error::backend(format!("reading {key}"), last))
    }

    pub(super) async fn read_at(&self, places: &[Place]) -> Result<Vec<Vec<u8>>, Error> {
        let mut bodies = Vec::with_capacity(places.len());
        for places in places.chunks(WINDOW as usize) {
            for body in all(places.iter().map(|place| self.record(*place)).collect()).await {
                bodies.push(body?);
            }
        }
        Ok(bodies)
    }

    async fn record(&self, place: Place) -> Result<Vec<u8>, Error> {
        let Position { writer, commit } = place.position;
        let mut entry = self.entry(writer).await?;
        let mut pauses = Pauses::new();
        for _ in 0..STALE_MAX {
            let segment = entry.segments.iter().find(|segment| segment.upto >= commit.0);
            if let Some(segment) = segment {
                if let Some(commits) = self.segment(writer, segment).await? {
                    return of_segment(&commits, place).ok_or(Error::NoCommit(place.position));
                }
            } else {
                let key = streams::key(entry.stream(), commit.0);
                let from = HEADER_BYTES as u64 + u64::from(place.offset);
                match self.streams.store.get_range(&key, from, u64::from(place.len)).await {
                    Ok(Some(body)) if body.len() == place.len as usize => return Ok(body.to_vec()),
                    Ok(Some(_)) => return Err(Error::NoCommit(place.position)),
                    Ok(None) if commit.0 > self.known(&entry) => return Err(Error::NoCommit(place.position)),
                    Err(Fault::Refused(why)) => return Err(Error::backend(format!("reading {key}"), why)),
                    Ok(None) | Err(Fault::Unavailable(_)) => {}
                }
            }
            pauses.pause(self.host()).await;
            // The commit may have been merged into a segment.
            entry = self.roots.read().await?.writer(writer).cloned().unwrap_or(entry);
        }
        Err(Error::NoCommit(place.position))
    }

    /// True if a stream reaches this position.
    pub(crate) async fn reaches(&self, position: Position) -> Result<bool, Error> {
        let entry = match self.entry(position.writer).await {
            Err(Error::NoCommit(_)) => return Ok(false),
            entry => entry?,
        };
        Ok(CommitNo(self.last(&entry).await?) >= position.commit)
    }
}

fn of_segment(commits: &[Commit], place: Place) -> Option<Vec<u8>> {
    let at = commits.binary_search_by_key(&place.position.commit, |commit| commit.stamp().number);
    let commit = commits.get(at.ok()?)?;
    let from = place.offset as usize;
    commit.bytes().get(from..from + place.len as usize).map(<[u8]>::to_vec)
}
