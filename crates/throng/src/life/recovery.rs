//! From the journal to a running engine: at the start, and after an append that failed. One path for both.

use super::{
    Down, JOURNAL_FAILED, Life, Lives,
    checkpoint::{OUTBOX_ROW, REMOVED_ROWS_MAX},
    tasks::signalled,
};
use crate::{
    StartError,
    door::{Behind, Door, Outbox, now_or_later},
    ledger::Ledger,
    mail::Mail,
};
use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};
use throng_core::{
    layout::{LAYOUT_ROW, Layout, LayoutError, REBUILT},
    shard::{RESTORED, Shard, shard_of_row},
};
use throng_journal::{AppendError, Checkpoint, Commit, CommitNo, Error, Position, RecordKind, ShardId, WriterId};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 8 << 20;

impl Lives {
    /// Opens a new writer and rebuilds what the engine needs in memory from the store and the commits after its last
    /// checkpoint.
    pub(crate) async fn recover(&self) -> Result<Arc<Life>, StartError> {
        let context = &self.context;
        // A checkpoint of the life before that is still under way ends first: the store is read as it stays.
        let _no_checkpoint = self.checkpoints.lock.lock().await;
        let writer = context.journal.open(&context.options.node).await?.writer;
        let ids: Vec<ShardId> = (0..context.registry.shards()).map(ShardId).collect();
        let taken = context.journal.take(writer, &ids).await?;
        let sealed: Vec<Position> = taken
            .iter()
            .map(|taken| Position {
                writer: taken.writer,
                commit: taken.last,
            })
            .collect();
        let layout = Layout::of(&context.registry);
        let covers = self.covers(&layout, writer, &sealed).await?;
        let now = context.host.now();
        let empty = || {
            let ids = ids.iter();
            ids.map(|id| Shard::new(*id, writer, context.registry.clone(), now))
        };
        let mut shards: Vec<Shard> = empty().collect();
        let mut begin = covers;
        if covers.is_some() && !self.restore(&layout, &mut shards).await? {
            tracing::warn!(
                "the store's rows are not complete, or of an older version; everything is read from the journal"
            );
            self.discard_rows().await?;
            shards = empty().collect();
            begin = None;
        }
        let mut cursor = None;
        context
            .store
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
                let commits = context.journal.read(at, READ_BYTES).await?;
                let Some(last) = commits.last() else {
                    return Err(Error::NoCommit(at).into());
                };
                for commit in commits.iter().filter(|commit| commit.stamp().number <= end.commit) {
                    has_sent |= replay(&layout, &mut shards, commit)?;
                }
                at = last.position();
            }
        }
        let ledger = Arc::new(Ledger::new(context.clone(), writer, sealed.clone(), covers));
        let outbox = Outbox::new(
            context.options.outbox_max,
            context.options.memory_bytes_max / OUTBOX_PART,
        );
        let door = Arc::new(Door::new(context.clone(), ledger.clone(), Arc::new(outbox), shards));
        door.settle_all();
        if let Some(last) = sealed.last().filter(|_| has_sent || cursor.is_some()) {
            let first = sealed.first().map_or(WriterId(0), |first| first.writer);
            let begin = Position {
                writer: first,
                commit: CommitNo(0),
            };
            let checkpoint = covers.unwrap_or(begin);
            let read = cursor.map_or(checkpoint, |cursor| cursor.min(checkpoint));
            door.outbox.fall_behind(Behind { read, upto: *last });
        }
        context.metrics.recoveries.inc();
        let mail = Arc::new(Mail::new(context.clone(), door.clone()));
        Ok(Arc::new(Life {
            ledger,
            door,
            mail,
            due: Mutex::default(),
        }))
    }

    /// What the store covers, once its layout is found to be this engine's; a journal without a commit gets it.
    async fn covers(
        &self,
        layout: &Layout,
        writer: WriterId,
        sealed: &[Position],
    ) -> Result<Option<Position>, StartError> {
        let store = &self.context.store;
        let covers = store.covers().await?;
        match now_or_later(store.system(LAYOUT_ROW)).await? {
            Some(stored) => _ = layout.check(&stored)?,
            None if covers.is_none() && sealed.iter().all(|end| end.commit == CommitNo(0)) => {
                let upto = Position {
                    writer,
                    commit: CommitNo(0),
                };
                let begun = Checkpoint {
                    upto,
                    sealed: sealed.to_vec(),
                    system: vec![(LAYOUT_ROW.to_vec(), Some(layout.encode()))],
                    ..Checkpoint::default()
                };
                store.advance(begun).await?;
                return Ok(Some(upto));
            }
            None => {}
        }
        Ok(covers)
    }

    /// What the store knows; `false` if that is not all it should know.
    async fn restore(&self, layout: &Layout, shards: &mut [Shard]) -> Result<bool, Error> {
        let context = &self.context;
        let stored = now_or_later(context.store.system(LAYOUT_ROW)).await?;
        let mut is_complete = stored.is_some_and(|stored| layout.check(&stored) == Ok(true));
        if !is_complete {
            return Ok(false);
        }
        for prefix in RESTORED {
            let mut visit = |row: &[u8], value: &[u8]| {
                let shard = shard_of_row(row, &context.registry).and_then(|id| shards.get_mut(usize::from(id.0)));
                if !shard.is_some_and(|shard| shard.row(row, value)) {
                    tracing::error!("a system row of the store cannot be read: {row:02x?}");
                    is_complete = false;
                }
            };
            context.store.system_scan(prefix, &mut visit).await?;
        }
        Ok(is_complete)
    }

    /// The next checkpoint writes anew what was read from the journal.
    async fn discard_rows(&self) -> Result<(), Error> {
        for prefix in REBUILT {
            let mut after = Vec::new();
            let store = &self.context.store;
            while let Some(last) = store.remove_prefix(prefix, &after, REMOVED_ROWS_MAX).await? {
                after = last;
            }
        }
        Ok(())
    }
}

/// Begins a new life when one has ended before its time: what is in memory is forgotten, and what is in flight is answered by
/// what the journal then holds.
pub(super) async fn task(lives: Weak<Lives>) {
    while signalled(&lives, |context| &context.signals.recover).await {
        let Some(strong) = lives.upgrade() else { return };
        if let Some(life) = strong.latest()
            && let Some(failure) = life.ledger.failure()
        {
            strong.begin_again(&life, &failure).await;
        }
    }
}

impl Lives {
    async fn begin_again(&self, life: &Life, failure: &AppendError) {
        let (context, ledger) = (&self.context, &life.ledger);
        self.end(Down::with(JOURNAL_FAILED, failure));
        let last = loop {
            match context.journal.seal(ledger.writer).await {
                Ok(last) => break last,
                Err(error) => {
                    tracing::error!("the end of writer {} is not known yet: {error}", ledger.writer);
                    context.host.sleep(RETRY).await;
                }
            }
        };
        ledger.end(last);
        context.signals.wake_watchers();
        if matches!(failure, AppendError::Sealed) {
            self.stand_by(true);
        }
        while !context.is_stopping() {
            match self.recover().await {
                Ok(next) => {
                    let was_by = self.stands_by();
                    if was_by {
                        self.stand_by(false);
                    }
                    if self.begin(next) {
                        tracing::info!(has_stood_by = was_by, "the engine runs again from its journal");
                    }
                    context.signals.deliver.wake();
                    context.signals.timers.wake();
                    context.signals.wake_watchers();
                    return;
                }
                Err(StartError::Journal(Error::Sealed(_))) => {
                    if !self.stands_by() {
                        self.stand_by(true);
                    }
                    context.host.sleep(STAND_BY_RETRY).await;
                }
                Err(error) => {
                    tracing::error!("the engine cannot start from its journal, it tries again: {error}");
                    if !self.stands_by() {
                        self.end(Down::with("the journal cannot be read; it is tried again", error));
                    }
                    context.host.sleep(RETRY).await;
                }
            }
        }
    }
}

/// Messages between entities may take this part of the memory.
const OUTBOX_PART: usize = 8;

const RETRY: Duration = Duration::from_millis(500);
/// One that stands by looks so often whether the other one has ended.
const STAND_BY_RETRY: Duration = Duration::from_secs(1);

/// Replays a commit; says whether a message left in it.
fn replay(layout: &Layout, shards: &mut [Shard], commit: &Commit) -> Result<bool, LayoutError> {
    let mut has_sent = false;
    for record in commit.records().flatten() {
        let hash = match record.record {
            // Of the journal, or of nobody any more.
            RecordKind::Loss | RecordKind::Removed => continue,
            RecordKind::Numbers => 0,
            _ => layout.check_record(&record, commit)?,
        };
        has_sent |= record.record == RecordKind::Sent;
        if let Some(shard) = shards.get_mut(usize::from(record.shard.0)) {
            shard.replay(hash, &record);
        }
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
