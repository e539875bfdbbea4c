//! Journals on object storage.

use anyhow::{Context as _, bail};
use serde::Serialize;
use std::{fmt, sync::Arc, time::Duration};
use throng::journal::{Commit, CommitNo, Error, Journal as _, Position, WriterId};
use throng_conditional::{ConditionalOptions, ConditionalStore as _, Opened, ROOT, open_conditional};
use throng_object_storage::{Bucket, S3Location};
use tokio::runtime::Runtime;

/// Bytes that are read at a time.
const PAGE_BYTES: usize = 8 << 20;

fn runtime() -> anyhow::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.context("cannot start a runtime")
}

/// Opens a journal that one process serves. The storage is tried where there is none yet.
pub(crate) fn open(location: &S3Location, lease: Option<Duration>) -> anyhow::Result<Opened> {
    let bucket = Arc::new(Bucket::open(location.clone())?);
    for warning in runtime()?.block_on(bucket.admit())? {
        tracing::warn!("{location}: {warning}");
    }
    let mut options = ConditionalOptions::default();
    if let Some(lease) = lease {
        options.lease = lease;
    }
    let host = bucket.host();
    Ok(open_conditional(bucket, host, options))
}

/// A part of a journal's history.
pub(crate) enum Part<'a> {
    Writer,
    Commit(&'a Commit),
}

/// Reads all of a journal, in order; also beside a running service, of which the newest may be missing.
pub(crate) fn walk(location: &S3Location, each: &mut dyn FnMut(Part<'_>) -> Result<(), Error>) -> anyhow::Result<()> {
    let bucket = Arc::new(Bucket::open(location.clone())?);
    // A look at the journal would begin one.
    if !is_begun(&bucket)? {
        bail!("there is no journal at {location}");
    }
    let (host, runtime) = (bucket.host(), runtime()?);
    let journal = open_conditional(bucket, host, ConditionalOptions::default()).journal;
    for stream in runtime.block_on(journal.streams(WriterId(0)))? {
        each(Part::Writer)?;
        let mut after = Position::new(stream.writer, CommitNo(0));
        while after.commit < stream.last {
            // Not waited for while it is looked at: whoever looks may wait for something, too.
            let commits = runtime.block_on(journal.read(after, PAGE_BYTES))?;
            let Some(last) = commits.last() else { break };
            after = last.position();
            commits.iter().try_for_each(|commit| each(Part::Commit(commit)))?;
        }
    }
    Ok(())
}

fn is_begun(bucket: &Bucket) -> anyhow::Result<bool> {
    Ok(runtime()?.block_on(bucket.get(ROOT))?.is_some())
}

/// The finding about a storage and the journal in it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verified {
    writers: u64,
    commits: u64,
    bytes: u64,
    /// Sentences about the bucket.
    warnings: Vec<String>,
    /// The first thing that cannot be read.
    damage: Option<String>,
}

impl Verified {
    pub(crate) fn is_sound(&self) -> bool {
        self.damage.is_none()
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (writers, commits, bytes) = (self.writers, self.commits, self.bytes);
        writeln!(f, "the storage passes the trial: of writers that race, one wins")?;
        writeln!(f, "{commits} commits of {writers} writers, {bytes} bytes")?;
        for warning in &self.warnings {
            writeln!(f, "note: {warning}")?;
        }
        match &self.damage {
            Some(damage) => write!(f, "damaged: {damage}"),
            None => write!(f, "sound"),
        }
    }
}

/// Tries the storage, whatever it was found to be at the first start, and reads every commit.
pub(crate) fn verify(location: &S3Location) -> anyhow::Result<Verified> {
    let bucket = Arc::new(Bucket::open(location.clone())?);
    let mut found = Verified {
        warnings: runtime()?.block_on(bucket.verify())?,
        ..Verified::default()
    };
    if !is_begun(&bucket)? {
        return Ok(found);
    }
    let walked = walk(location, &mut |part| {
        match part {
            Part::Writer => found.writers += 1,
            Part::Commit(commit) => {
                found.commits += 1;
                found.bytes += commit.bytes().len() as u64;
            }
        }
        Ok(())
    });
    match walked.map_err(anyhow::Error::downcast::<Error>) {
        Ok(()) => Ok(found),
        Err(Ok(error @ Error::Damaged { .. })) => {
            found.damage = Some(error.to_string());
            Ok(found)
        }
        Err(Ok(error)) => Err(error.into()),
        Err(Err(error)) => Err(error),
    }
}
