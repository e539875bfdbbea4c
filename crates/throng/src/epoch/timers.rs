//! Timers between the shards and the store: read at the start and page by page, and written by checkpoints.

use super::{Epochs, REMOVED_ROWS_MAX};
use crate::delivery::stored_timers::{kept, read_named, read_page};
use std::collections::{BTreeMap, HashMap};
use throng_core::{
    model::Timestamp,
    shard::{
        DUE_ROWS, MARKED_ROWS, Rows, Shard, TIMER_ROWS, TimersCount, TimersMark, TimersStored, due_rows, shard_of_row,
    },
};
use throng_journal::{Covered, Error, ShardId};

impl Epochs {
    /// Adds the rows of the timers that changed to the others of a checkpoint, by what the store has of them.
    pub(super) async fn timer_rows(&self, rows: &mut Rows) -> Result<BTreeMap<ShardId, TimersStored>, Error> {
        let (store, timers) = (&*self.context.store, std::mem::take(&mut rows.timers));
        let mut unknown = Vec::new();
        let mut read = HashMap::new();
        for shard in &timers {
            unknown.extend(shard.unknown());
            for prefix in shard.of_ended() {
                let mut visit = |row: &[u8], value: &[u8]| _ = read.insert(row.to_vec(), value.to_vec());
                store.system_scan(&prefix, b"", usize::MAX, &mut visit).await?;
            }
        }
        read_named(store, &unknown, &mut read).await?;
        let of_shards = timers.into_iter().map(|timers| {
            let shard = timers.shard();
            (shard, timers.resolve(&read, &mut rows.system))
        });
        Ok(of_shards.collect())
    }

    /// Restores the timers of these shards: the first ones of a shard whose timers are found by when they are due, all of another one. `false`: a row
    /// cannot be read.
    pub(super) async fn restore_timers(&self, covered: &[Covered], shards: &mut [Shard]) -> Result<bool, Error> {
        let store = &*self.context.store;
        let (mut marks, mut has_timers) = (HashMap::new(), false);
        let mut visit = |row: &[u8], value: &[u8]| match TimersMark::read(row, value) {
            Some(mark) => _ = marks.insert(mark.shard, mark),
            None => has_timers |= row.starts_with(DUE_ROWS),
        };
        // The marks stand before the rows that find timers: one row more than there are marks tells whether there is any.
        let rows_max = usize::from(self.context.registry.shards()) + 1;
        store.system_scan(MARKED_ROWS, b"", rows_max, &mut visit).await?;
        let (mut unmarked, mut uncounted) = (Vec::new(), HashMap::new());
        for covered in covered {
            let writer = covered.upto.map(|upto| upto.writer);
            for id in covered.shards.iter() {
                let mark = marks.get(&id).filter(|mark| Some(mark.writer) == writer);
                match (mark, shards.get_mut(usize::from(id.0))) {
                    (Some(_), _) if !has_timers => {}
                    (Some(mark), Some(shard)) => {
                        if !mark.counts_calls {
                            uncounted.insert(id, TimersCount::default());
                        }
                        self.restore_first(shard, mark.count.clone()).await?;
                    }
                    _ => unmarked.push(id),
                }
            }
        }
        if !uncounted.is_empty() {
            self.count_calls(uncounted, shards).await?;
        }
        if unmarked.is_empty() {
            return Ok(true);
        }
        if has_timers {
            self.discard_due_rows(&unmarked).await?;
        }
        let mut is_complete = true;
        let mut visit = |row: &[u8], value: &[u8]| {
            let id = shard_of_row(row, &self.context.registry);
            if id.is_some_and(|id| !unmarked.contains(&id)) {
                return;
            }
            let shard = id.and_then(|id| shards.get_mut(usize::from(id.0)));
            if !shard.is_some_and(|shard| shard.row(row, value)) {
                tracing::error!("the row of a timer in the store cannot be read: {row:02x?}");
                is_complete = false;
            }
        };
        store.system_scan(TIMER_ROWS, b"", usize::MAX, &mut visit).await?;
        Ok(is_complete)
    }

    /// Counts the calls of shards whose last checkpoint an older program has made.
    async fn count_calls(&self, mut counts: HashMap<ShardId, TimersCount>, shards: &mut [Shard]) -> Result<(), Error> {
        let registry = &self.context.registry;
        for kind in registry.kinds().iter().filter(|kind| kind.is_internal) {
            let prefix = [TIMER_ROWS, kind.name.as_bytes(), &[0]].concat();
            let mut visit = |row: &[u8], _: &[u8]| {
                let shard = shard_of_row(row, registry);
                if let Some(count) = shard.and_then(|shard| counts.get_mut(&shard)) {
                    count.add_row(row);
                }
            };
            self.context
                .store
                .system_scan(&prefix, b"", usize::MAX, &mut visit)
                .await?;
        }
        for (shard, count) in counts {
            if let Some(shard) = shards.get_mut(usize::from(shard.0)) {
                shard.calls_in_store(count);
            }
        }
        Ok(())
    }

    /// Reads the first timers of a shard, with all that keep quarantines.
    async fn restore_first(&self, shard: &mut Shard, count: TimersCount) -> Result<(), Error> {
        shard.timers_in_store(count);
        let beginning = Timestamp { micros: i64::MIN };
        while let Some(page) = shard.timers_page(beginning) {
            let read = read_page(&*self.context.store, &page, kept(&self.context)).await?;
            shard.timers_read(&page, read);
        }
        Ok(())
    }

    /// An older program has written timers of these shards: no row that finds one of theirs counts. The next checkpoint writes them anew.
    async fn discard_due_rows(&self, shards: &[ShardId]) -> Result<(), Error> {
        for shard in shards {
            let (prefix, mut after) = (due_rows(*shard), Vec::new());
            while let Some(last) = self
                .context
                .store
                .remove_prefix(&prefix, &after, REMOVED_ROWS_MAX)
                .await?
            {
                after = last;
            }
        }
        Ok(())
    }
}
