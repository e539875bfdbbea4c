//! Removing expired records from history: finished segments are rewritten without them.

use super::Log;
use crate::{
    header::DATA_AT,
    rewrite::{self, Finished},
};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};
use throng_journal::{CommitNo, Error, Prune, PruneHow, Pruned};

impl Log {
    /// Sets the directory to which segments are copied before records are removed from them.
    pub fn set_archive(&self, archive: Option<PathBuf>) {
        *self.archive.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = archive;
    }

    pub(super) async fn prune_stream(&self, prune: Prune) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        for segment in self.finished(&prune) {
            let of_this = self.rewrite(segment, &prune).await?;
            pruned.add(of_this);
        }
        Ok(pruned)
    }

    async fn rewrite(&self, segment: Finished, prune: &Prune) -> Result<Pruned, Error> {
        let files = Arc::clone(&self.options.files);
        let archive = self
            .archive
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let (prune, how, number) = (prune.clone(), prune.how, segment.number);
        let work = move || rewrite::rewrite(&*files, &segment, &prune, archive.as_deref());
        let answer = self.worker()?.run(work).await;
        if how != PruneHow::Dry {
            // Also after a failure, which may have come after the rename.
            self.shared.state().history.drop_directory(number);
            self.readers.forget(number);
            self.rewritten.fetch_add(1, Ordering::AcqRel);
        }
        answer.unwrap_or_else(|why| Err(Error::backend("removing history", why)))
    }

    /// Continues in a new segment, so that the current one is finished.
    pub(super) fn finish_segment(&self) -> Result<(), Error> {
        let mut writing = self.writing();
        let has_commits = writing.segment.as_ref().is_some_and(|active| active.offset > DATA_AT);
        if !has_commits {
            return Ok(());
        }
        self.roll(&mut writing, 0)
            .map_err(|why| Error::io("ending a segment")(std::io::Error::other(why)))
    }

    /// Returns the segments of a stream between two commits that no writer writes any more.
    fn finished(&self, prune: &Prune) -> Vec<Finished> {
        let state = self.shared.state();
        let history = &state.history;
        let Some(stream) = history.streams.get(&prune.after.writer) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        // The last segment is the current one, or will be.
        for pair in history.segments.windows(2) {
            let [segment, next] = pair else { continue };
            if segment.writer != prune.after.writer {
                continue;
            }
            let last = match next.writer == segment.writer {
                true => CommitNo(next.first.0 - 1),
                false => stream.last,
            };
            if last >= segment.first && last > prune.after.commit && last <= prune.upto {
                found.push(Finished {
                    dir: self.dir.clone(),
                    number: segment.number,
                    writer: segment.writer,
                    first: segment.first,
                    last,
                });
            }
        }
        found
    }
}
