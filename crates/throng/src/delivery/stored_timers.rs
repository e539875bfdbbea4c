//! Timers as the store has them: page by page, and by their names.

use crate::context::Context;
use std::collections::HashMap;
use throng_core::shard::{TimersPage, TimersRead};
use throng_journal::{Error, Store};

/// Rows read by their names at a time.
const NAMED_MAX: usize = 1_024;
/// The approximate part of the memory for timers, as a divisor. Between two checkpoints it may be twice as much.
const MEMORY_PART: usize = 16;
/// Bytes of a timer in memory, about.
const TIMER_BYTES: usize = 320;
/// The most timers of a shard in memory, apart from those that are due soon or have changed.
const KEPT_MAX: usize = 4_096;

/// Returns the number of timers of each shard that stay in memory, and that are read at a time.
pub(crate) fn kept(context: &Context) -> usize {
    let shards = usize::from(context.registry.shards().max(1));
    (context.options.memory_bytes_max / MEMORY_PART / shards / TIMER_BYTES).clamp(1, KEPT_MAX)
}

/// Reads a page of a shard's timers.
///
/// # Errors
/// [`Error`]: the store cannot be read.
pub(crate) async fn read_page(store: &dyn Store, page: &TimersPage, rows_max: usize) -> Result<TimersRead, Error> {
    let mut due: Vec<Vec<u8>> = Vec::new();
    let mut visit = |row: &[u8], _: &[u8]| due.push(row.to_vec());
    store
        .system_scan(&page.prefix(), &page.after(), rows_max, &mut visit)
        .await?;
    let rows: Vec<Vec<u8>> = due.iter().filter_map(|row| TimersPage::timer_row(row)).collect();
    let mut values = HashMap::new();
    read_named(store, &rows, &mut values).await?;
    let is_last = due.len() < rows_max;
    let found = due.into_iter().map(|due| {
        let value = TimersPage::timer_row(&due).and_then(|row| values.remove(&row));
        (due, value)
    });
    Ok(TimersRead {
        found: found.collect(),
        is_last,
    })
}

/// Reads rows by their names.
pub(crate) async fn read_named(
    store: &dyn Store,
    rows: &[Vec<u8>],
    into: &mut HashMap<Vec<u8>, Vec<u8>>,
) -> Result<(), Error> {
    for some in rows.chunks(NAMED_MAX) {
        let values = store.system_rows(some).await?;
        let found = some.iter().cloned().zip(values);
        into.extend(found.filter_map(|(row, value)| Some((row, value?))));
    }
    Ok(())
}
