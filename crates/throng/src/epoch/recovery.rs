//! Recovery from the journal to a running engine: at the start, and after an append that failed. One path for both.

use super::{
    Down, Due, Epoch, Epochs, JOURNAL_FAILED, LOST, Member, NO_MEMBER, OUTBOX_ROW, REMOVED_ROWS_MAX, ROLLED_BACK,
    removals::Removals, signalled,
};
use crate::{
    commit::GroupCommit,
    delivery::Deliverer,
    error::StartError,
    executor::{Behind, Executor, Outbox, now_or_later},
};
use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};
use throng_core::{
    layout::{LAYOUT_ROW, Layout, LayoutError, REBUILT},
    shard::{RESTORED, Shard, shard_of_row},
};
use throng_journal::{
    AppendError, Checkpoint, Commit, CommitNo, Covered, Error, Later, Position, RecordKind, ShardId, ShardSet, WriterId,
};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 8 << 20;

impl Epochs {
    /// Opens a new writer and rebuilds what the engine needs in memory from the store and the commits after its last
    /// checkpoint.
    pub(crate) fn recover(&self) -> Later<'_, Result<Arc<Epoch>, StartError>> {
        Box::pin(async move {
            let context = &self.context;
            // A checkpoint of the epoch before that is still under way ends first: the store is read as it stays.
            let _no_checkpoint = self.checkpoints.lock.lock().await;
            let (writer, shards) = self.open_stream().await?;
            let ids: Vec<ShardId> = shards.iter().collect();
            let taken = context.journal.take(writer, &ids).await?;
            let sealed: Vec<Position> = taken
                .iter()
                .map(|taken| Position::new(taken.writer, taken.last))
                .collect();
            let layout = Layout::of(&context.registry);
            let (mut covers, stored) = self.covers(&layout, (writer, &shards), &sealed).await?;
            let (now, has_store) = (context.host.now(), covers.is_some());
            let empty = || {
                let all = (0..context.registry.shards()).map(ShardId);
                all.map(|id| Shard::new(id, writer, context.registry.clone(), now))
            };
            let mut restored: Vec<Shard> = empty().collect();
            let is_complete = stored.is_some_and(|stored| layout.check(&stored) == Ok(true));
            if covers.is_some() && !(is_complete && self.restore(&covers, &mut restored).await?) {
                tracing::warn!(
                    "the store's rows are not complete, or of an older version; everything is read from the journal"
                );
                self.discard_rows().await?;
                restored = empty().collect();
                restored.iter_mut().for_each(Shard::timers_in_journal);
                covers.forget();
            }
            let cursor = self.outbox_cursor(&shards).await?;
            if cursor.is_some() {
                self.has_outbox_rows();
            }
            let mut has_sent = false;
            let keeps = context.keeps();
            // The store says what was removed; where it is lost, the log does.
            let mut removals = (!has_store).then(Removals::default);
            for (end, taken) in sealed.iter().zip(&taken) {
                let Some(mut at) = covers.begin(*end, taken.shards.as_ref()) else {
                    continue;
                };
                while at.commit < end.commit {
                    let commits = context.journal.read(at, READ_BYTES).await?;
                    let Some(last) = commits.last() else {
                        return Err(Error::NoCommit(at).into());
                    };
                    for commit in commits.iter().filter(|commit| commit.stamp().number <= end.commit) {
                        has_sent |= replay(&layout, &covers, &mut restored, commit)?;
                        removals.iter_mut().for_each(|removals| removals.read(commit, &keeps));
                    }
                    at = last.position();
                }
            }
            let least = covers.least();
            let group_commit = Arc::new(GroupCommit::new(context.clone(), writer, shards, sealed.clone(), least));
            let outbox = Outbox::new(
                context.registry.shards(),
                (
                    context.options.outbox_max,
                    context.options.memory_bytes_max / OUTBOX_PART,
                ),
                context.signals.deliver.clone(),
            );
            for quarantined in restored.iter().flat_map(Shard::quarantined_by_operator) {
                outbox.quarantine(&quarantined.address, &quarantined.reason, quarantined.since);
            }
            let executor = Arc::new(Executor::new(
                context.clone(),
                group_commit.clone(),
                Arc::new(outbox),
                restored,
            ));
            executor.settle_all();
            if let Some(last) = sealed.last().filter(|_| has_sent || cursor.is_some()) {
                let first = sealed.first().map_or(WriterId(0), |first| first.writer);
                let begin = Position::new(first, CommitNo(0));
                let checkpoint = least.unwrap_or(begin);
                let read = cursor.map_or(checkpoint, |cursor| cursor.min(checkpoint));
                executor.outbox.fall_behind(Behind { read, upto: *last });
            }
            context.metrics.recoveries.inc();
            let deliverer = Arc::new(Deliverer::new(context.clone(), executor.clone()));
            Ok(Arc::new(Epoch {
                group_commit,
                executor,
                deliverer,
                due: Mutex::new(Due {
                    rows: removals.and_then(Removals::row).into_iter().collect(),
                    ..Due::default()
                }),
            }))
        })
    }

    /// The new writer, and the shards whose records its stream may hold.
    async fn open_stream(&self) -> Result<(WriterId, ShardSet), Error> {
        let context = &self.context;
        match self.member() {
            None => {
                let opened = context.journal.open(&context.options.node).await?;
                Ok((opened.writer, ShardSet::first(context.registry.shards())))
            }
            Some(Member { node, shards }) => {
                let opened = context.journal.open_shards(node, &shards).await?;
                Ok((opened.writer, shards))
            }
        }
    }

    /// Returns what the store covers of the writer's shards, and the layout it has stored. That has to be this engine's.
    /// A journal without a commit gets this engine's layout.
    async fn covers(
        &self,
        layout: &Layout,
        (writer, shards): (WriterId, &ShardSet),
        sealed: &[Position],
    ) -> Result<(Coverage, Option<Vec<u8>>), StartError> {
        let store = &self.context.store;
        let covers = Coverage {
            shards: shards.clone(),
            covered: store.covers(shards).await?,
        };
        let stored = now_or_later(store.system(LAYOUT_ROW)).await?;
        match &stored {
            Some(stored) => _ = layout.check(stored)?,
            None if !covers.is_some() && sealed.iter().all(|end| end.commit == CommitNo(0)) => {
                let upto = Position::new(writer, CommitNo(0));
                let begun = Checkpoint {
                    upto,
                    shards: shards.clone(),
                    sealed: sealed.to_vec(),
                    system: vec![(LAYOUT_ROW.to_vec(), Some(layout.encode()))],
                    ..Checkpoint::default()
                };
                store.advance(begun).await?;
                let covers = Coverage {
                    covered: store.covers(shards).await?,
                    ..covers
                };
                return Ok((covers, Some(layout.encode())));
            }
            None => {}
        }
        Ok((covers, stored))
    }

    /// The commit before the oldest message of these shards that was not taken at the last checkpoint.
    async fn outbox_cursor(&self, shards: &ShardSet) -> Result<Option<Position>, Error> {
        let mut cursor: Option<Position> = None;
        let mut visit = |row: &[u8], value: &[u8]| {
            // A row without a shard is of all of them.
            let shard = row[OUTBOX_ROW.len()..].try_into().map(u16::from_be_bytes).map(ShardId);
            if shard.is_ok_and(|shard| !shards.contains(shard)) {
                return;
            }
            if let Some(at) = read_position(value) {
                cursor = Some(cursor.map_or(at, |least| least.min(at)));
            }
        };
        self.context
            .store
            .system_scan(OUTBOX_ROW, b"", usize::MAX, &mut visit)
            .await?;
        Ok(cursor)
    }

    /// Loads the store's system rows into the shards; `false` if they are not all that the store should have.
    async fn restore(&self, covers: &Coverage, shards: &mut [Shard]) -> Result<bool, Error> {
        let (context, own) = (&self.context, &covers.shards);
        let mut is_complete = true;
        for prefix in RESTORED {
            let mut visit = |row: &[u8], value: &[u8]| {
                let id = shard_of_row(row, &context.registry);
                if id.is_some_and(|id| !own.contains(id)) {
                    return;
                }
                let shard = id.and_then(|id| shards.get_mut(usize::from(id.0)));
                if !shard.is_some_and(|shard| shard.row(row, value)) {
                    tracing::error!("a system row of the store cannot be read: {row:02x?}");
                    is_complete = false;
                }
            };
            context.store.system_scan(prefix, b"", usize::MAX, &mut visit).await?;
        }
        Ok(is_complete && self.restore_timers(&covers.covered, shards).await?)
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

/// Begins a new epoch when one has ended before its time: what is in memory is forgotten, and what is in flight is answered by
/// what the journal then holds.
pub(super) async fn task(epochs: Weak<Epochs>) {
    while signalled(&epochs, |context| &context.signals.recover).await {
        let Some(strong) = epochs.upgrade() else { return };
        if let Some(epoch) = strong.latest()
            && let Some(failure) = epoch.group_commit.failure()
        {
            strong.begin_again(&epoch, &failure).await;
        }
    }
}

impl Epochs {
    async fn begin_again(&self, epoch: &Arc<Epoch>, failure: &AppendError) {
        let (context, group_commit) = (&self.context, &epoch.group_commit);
        self.end_epoch(epoch, Down::with(JOURNAL_FAILED, failure));
        let mut is_rolled_back = matches!(failure, AppendError::RolledBack(_));
        // Before anybody is waited for who changes the shards: a checkpoint of theirs may wait for what was in flight here.
        let last = loop {
            match context.journal.seal(group_commit.writer).await {
                Ok(last) => break last,
                Err(Error::RolledBack(why)) => {
                    tracing::error!(
                        "writer {} has ended in a database that was rolled back: {why}",
                        group_commit.writer
                    );
                    is_rolled_back = true;
                    // Nothing that waits has landed. What was answered before cannot be taken back.
                    break group_commit.durable().commit;
                }
                Err(error) => {
                    tracing::error!("the end of writer {} is not known yet: {error}", group_commit.writer);
                    context.host.sleep(RETRY).await;
                }
            }
        };
        group_commit.end(last);
        context.signals.wake_watchers();
        let _one_at_a_time = self.changes.lock().await;
        if self.running().is_some() {
            // Whoever changed the shards has begun the next one.
            return;
        }
        let is_member = self.member().is_some();
        if is_rolled_back && is_member {
            // The ownership of shards was rolled back, too. The directory says so to the node, which joins anew.
            return self.end(Down::new(ROLLED_BACK));
        }
        if matches!(failure, AppendError::Sealed) {
            if is_member {
                // The other nodes have declared this one dead. It is told so by the directory, and joins again.
                return self.end(Down::new(NO_MEMBER));
            }
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
                Err(StartError::Journal(error @ (Error::Gone(_) | Error::Refused(_) | Error::Sealed(_))))
                    if is_member =>
                {
                    return self.end(Down::with(NO_MEMBER, error));
                }
                Err(StartError::Journal(Error::Sealed(_))) => {
                    if !self.stands_by() {
                        self.stand_by(true);
                    }
                    context.host.sleep(STAND_BY_RETRY).await;
                }
                Err(error) => {
                    let is_lost = matches!(error, StartError::Journal(Error::Lost { .. }));
                    if !(is_lost && self.is_down_for(LOST)) {
                        tracing::error!("the engine cannot start from its journal, it tries again: {error}");
                    }
                    if !self.stands_by() {
                        self.end(Down::of(&error));
                    }
                    context.host.sleep(if is_lost { STAND_BY_RETRY } else { RETRY }).await;
                }
            }
        }
    }
}

/// Messages between entities may take this part of the memory.
const OUTBOX_PART: usize = 8;

const RETRY: Duration = Duration::from_millis(500);
/// The pause between two looks: of a stand-by for the other's end, of an engine that lacks commits for a person's acceptance.
const STAND_BY_RETRY: Duration = Duration::from_secs(1);

/// The store's coverage of the shards of one stream.
struct Coverage {
    shards: ShardSet,
    covered: Vec<Covered>,
}

impl Coverage {
    /// There was a checkpoint of some of them.
    fn is_some(&self) -> bool {
        self.covered.iter().any(|covered| covered.upto.is_some())
    }

    /// Nothing of it counts.
    fn forget(&mut self) {
        self.covered.iter_mut().for_each(|covered| covered.upto = None);
    }

    /// All of them are covered up to here; `None`: one of them is not covered at all.
    fn least(&self) -> Option<Position> {
        let covered = self.covered.iter().map(|covered| covered.upto);
        covered.min().flatten()
    }

    /// Returns the place from which to read a stream that ends here and may hold records of these shards.
    /// Before it, nothing is left to be read of any of them. `None`: nothing is left of the whole stream.
    fn begin(&self, end: Position, of: Option<&ShardSet>) -> Option<Position> {
        let begin = |upto: Option<Position>| match upto {
            Some(upto) if upto.writer == end.writer => upto.commit,
            Some(upto) if upto.writer > end.writer => end.commit,
            _ => CommitNo(0),
        };
        // The coverage of other shards says nothing of a stream that cannot hold them.
        let is_held = |covered: &&Covered| of.is_none_or(|of| of.overlaps(&covered.shards));
        let held = self.covered.iter().filter(is_held);
        let commit = held.map(|covered| begin(covered.upto)).min()?;
        (commit < end.commit).then_some(Position { commit, ..end })
    }

    /// Returns whether the store does not cover a record of the shard at this position.
    fn is_after(&self, shard: ShardId, position: Position) -> bool {
        let of_shard = |covered: &&Covered| covered.shards.contains(shard);
        let covered = self.covered.iter().find(of_shard);
        self.shards.contains(shard) && covered.is_none_or(|covered| covered.upto.is_none_or(|upto| upto < position))
    }
}

/// Replays what is not covered of a commit; says whether a message left in it.
fn replay(layout: &Layout, covers: &Coverage, shards: &mut [Shard], commit: &Commit) -> Result<bool, LayoutError> {
    let mut has_sent = false;
    let position = commit.position();
    for record in commit.records().flatten() {
        // A shard that this engine does not have at all is told below.
        if layout.has(record.shard) && !covers.is_after(record.shard, position) {
            continue;
        }
        let hash = match record.record {
            // Records of the journal, or of nobody any more.
            RecordKind::Loss | RecordKind::Removed => continue,
            RecordKind::Numbers => 0,
            _ => layout.check_record(&record, commit)?,
        };
        has_sent |= record.record == RecordKind::Sent;
        if let Some(shard) = shards.get_mut(usize::from(record.shard.0)) {
            shard.replay(hash, &record)?;
        }
    }
    Ok(has_sent)
}

/// A place as a row has it.
pub(crate) fn read_position(value: &[u8]) -> Option<Position> {
    let (writer, commit) = value.split_first_chunk::<8>()?;
    let commit: &[u8; 8] = commit.try_into().ok()?;
    Some(Position::new(
        WriterId(u64::from_be_bytes(*writer)),
        CommitNo(u64::from_be_bytes(*commit)),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn stream_is_read_from_the_coverage_of_its_shards() {
        let at = |writer, commit| Position::new(WriterId(writer), CommitNo(commit));
        let of = |shards: [u16; 2]| shards.into_iter().map(ShardId).collect::<ShardSet>();
        let covered = |shards, upto| Covered {
            shards: of(shards),
            upto: Some(upto),
        };
        // Two messages came from a stream that began before this node's and was covered to its end.
        let covers = Coverage {
            shards: ShardSet::first(4),
            covered: vec![covered([0, 1], at(7, 90)), covered([2, 3], at(5, 30))],
        };
        let (own, given) = (of([0, 1]), of([2, 3]));
        assert_eq!(covers.begin(at(7, 100), Some(&own)), Some(at(7, 90)));
        assert_eq!(covers.begin(at(7, 90), Some(&own)), None);
        assert_eq!(covers.begin(at(5, 30), Some(&given)), None);
        assert_eq!(covers.begin(at(6, 10), Some(&given)), Some(at(6, 0)));
        assert_eq!(covers.begin(at(7, 100), None), Some(at(7, 0)));
    }
}
