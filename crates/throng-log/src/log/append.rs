//! Appending: one buffer, one write, one sync.

use super::{Active, FIRST_BYTES, Log, Writing, begin::segment_full, keeper::Want, state::Answers};
use crate::{
    files::{BLOCK_BYTES, LARGE_BYTES},
    header::{SECTOR_BYTES, align, seed},
    recovery::segment_path,
};
use std::{sync::Arc, time::Instant};
use throng_journal::{Append, AppendError, Appended, Commit, CommitNo, Durability, Stamp, commit::Buffer};

fn done(result: Result<(), AppendError>, mut buffer: Buffer) -> Append {
    buffer.clear();
    Append::Done(Appended { result, buffer })
}

impl Log {
    pub(super) fn append_commit(&self, commit: Commit) -> Append {
        let stamp = commit.stamp();
        let mut writing = self.writing();
        let synced = match self.admit(stamp, commit.first()) {
            Ok(synced) => synced,
            Err(refused) => return done(Err(refused), commit.into_buffer()),
        };
        let buffer = match self.write(&mut writing, commit, synced) {
            Ok(buffer) => buffer,
            Err((why, buffer)) => return done(Err(self.fail(why)), buffer),
        };
        if self.options.durability == Durability::Fsync {
            return self.sync_written(&mut writing, stamp.number, buffer);
        }
        let answers = self.shared.state().durable(stamp.number);
        answers.send();
        done(Ok(()), buffer)
    }

    /// Checks that this commit may be appended now, and returns the newest one known to be synced.
    //= promise 5: numbers have no gaps
    //= promise 7: a sealed writer cannot commit
    fn admit(&self, stamp: Stamp, first: CommitNo) -> Result<CommitNo, AppendError> {
        let state = self.shared.state();
        let live = match &state.live {
            Some(live) if live.writer == stamp.writer && !live.reserved => live,
            _ if state.history.streams.contains_key(&stamp.writer) => return Err(AppendError::Sealed),
            _ => {
                return Err(AppendError::InDoubt(format!(
                    "writer {} was never opened",
                    stamp.writer
                )));
            }
        };
        if live.ended {
            return Err(AppendError::Sealed);
        }
        if let Some(why) = &live.over {
            return Err(AppendError::InDoubt(why.clone()));
        }
        if first != live.written.next() {
            let why = format!("commit {} does not follow commit {}", stamp.number, live.written);
            return Err(AppendError::InDoubt(why));
        }
        Ok(live.synced)
    }

    /// Writes a commit after the last one, in the next segment if this one is full.
    fn write(&self, writing: &mut Writing, mut commit: Commit, synced: CommitNo) -> Result<Buffer, (String, Buffer)> {
        let bytes = commit.bytes().len() as u64;
        let (number, stands_for) = (commit.stamp().number, commit.stands_for());
        // A large commit ends with a block, so that the next one begins with one.
        let blocks = bytes >= LARGE_BYTES;
        let room = if blocks { bytes + BLOCK_BYTES } else { bytes };
        if let Err(why) = self.make_room(writing, room) {
            return Err((why, commit.into_buffer()));
        }
        let Some(active) = &mut writing.segment else {
            return Err(("no segment is open".into(), commit.into_buffer()));
        };
        commit.set_synced(synced);
        if blocks {
            let end = active.offset + bytes;
            commit.pad((end.next_multiple_of(BLOCK_BYTES) - end) as usize);
        }
        commit.seal(&seed(active.number, active.offset));
        let mut buffer = commit.into_buffer();
        // The rest of the last sector belongs to this commit: no later write touches a synced sector.
        buffer.resize(buffer.len().next_multiple_of(SECTOR_BYTES as usize));
        if let Err(error) = active.file.write_at(&buffer, active.offset) {
            let path = segment_path(&self.dir, active.number);
            return Err((format!("writing to {} failed: {error}", path.display()), buffer));
        }
        {
            let mut state = self.shared.state();
            state.history.wrote(active.offset, stands_for);
            if let Some(live) = &mut state.live {
                live.written = number;
            }
        }
        active.offset += buffer.len() as u64;
        writing.commit_bytes_mean = (writing.commit_bytes_mean * 7 + bytes) / 8;
        self.look_ahead(writing);
        Ok(buffer)
    }

    fn make_room(&self, writing: &mut Writing, bytes: u64) -> Result<(), String> {
        match &writing.segment {
            Some(active) if segment_full(active, align(bytes)) => self.roll(writing, bytes),
            _ => Ok(()),
        }
    }

    /// Has the next segment prepared once the first one of a writer is a quarter full (most epochs of tests and tools end before that), or
    /// a later one half full.
    fn look_ahead(&self, writing: &mut Writing) {
        let bytes = self.options.segment_bytes;
        // Zeros would take half of the disk's bandwidth from large commits, which gain little by them, since they skip the page cache.
        let zeros = writing.commit_bytes_mean < LARGE_BYTES;
        let segment = writing.next_segment;
        let enough = if writing.room_bytes == bytes {
            u64::MAX
        } else {
            FIRST_BYTES / 4
        };
        if let Some(active) = &mut writing.segment
            && !active.next_wanted
            && active.offset > (active.bytes / 2).min(bytes / 2).min(enough)
        {
            active.next_wanted = true;
            writing.room_bytes = bytes;
            writing.keeper.want(Want {
                segment,
                bytes,
                bytes_min: 0,
                zeros,
            });
        }
    }

    /// Makes what was written durable: on this thread while syncs are fast, on another while they are slow.
    //= promise 2: acknowledged events survive
    fn sync_written(&self, writing: &mut Writing, number: CommitNo, buffer: Buffer) -> Append {
        if self.shared.depth() > 1 && self.syncers_run(writing) {
            let flight = self.shared.state().await_sync(number, buffer);
            self.shared.wanted.notify_one();
            return Append::Later(Box::pin(flight));
        }
        match self.sync_active(writing) {
            Ok(()) => done(Ok(()), buffer),
            Err(why) => done(Err(AppendError::InDoubt(why)), buffer),
        }
    }

    fn syncers_run(&self, writing: &mut Writing) -> bool {
        if writing.syncers.started() {
            return true;
        }
        let started = writing
            .syncers
            .start(&self.shared, &self.options.files, &self.dir, self.options.sync_delay);
        if let Err(error) = &started {
            tracing::warn!(%error, "no threads to sync beside; every commit waits for its sync");
        }
        started.is_ok()
    }

    /// Syncs the current segment. The writer ends if that fails.
    pub(super) fn sync_active(&self, writing: &Writing) -> Result<(), String> {
        let Some(active) = &writing.segment else { return Ok(()) };
        let written = match &self.shared.state().live {
            Some(live) => match &live.over {
                Some(why) => return Err(why.clone()),
                None => live.written,
            },
            None => return Ok(()),
        };
        let began = Instant::now();
        if let Err(error) = self.sync_file(&*active.file) {
            let path = segment_path(&self.dir, active.number);
            let why = format!("syncing {} failed: {error}", path.display());
            self.fail(why.clone());
            return Err(why);
        }
        let took = began.elapsed();
        let answers = {
            let mut state = self.shared.state();
            // Another thread's sync may have failed meanwhile. Then nothing more is acknowledged.
            match state.live.as_ref().and_then(|live| live.over.clone()) {
                Some(why) => Err(why),
                None => Ok(self.shared.synced(&mut state, written, took)),
            }
        };
        answers.map(Answers::send)
    }

    /// Syncs what has been written while commits go on. Without syncs of their own there may be much of it, and they should not wait for
    /// all of it.
    pub(super) fn sync_beside(&self) -> Result<(), String> {
        if self.options.durability == Durability::Fsync {
            return Ok(());
        }
        let files: Vec<_> = {
            let writing = self.writing();
            let active = writing.segment.iter().map(|active| &active.file);
            writing.behind.iter().chain(active).map(Arc::clone).collect()
        };
        for file in files {
            if let Err(error) = self.sync_file(&*file) {
                let why = format!("syncing a segment failed: {error}");
                self.fail(why.clone());
                return Err(why);
            }
        }
        Ok(())
    }

    /// Syncs the unsynced part of the live stream, in order.
    pub(super) fn sync_all(&self, writing: &mut Writing) -> Result<(), String> {
        while let Some(file) = writing.behind.first() {
            if let Err(error) = self.sync_file(&**file) {
                let why = format!("syncing a finished segment failed: {error}");
                self.fail(why.clone());
                return Err(why);
            }
            writing.behind.remove(0);
        }
        let all_synced = match &self.shared.state().live {
            Some(live) => live.synced == live.written,
            None => true,
        };
        if all_synced { Ok(()) } else { self.sync_active(writing) }
    }

    fn fail(&self, why: String) -> AppendError {
        let answers = self.shared.state().fail(why.clone());
        answers.send();
        AppendError::InDoubt(why)
    }
}

impl Active {
    pub(super) fn left_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.offset)
    }
}
