//! Beginning a segment: for a new writer, which seals the one before, or for the same writer after a full one.

use super::{Active, FIRST_BYTES, Log, Writing, keeper::Want, now_micros, state::Live};
use crate::{
    header::{DATA_AT, Header, NODE_BYTES_MAX, align},
    recovery::{self, segment_path},
};
use std::sync::Arc;
use throng_journal::{ACCEPTED_LOSS_NODE, Append, CommitNo, Durability, Error, Loss, Position, WriterId};

/// The most finished segments left unsynced, at a durability without syncs.
const BEHIND_MAX: usize = 4;
/// Rewritten at once when a recovered end is synced.
const PIECE_BYTES: u64 = 1 << 20;

/// True if a commit of this size needs a new segment. A commit too large for any segment gets one of its own, which grows.
pub(super) fn segment_full(active: &Active, bytes: u64) -> bool {
    active.offset > DATA_AT && active.left_bytes() < bytes
}

impl Log {
    pub(super) fn open_writer(&self, node: &str) -> Result<WriterId, Error> {
        if node.len() > NODE_BYTES_MAX {
            return Err(Error::backend(
                "opening a writer",
                format!(
                    "the node's name has {} bytes, at most {NODE_BYTES_MAX} are allowed",
                    node.len()
                ),
            ));
        }
        let mut writing = self.writing();
        let adopted = self.adopt(&mut writing, node)?;
        let writer = match adopted {
            Some(writer) => writer,
            None => self.begin_writer(&mut writing, node, false)?,
        };
        // Done after the writer has its room, which may be the reserve's.
        self.reserve.keep();
        Ok(writer)
    }

    /// Begins the stream of a writer with a given id, which must be greater than all before.
    pub(crate) fn begin_imported(&self, writer: WriterId, node: &str) -> Result<(), Error> {
        let mut writing = self.writing();
        if writer.0 < writing.next_writer || node.len() > NODE_BYTES_MAX {
            return Err(Error::backend(
                format!("importing writer {writer}"),
                format!(
                    "writer {} comes next, with a node's name of at most {NODE_BYTES_MAX} bytes",
                    writing.next_writer
                ),
            ));
        }
        writing.next_writer = writer.0;
        self.begin_writer(&mut writing, node, false).map(drop)
    }

    /// Records an accepted loss as the only commit of a new writer. Ids of writers that the lost commits may have had are not reused.
    //= promise 10: damage is found
    pub(crate) fn accept_loss(&self, loss: Loss) -> Result<(), Error> {
        let writer = {
            let mut writing = self.writing();
            writing.next_writer = writing.next_writer.max(loss.covered.writer.0 + 1);
            self.begin_writer(&mut writing, ACCEPTED_LOSS_NODE, false)?
        };
        let failed = |why: String| Error::backend("recording the accepted loss", why);
        match self.append_commit(loss.accepted(writer, now_micros())) {
            Append::Done(appended) => appended.result.map_err(|error| failed(error.to_string()))?,
            Append::Later(_) => return Err(failed("the log did not take it at once".into())),
        }
        self.sync()
    }

    //= promise 7: a sealed writer cannot commit
    pub(super) fn seal_writer(&self, writer: WriterId) -> Result<CommitNo, Error> {
        let mut writing = self.writing();
        let node = {
            let state = self.shared.state();
            let Some(stream) = state.history.streams.get(&writer) else {
                let commit = CommitNo(0);
                return Err(Error::NoCommit(Position { writer, commit }));
            };
            if stream.sealed {
                return Ok(stream.last);
            }
            stream.node.clone()
        };
        self.begin_writer(&mut writing, &node, true)?;
        let state = self.shared.state();
        Ok(state
            .history
            .streams
            .get(&writer)
            .map_or(CommitNo(0), |stream| stream.last))
    }

    /// Seals the live writer, if there is one that has, or may have, committed.
    pub(super) fn end(&self) -> Result<(), Error> {
        let mut writing = self.writing();
        let node = match &self.shared.state().live {
            Some(live) if !live.reserved && (live.written.0 > 0 || live.over.is_some()) => Some(live.node.clone()),
            Some(live) if !live.reserved => None,
            _ => return Ok(()),
        };
        let Some(node) = node else {
            // Without a commit there is nothing to seal; only the room is given back.
            if let Some(active) = writing.segment.take() {
                writing.keeper.finish(active.file, DATA_AT);
            }
            return Ok(());
        };
        self.begin_writer(&mut writing, &node, true)?;
        if let Some(active) = writing.segment.take() {
            writing.keeper.finish(active.file, active.bytes.min(FIRST_BYTES));
        }
        Ok(())
    }

    /// Opens the writer that a seal has reserved for this node, if there is one. It has not been used.
    fn adopt(&self, writing: &mut Writing, node: &str) -> Result<Option<WriterId>, Error> {
        let (writer, number) = {
            let state = self.shared.state();
            let unusable = |live: &Live| !live.reserved || live.ended || live.over.is_some();
            if state.live.as_ref().is_some_and(unusable) {
                return Ok(None);
            }
            let (Some((writer, stream)), Some(segment)) =
                (state.history.streams.last_key_value(), state.history.segments.last())
            else {
                return Ok(None);
            };
            if !stream.reserved || stream.last != CommitNo(0) || stream.node != node {
                return Ok(None);
            }
            (*writer, segment.number)
        };
        writing.room_bytes = self.options.segment_bytes.min(FIRST_BYTES);
        let active = self.reopen_segment(writing, number, writing.room_bytes)?;
        writing.segment = Some(active);
        writing.unsynced.clear();
        writing.recovered_end = None;
        let mut state = self.shared.state();
        if let Some(stream) = state.history.streams.get_mut(&writer) {
            stream.reserved = false;
        }
        state.live = Some(live(writer, node, number, false));
        drop(state);
        self.remove_dead(writing);
        Ok(Some(writer))
    }

    /// Prepares the empty segment of a reserved writer: reserves room, and rewrites its header as opened.
    fn reopen_segment(&self, writing: &Writing, number: u64, room_bytes: u64) -> Result<Active, Error> {
        let path = segment_path(&self.dir, number);
        let doing = || format!("making room for the log in {}", path.display());
        let file = self.options.files.open(&path, false).map_err(Error::io(doing()))?;
        let length = file.length().map_err(Error::io(doing()))?;
        let mut bytes = length;
        if length < room_bytes {
            let want = Want {
                segment: number,
                bytes: room_bytes,
                bytes_min: length.max(DATA_AT),
                zeros: true,
            };
            bytes = writing.keeper.extend(&*file, want).map_err(Error::io(doing()))?;
            let zeros = vec![0; usize::try_from(bytes.saturating_sub(DATA_AT)).unwrap_or(0)];
            file.write_at(&zeros, DATA_AT).map_err(Error::io(doing()))?;
        }
        let header = recovery::open_segment(&*self.options.files, &self.dir, number)?;
        let Ok(recovery::Begun { header, .. }) = header else {
            return Err(Error::io(doing())(std::io::Error::other(
                "its header can no longer be read",
            )));
        };
        let opened = Header {
            reserved: false,
            ..header
        };
        file.write_at(&opened.encode(), 0).map_err(Error::io(doing()))?;
        self.sync_file(&*file).map_err(Error::io(doing()))?;
        Ok(Active {
            number,
            file,
            bytes,
            offset: DATA_AT,
            next_wanted: false,
        })
    }

    /// Begins a new writer's stream; the segment's header seals the stream before.
    fn begin_writer(&self, writing: &mut Writing, node: &str, reserved: bool) -> Result<WriterId, Error> {
        let previous = self.end_stream(writing)?;
        writing.room_bytes = self.options.segment_bytes.min(FIRST_BYTES);
        let header = Header {
            segment: writing.next_segment,
            writer: WriterId(writing.next_writer),
            first: CommitNo(1),
            synced: CommitNo(0),
            previous,
            reserved,
            node: node.to_owned(),
            at_micros: now_micros(),
        };
        let want = Want {
            segment: header.segment,
            bytes: if reserved { DATA_AT } else { writing.room_bytes },
            bytes_min: DATA_AT,
            zeros: true,
        };
        if reserved {
            writing.keeper.postpone(header.segment);
        }
        let active = self.begin_segment(writing, &header, want)?;
        let begun = self.sync_file(&*active.file);
        if let Err(error) = begun {
            let path = segment_path(&self.dir, header.segment);
            // The header may be on the disk nevertheless, so neither number is reused.
            writing.next_segment += 1;
            writing.next_writer += 1;
            let _ = self.options.files.remove(&path);
            return Err(Error::io(format!("syncing {}", path.display()))(error));
        }
        writing.next_segment += 1;
        writing.next_writer += 1;
        writing.unsynced.clear();
        writing.behind.clear();
        let finished = writing.segment.replace(active);
        {
            let mut state = self.shared.state();
            state.history.begin(&header);
            state.live = Some(live(header.writer, node, header.segment, reserved));
        }
        if let Some(finished) = finished {
            writing.keeper.finish(finished.file, finished.offset);
        }
        if let Some((number, end)) = writing.recovered_end.take() {
            match self.options.files.open(&segment_path(&self.dir, number), false) {
                Ok(file) => writing.keeper.finish(file, end),
                Err(error) => tracing::warn!(%error, "a finished segment keeps its unused room"),
            }
        }
        self.remove_dead(writing);
        Ok(header.writer)
    }

    /// Continues in the next segment. Everything before is synced first, so that an older segment never has a hole.
    pub(super) fn roll(&self, writing: &mut Writing, bytes: u64) -> Result<(), String> {
        if self.options.durability == Durability::Fsync {
            let durable = match &self.shared.state().live {
                Some(live) => live.durable == live.written,
                None => true,
            };
            if !durable {
                self.sync_active(writing)?;
            }
        } else if writing.behind.len() >= BEHIND_MAX {
            self.sync_all(writing)?;
        }
        let header = {
            let state = self.shared.state();
            let Some(live) = &state.live else {
                return Err("no writer is open".into());
            };
            Header {
                segment: writing.next_segment,
                writer: live.writer,
                first: live.written.next(),
                synced: live.synced,
                previous: state
                    .history
                    .sealed_before(live.writer)
                    .last()
                    .map(|taken| Position::new(taken.writer, taken.last)),
                reserved: false,
                node: live.node.clone(),
                at_micros: now_micros(),
            }
        };
        let room = align(bytes) + DATA_AT;
        let want = Want {
            segment: header.segment,
            bytes: writing.room_bytes.max(room),
            bytes_min: room,
            zeros: false,
        };
        let active = self
            .begin_segment(writing, &header, want)
            .map_err(|error| error.to_string())?;
        writing.next_segment += 1;
        let finished = writing.segment.replace(active);
        {
            let mut state = self.shared.state();
            state.history.begin(&header);
            if let Some(live) = &mut state.live {
                live.segment = header.segment;
            }
        }
        if let Some(finished) = finished {
            if self.options.durability != Durability::Fsync {
                writing.behind.push(Arc::clone(&finished.file));
            }
            writing.keeper.finish(finished.file, finished.offset);
        }
        Ok(())
    }

    /// Creates a segment's file with its header written, but not synced.
    fn begin_segment(&self, writing: &mut Writing, header: &Header, want: Want) -> Result<Active, Error> {
        let path = segment_path(&self.dir, header.segment);
        let room = writing
            .keeper
            .take(want)
            .map_err(Error::io(format!("making room for the log in {}", path.display())))?;
        self.readers.forget(header.segment);
        if let Err(error) = room.file.write_at(&header.encode(), 0) {
            // The header may be on the disk nevertheless, so neither number is reused.
            writing.next_segment += 1;
            if header.writer.0 == writing.next_writer {
                writing.next_writer += 1;
            }
            let _ = self.options.files.remove(&path);
            return Err(Error::io(format!("writing to {}", path.display()))(error));
        }
        Ok(Active {
            number: header.segment,
            file: room.file,
            bytes: room.bytes,
            offset: DATA_AT,
            next_wanted: false,
        })
    }

    /// Decides for good where the last stream ends: at what is known to be synced.
    fn end_stream(&self, writing: &mut Writing) -> Result<Option<Position>, Error> {
        let mut state = self.shared.state();
        while state.syncing > 0 {
            state = self.shared.wait(state);
        }
        let Some(live) = &state.live else {
            let last = state.history.streams.last_key_value();
            let end = last.map(|(writer, stream)| Position::new(*writer, stream.last));
            drop(state);
            self.rewrite_unsynced(writing)?;
            return Ok(end);
        };
        let undecided = live.over.is_none() && !live.ended && live.synced < live.written;
        drop(state);
        if undecided && let Err(why) = self.sync_all(writing) {
            tracing::warn!(%why, "what was not synced of the sealed writer is left out");
        }
        self.sync_acknowledged(writing)?;
        let mut state = self.shared.state();
        let Some(live) = &mut state.live else { return Ok(None) };
        live.ended = true;
        let end = live.end();
        let answers = state.fail_waiting();
        drop(state);
        answers.send();
        Ok(Some(end))
    }

    /// Syncs every acknowledged commit. At a durability without syncs, more may be acknowledged than synced. No end is reported before
    /// everything is synced; after a failed sync it is written again first.
    fn sync_acknowledged(&self, writing: &mut Writing) -> Result<(), Error> {
        let segments: Vec<u64> = {
            let state = self.shared.state();
            let Some(live) = state.live.as_ref().filter(|live| live.synced < live.durable) else {
                return Ok(());
            };
            let of_live = state
                .history
                .segments
                .iter()
                .filter(|segment| segment.writer == live.writer);
            of_live.map(|segment| segment.number).collect()
        };
        writing.unsynced = segments.iter().map(|number| (*number, 0, u64::MAX)).collect();
        self.rewrite_unsynced(writing)?;
        writing.unsynced.clear();
        let mut state = self.shared.state();
        if let Some(live) = &mut state.live {
            live.synced = live.durable;
        }
        Ok(())
    }

    /// Writes again what recovery has read. It may be only in the page cache, even after a sync that failed in an earlier epoch. Written
    /// again, it is covered by the sync that follows.
    fn rewrite_unsynced(&self, writing: &Writing) -> Result<(), Error> {
        for (number, from, to) in &writing.unsynced {
            let path = segment_path(&self.dir, *number);
            let doing = format!("syncing what was read of {}", path.display());
            let file = self
                .options
                .files
                .open(&path, false)
                .map_err(Error::io(doing.clone()))?;
            let mut at = *from;
            while at < *to {
                let mut piece = vec![0; usize::try_from((to - at).min(PIECE_BYTES)).unwrap_or(0)];
                let read = file.read_at(&mut piece, at).map_err(Error::io(doing.clone()))?;
                if read == 0 {
                    break;
                }
                file.write_at(&piece[..read], at).map_err(Error::io(doing.clone()))?;
                at += read as u64;
            }
            self.sync_file(&*file).map_err(Error::io(doing))?;
        }
        Ok(())
    }

    /// Removes files without history. If one cannot be removed, the next start tries again.
    fn remove_dead(&self, writing: &mut Writing) {
        let names = self.options.files.list(&self.dir).unwrap_or_default();
        for name in names.iter().filter(|name| crate::rewrite::is_leftover(name)) {
            // The leftover of an interrupted rewrite. The next rewrite begins anew.
            let _ = self.options.files.remove(&self.dir.join(name));
        }
        for number in std::mem::take(&mut writing.dead) {
            let path = segment_path(&self.dir, number);
            match self.options.files.remove(&path) {
                Ok(()) => tracing::info!(file = %path.display(), "removed a segment that holds nothing of the history"),
                Err(error) => tracing::warn!(%error, file = %path.display(), "could not remove an unused segment"),
            }
        }
    }
}

fn live(writer: WriterId, node: &str, segment: u64, reserved: bool) -> Live {
    Live {
        writer,
        node: node.to_owned(),
        segment,
        written: CommitNo(0),
        durable: CommitNo(0),
        synced: CommitNo(0),
        over: None,
        ended: false,
        reserved,
    }
}
