//! From the journal to a running engine: at the start, and after an append that failed. One path for both.

use crate::{
    StartError,
    checkpoint::{OUTBOX_ROW, REMOVED_ROWS_MAX},
    engine::{Inner, Status},
    life::Life,
    load::now_or_later,
};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};
use throng_core::{
    layout::{LAYOUT_ROW, Layout, LayoutError, REBUILT},
    shard::{RESTORED, Shard, shard_of_row},
};
use throng_journal::{AppendError, Checkpoint, Commit, CommitNo, Error, Position, RecordKind, ShardId, WriterId};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 8 << 20;

impl Inner {
    /// Opens a new writer and rebuilds what the engine needs in memory from the store and the commits after its last
    /// checkpoint.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<Arc<Life>, StartError> {
        // A checkpoint of the life before that is still under way ends first: the store is read as it stays.
        let _no_checkpoint = self.checkpoint_lock.lock().await;
        let writer = self.journal.open(&self.options.node).await?.writer;
        let ids: Vec<ShardId> = (0..self.registry.shards()).map(ShardId).collect();
        let taken = self.journal.take(writer, &ids).await?;
        let sealed: Vec<Position> = taken
            .iter()
            .map(|taken| Position {
                writer: taken.writer,
                commit: taken.last,
            })
            .collect();
        let layout = Layout::of(&self.registry);
        let covers = self.covers(&layout, writer, &sealed).await?;
        let now = self.host.now();
        let empty = || ids.iter().map(|id| Shard::new(*id, writer, self.registry.clone(), now));
        let mut shards: Vec<Shard> = empty().collect();
        let mut begin = covers;
        if covers.is_some() && !self.restore(&mut shards).await? {
            tracing::warn!("the store's rows are not complete; everything is read from the journal");
            self.discard_rows().await?;
            shards = empty().collect();
            begin = None;
        }
        let mut cursor = None;
        self.store
            .system_scan(OUTBOX_ROW, &mut |_, value| cursor = read_position(value))
            .await?;
        let mut has_sent = false;
        for end in sealed
            .iter()
            .filter(|end| begin.is_none_or(|begin| end.writer >= begin.writer))
        {
            let mut at = Position {
                commit: CommitNo(0),
                ..*end
            };
            if let Some(begin) = begin.filter(|begin| begin.writer == end.writer) {
                at = begin;
            }
            while at.commit < end.commit {
                let commits = self.journal.read(at, READ_BYTES).await?;
                let Some(last) = commits.last() else {
                    return Err(Error::NoCommit(at).into());
                };
                for commit in commits.iter().filter(|commit| commit.stamp().number <= end.commit) {
                    has_sent |= replay(&layout, &mut shards, commit)?;
                }
                at = last.position();
            }
        }
        let life = Life::new(writer, sealed.clone(), shards, self.options.inbox_max);
        *life.covers.lock().unwrap_or_else(PoisonError::into_inner) = covers;
        self.books(&life);
        if let Some(last) = sealed.last().filter(|_| has_sent || cursor.is_some()) {
            let first = sealed.first().map_or(WriterId(0), |first| first.writer);
            let begin = Position {
                writer: first,
                commit: CommitNo(0),
            };
            let checkpoint = covers.unwrap_or(begin);
            life.outbox()
                .fall_behind(cursor.map_or(checkpoint, |cursor| cursor.min(checkpoint)), *last);
        }
        self.metrics.recoveries.inc();
        Ok(Arc::new(life))
    }

    /// What the store covers, once its layout is found to be this engine's; a journal without a commit gets it.
    async fn covers(
        &self,
        layout: &Layout,
        writer: WriterId,
        sealed: &[Position],
    ) -> Result<Option<Position>, StartError> {
        let covers = self.store.covers().await?;
        match now_or_later(self.store.system(LAYOUT_ROW)).await? {
            Some(stored) => layout.check(&stored)?,
            None if covers.is_none() && sealed.iter().all(|end| end.commit == CommitNo(0)) => {
                let begun = Checkpoint {
                    upto: Position {
                        writer,
                        commit: CommitNo(0),
                    },
                    sealed: sealed.to_vec(),
                    system: vec![(LAYOUT_ROW.to_vec(), Some(layout.encode()))],
                    ..Checkpoint::default()
                };
                let upto = begun.upto;
                self.store.advance(begun).await?;
                return Ok(Some(upto));
            }
            None => {}
        }
        Ok(covers)
    }

    /// What the store knows; `false` if that is not all it should know.
    async fn restore(&self, shards: &mut [Shard]) -> Result<bool, Error> {
        let mut is_complete = now_or_later(self.store.system(LAYOUT_ROW)).await?.is_some();
        for prefix in RESTORED {
            self.store
                .system_scan(prefix, &mut |row, value| {
                    let shard = shard_of_row(row, &self.registry).and_then(|id| shards.get_mut(usize::from(id.0)));
                    if !shard.is_some_and(|shard| shard.row(row, value)) {
                        tracing::error!("a system row of the store cannot be read: {row:02x?}");
                        is_complete = false;
                    }
                })
                .await?;
        }
        Ok(is_complete)
    }

    /// The next checkpoint writes anew what was read from the journal.
    async fn discard_rows(&self) -> Result<(), Error> {
        for prefix in REBUILT {
            let mut after = Vec::new();
            while let Some(last) = self.store.remove_prefix(prefix, &after, REMOVED_ROWS_MAX).await? {
                after = last;
            }
        }
        Ok(())
    }

    /// Memory and timers as they are now.
    fn books(self: &Arc<Self>, life: &Life) {
        for shard in &life.shards {
            shard.wait(|shard| self.after(life, shard, false));
        }
    }

    /// An append failed, or may have: the writer is over. Everything in memory is forgotten; what is in flight is
    /// answered by what the journal then holds.
    pub(crate) fn writer_over(self: &Arc<Self>, life: &Arc<Life>, error: &AppendError) {
        if life.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_sealed = matches!(error, AppendError::Sealed);
        tracing::error!("writer {} is over: {error}", life.writer);
        self.set_status(Status::Down(format!(
            "the journal failed ({error}); the engine starts again from it"
        )));
        let (inner, life) = (self.clone(), life.clone());
        self.host.spawn(Box::pin(async move {
            let last = loop {
                match inner.journal.seal(life.writer).await {
                    Ok(last) => break last,
                    Err(error) => {
                        tracing::error!("the end of writer {} is not known yet: {error}", life.writer);
                        inner.host.sleep(RETRY).await;
                    }
                }
            };
            life.open.end(last.0);
            inner.wake_watchers();
            if is_sealed {
                inner.set_status(Status::Down("another engine has taken over this journal".into()));
                return;
            }
            while !inner.is_stopping() {
                match inner.recover().await {
                    Ok(next) => {
                        inner.set_status(Status::Running(next));
                        inner.pump.wake();
                        inner.alarm.wake();
                        inner.wake_watchers();
                        tracing::info!("the engine runs again from its journal");
                        return;
                    }
                    Err(error) => {
                        tracing::error!("the engine cannot start from its journal, it tries again: {error}");
                        inner.set_status(Status::Down(format!("the journal cannot be read: {error}")));
                        inner.host.sleep(RETRY).await;
                    }
                }
            }
        }));
    }

    /// The commits after a position, into the next stream at the end of a sealed one; and how far they reach.
    pub(crate) async fn next_commits(&self, life: &Life, after: Position) -> Result<(Vec<Commit>, Position), Error> {
        let mut at = after;
        loop {
            let commits = self.journal.read(at, READ_BYTES).await?;
            if let Some(last) = commits.last() {
                let reached = last.position();
                return Ok((commits, reached));
            }
            let next = life
                .sealed
                .iter()
                .map(|end| end.writer)
                .chain([life.writer])
                .find(|writer| *writer > at.writer);
            match next {
                Some(writer) => {
                    at = Position {
                        writer,
                        commit: CommitNo(0),
                    }
                }
                None => return Ok((Vec::new(), at)),
            }
        }
    }
}

const RETRY: Duration = Duration::from_millis(500);

/// Replays a commit; says whether a message left in it.
fn replay(layout: &Layout, shards: &mut [Shard], commit: &Commit) -> Result<bool, LayoutError> {
    let mut has_sent = false;
    for record in commit.records().flatten() {
        let hash = layout.check_record(&record, commit)?;
        has_sent |= record.record == RecordKind::Sent;
        shards[usize::from(record.shard.0)].replay(hash, &record);
    }
    Ok(has_sent)
}

fn read_position(value: &[u8]) -> Option<Position> {
    let (writer, commit) = value.split_first_chunk::<8>()?;
    let commit: &[u8; 8] = commit.try_into().ok()?;
    Some(Position {
        writer: WriterId(u64::from_be_bytes(*writer)),
        commit: CommitNo(u64::from_be_bytes(*commit)),
    })
}
