//! Erasure of one entity: nothing of it stays except the fact that it was erased.

use super::{
    Retention, backend,
    calls::calls_of,
    judge::{CutOff, Erasing, Plan},
    pass::{self, settle, stand_in},
    taken::{ERASING, taken_upto},
};
use crate::{
    commit::{Refusal, unreadable, widen},
    epoch::{self, Epoch},
    executor::{OwnerOf, Target, batch, now_or_later},
    remote::{Reply, Request},
};
use std::{
    cmp::Ordering,
    fmt,
    sync::{Arc, atomic},
    time::Duration,
};
use throng_core::{
    limits,
    model::Error,
    shard::{
        BegunErasure, Erasure, ErasureNote, JsonRejection, OperatorDecision, Shard, base_row, dead_rows, ended_row,
        family_row, index_row, unloadable_row,
    },
};
use throng_journal::{
    Address, CommitNo, Cut, Error as StoreError, Position, Positions, Prune, Pruned, Stream, WriterId,
};
use tokio::sync::MutexGuard;

/// The prefix of the rows of unfinished erasures; kind, 0 and id follow. The value is the event with which the entity was ended,
/// and its position. It is empty before that.
const ERASING_ROWS: &[u8] = b"x";
/// The prefix of the rows of interrupted erasures. The value is their progress.
const REACHED: &[u8] = b"y";

/// The longest wait for another node's erasure: that node examines the whole history.
const PATIENCE: Duration = Duration::from_mins(1);

/// The number of overwritten commits of a stream after which the progress is recorded, in a cluster. There the journal does not have to
/// finish a part of a file first.
const NOTED_EVERY: u64 = 20_000;

/// The most entities that one pass over the journal erases. Others wait for its end.
const TOGETHER_MAX: usize = 1_024;

/// The last event up to which the index is cut if the true number is unknown. Stores count in 63 bits.
const EVERY_EVENT: u64 = i64::MAX.cast_unsigned();

/// The numbers of what an erasure overwrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Erased {
    /// Records of the entity, and messages to it.
    pub records: u64,
    /// Bytes given back.
    pub bytes: u64,
}

impl fmt::Display for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "erased {} records, {} bytes were given back",
            self.records, self.bytes
        )
    }
}

impl Retention {
    /// Erases an entity, by whichever node owns it.
    pub(crate) async fn erase(self: &Arc<Self>, kind: &str, id: &str) -> Result<Erased, Error<JsonRejection>> {
        let context = self.context();
        context.may_change()?;
        let index = context.kind(kind)?;
        let target = context.target::<JsonRejection>(index, id.into())?;
        let shard = limits::shard_of(target.hash, context.registry.shards());
        let owner = OwnerOf::new(context, shard).within(PATIENCE);
        let refused = context.refuse_older_nodes(ERASING);
        refused.map_err(|reason| Error::Unavailable { reason })?;
        loop {
            if let Some(epoch) = self.epochs.owner_of(index, id)? {
                return self.erase_here(&epoch, (index, id)).await;
            }
            let (kind, id) = (kind.to_owned(), id.to_owned());
            if let Reply::Erased { records, bytes } = owner.ask(Request::Erase { kind, id }).await? {
                return Ok(Erased { records, bytes });
            }
        }
    }

    /// Erases an entity of this node.
    pub(super) async fn erase_here(
        self: &Arc<Self>,
        epoch: &Arc<Epoch>,
        (index, id): (usize, &str),
    ) -> Result<Erased, Error<JsonRejection>> {
        let kind = self.context().registry.kinds()[index].name;
        let address = Address::new(kind, id);
        let cut_off = self.pruning.lock().await;
        drop_waiting(epoch, &address).await.map_err(widen)?;
        begin(self, epoch, &address)
            .await
            .map_err(|error| unreadable(format!("{address} is not erased: that did not begin"), &error))?;
        let erased = match note(self, epoch, &address, ErasureNote::Begun).await {
            Ok(()) => carry_on(self, epoch, (&address, None), cut_off).await,
            Err(error) => Err(error),
        };
        // Remembered states of the entity must not be found again.
        self.remembered.forget(&address);
        let erased = erased
            .map_err(|error| unreadable(format!("{address} is not erased yet, that goes on by itself"), &error))?;
        erased.ok_or_else(|| Error::Unknown {
            kind,
            id: id.to_owned(),
        })
    }
}

/// Drops the messages that wait for the entity. Nobody would take them, and so they would stay in the history.
async fn drop_waiting(epoch: &Arc<Epoch>, address: &Address) -> Result<(), Refusal> {
    let by = OperatorDecision::new("erasure", "the entity is erased");
    epoch.deliverer.drop_waiting(address, by).await.map(drop)
}

/// Records durably that the entity is to be erased, even if it has no history.
async fn begin(retention: &Arc<Retention>, epoch: &Arc<Epoch>, address: &Address) -> Result<(), StoreError> {
    let row = row_of(address);
    // Set even if the caller stops waiting.
    retention.is_erasing.store(true, atomic::Ordering::Release);
    epoch.due().rows.push((row.clone(), Some(Vec::new())));
    let noted = settle(retention, epoch).await;
    if noted.is_err() {
        epoch.due().rows.retain(|(due, _)| *due != row);
    }
    noted
}

/// Records it durably in the log, because the rows may be lost with the store.
async fn note(
    retention: &Retention,
    epoch: &Arc<Epoch>,
    address: &Address,
    note: ErasureNote,
) -> Result<(), StoreError> {
    epoch.deliverer.room_to_remove().await;
    let (executor, of, (shard, _)) = (epoch.executor.clone(), address.clone(), epoch.shard_of(address));
    let noted = epoch.executor.visit(shard, move |shard| {
        shard.note_erasure(&of, note, &mut executor.group_commit.staging())
    });
    let commit = noted.await.map_err(|error| backend(&error))?;
    batch::wake_committer(retention.context());
    let durable = epoch.group_commit.wait_until(commit, u64::MAX).await;
    durable.map_err(|error| backend(&error))
}

/// Writes the rows of erasures that only the log knows into a store that was rebuilt.
async fn note_again(retention: &Retention, epoch: &Arc<Epoch>) -> Result<(), StoreError> {
    let mut of_log = Vec::new();
    for shard in epoch.executor.shards() {
        let begun = epoch.executor.visit(shard, |shard| shard.begun_erasures());
        of_log.extend(begun.await.map_err(|error| backend(&error))?);
    }
    if of_log.is_empty() {
        return Ok(());
    }
    for BegunErasure { address, ended } in of_log {
        let row = row_of(&address);
        if now_or_later(retention.context().store.system(&row)).await?.is_none() {
            let ended = ended.map(|(seq, at)| ended_at(seq, at)).unwrap_or_default();
            epoch.due().rows.push((row, Some(ended)));
        }
    }
    settle(retention, epoch).await?;
    for shard in epoch.executor.shards() {
        let noted = epoch.executor.visit(shard, Shard::forget_begun_erasures);
        noted.await.map_err(|error| backend(&error))?;
    }
    Ok(())
}

/// Completes erasures that a failure or a crash has interrupted.
pub(super) async fn resume(retention: &Arc<Retention>, epoch: &Arc<Epoch>) -> Result<(), StoreError> {
    let cut_off = retention.pruning.lock().await;
    note_again(retention, epoch).await?;
    drop(cut_off);
    let mut begun = Vec::new();
    let mut visit = |row: &[u8], value: &[u8]| begun.extend(read_row(row, value));
    retention
        .context()
        .store
        .system_scan(ERASING_ROWS, b"", usize::MAX, &mut visit)
        .await?;
    for (address, ended) in begun {
        if !epoch.group_commit.shards.contains(epoch.shard_of(&address).0) {
            continue;
        }
        let cut_off = retention.pruning.lock().await;
        match carry_on(retention, epoch, (&address, ended), cut_off).await {
            Ok(Some(erased)) => tracing::info!("the erasure of {address} was cut off: {erased}"),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("the erasure of {address} was cut off and is tried again: {error}");
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Returns the value of the row of an entity that was ended.
fn ended_at(seq: u64, at: Position) -> Vec<u8> {
    [seq, at.writer.0, at.commit.0].map(u64::to_be_bytes).concat()
}

fn row_of(address: &Address) -> Vec<u8> {
    [ERASING_ROWS, address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

fn read_row(row: &[u8], value: &[u8]) -> Option<(Address, Option<Erasing>)> {
    let rest = row.strip_prefix(ERASING_ROWS)?;
    let at = rest.iter().position(|byte| *byte == 0)?;
    let (kind, id) = (
        std::str::from_utf8(&rest[..at]).ok()?,
        std::str::from_utf8(&rest[at + 1..]).ok()?,
    );
    let ended = <[[u8; 8]; 3]>::try_from(value.as_chunks::<8>().0).ok().map(|numbers| {
        let [seq, writer, commit] = numbers.map(u64::from_be_bytes);
        let at = Position::new(WriterId(writer), CommitNo(commit));
        Erasing { seq, at }
    });
    Some((Address::new(kind, id), ended))
}

/// Returns the key of the system row with the progress of an interrupted erasure: the event with which the entity was ended, its position,
/// and the commits up to which each stream was overwritten, as [`Positions`]. The shard's next owner continues there.
fn reached_row(address: &Address) -> Vec<u8> {
    [REACHED, address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// Has the next checkpoint record the progress. Otherwise a process that crashes repeatedly would begin each time with the whole history,
/// to which
/// each of its starts has added.
fn note_reached(epoch: &Epoch, address: &Address, (of, reached): (Erasing, &Positions)) {
    let row = reached_row(address);
    let ended = [of.seq, of.at.writer.0, of.at.commit.0];
    let reached = reached.positions().flat_map(|at| [at.writer.0, at.commit.0]);
    let value: Vec<u8> = ended.into_iter().chain(reached).flat_map(u64::to_be_bytes).collect();
    let mut due = epoch.due();
    due.rows.retain(|(name, _)| *name != row);
    due.rows.push((row, Some(value)));
}

async fn read_reached(retention: &Retention, address: &Address) -> Result<Option<(Erasing, Positions)>, StoreError> {
    let row = now_or_later(retention.context().store.system(&reached_row(address))).await?;
    let row = row.unwrap_or_default();
    let numbers: Vec<u64> = row.as_chunks::<8>().0.iter().copied().map(u64::from_be_bytes).collect();
    let Some((&[seq, writer, commit], reached)) = numbers.split_first_chunk::<3>() else {
        return Ok(None);
    };
    let position = |writer, commit| Position::new(WriterId(writer), CommitNo(commit));
    let reached = reached.as_chunks::<2>().0.iter();
    let reached = reached.map(|[writer, commit]| position(*writer, *commit)).collect();
    let at = position(writer, commit);
    Ok(Some((Erasing { seq, at }, reached)))
}

/// Ends the entity, unless that was done, and overwrites it and its calls. `None`: it has no history.
async fn carry_on(
    retention: &Arc<Retention>,
    epoch: &Arc<Epoch>,
    (address, ended): (&Address, Option<Erasing>),
    mut cut_off: MutexGuard<'_, CutOff>,
) -> Result<Option<Erased>, StoreError> {
    let ended = match ended {
        Some(ended) => Some(ended),
        None => end(retention, epoch, address).await?,
    };
    let erased = match ended {
        Some(ended) => {
            // If each attempt began with all of a long history, a journal that fails now and then would never let the erasure finish.
            let before = match cut_off.remove(address) {
                Some(before) => Some(before),
                None => read_reached(retention, address).await?,
            };
            let mut reached = before.map_or_else(Positions::default, |(of, reached)| of.left_by(reached, ended));
            let overwritten = overwrite(retention, epoch, &[(address.clone(), ended)], &mut reached).await;
            if overwritten.is_err() {
                note_reached(epoch, address, (ended, &reached));
                cut_off.insert(address.clone(), (ended, reached));
            }
            Some(overwritten?)
        }
        None => None,
    };
    // Its calls may belong to another node, whose erasures may wait for this node. Holding the lock would deadlock both.
    drop(cut_off);
    let erased = match erased {
        Some(erased) => Some(erase_calls(retention, epoch, address, erased).await?),
        None => None,
    };
    let _one_at_a_time = retention.pruning.lock().await;
    done(retention, epoch, std::slice::from_ref(address)).await?;
    Ok(erased)
}

/// Records that nothing of them is left.
async fn done(retention: &Arc<Retention>, epoch: &Arc<Epoch>, erased: &[Address]) -> Result<(), StoreError> {
    for address in erased {
        note(retention, epoch, address, ErasureNote::Done).await?;
        let rows = [(row_of(address), None), (reached_row(address), None)];
        epoch.due().rows.extend(rows);
    }
    settle(retention, epoch).await
}

/// Erases the calls of an entity that has ended. Nobody gets the outcome of an open one, and the result of an attempt under way is ignored.
async fn erase_calls(
    retention: &Arc<Retention>,
    epoch: &Arc<Epoch>,
    caller: &Address,
    mut erased: Erased,
) -> Result<Erased, StoreError> {
    let (mut here, mut remote) = (Vec::new(), Vec::new());
    for call in calls_of(retention, caller).await? {
        let (shard, _) = epoch.shard_of(&call);
        match epoch.group_commit.shards.contains(shard) {
            true => here.push(call),
            false => remote.push((shard, call)),
        }
    }
    for here in here.chunks(TOGETHER_MAX) {
        let together = erase_together(retention, epoch, here).await?;
        erased.records += together.records;
        erased.bytes += together.bytes;
    }
    for (shard, call) in remote {
        let owner = OwnerOf::new(retention.context(), shard).within(PATIENCE);
        let request = Request::Erase {
            kind: call.kind.to_string(),
            id: call.id.to_string(),
        };
        let failed = |why: &dyn ToString| StoreError::backend(format!("erasing {call}"), why.to_string());
        let reply: Result<_, Error<JsonRejection>> = owner.ask(request).await;
        match reply {
            Ok(Reply::Erased { records, bytes }) => {
                erased.records += records;
                erased.bytes += bytes;
            }
            Err(Error::Unknown { .. }) => {}
            Ok(_) => return Err(failed(&"its shard is being handed over")),
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(erased)
}

/// Erases several entities of this node in one pass over the journal.
async fn erase_together(retention: &Arc<Retention>, epoch: &Arc<Epoch>, all: &[Address]) -> Result<Erased, StoreError> {
    let _one_at_a_time = retention.pruning.lock().await;
    let mut ended = Vec::with_capacity(all.len());
    for address in all {
        drop_waiting(epoch, address).await.map_err(|error| backend(&error))?;
        begin(retention, epoch, address).await?;
        note(retention, epoch, address, ErasureNote::Begun).await?;
        let end = end(retention, epoch, address).await?;
        ended.extend(end.map(|end| (address.clone(), end)));
    }
    let mut reached = Positions::default();
    let erased = match ended.is_empty() {
        true => Erased::default(),
        false => overwrite(retention, epoch, &ended, &mut reached).await?,
    };
    done(retention, epoch, all).await?;
    all.iter().for_each(|address| retention.remembered.forget(address));
    Ok(erased)
}

/// Ends the entity, and has the store forget it. `None`: it has no history.
async fn end(retention: &Arc<Retention>, epoch: &Arc<Epoch>, address: &Address) -> Result<Option<Erasing>, StoreError> {
    let Some(kind) = retention.context().registry.find(&address.kind) else {
        return Err(StoreError::Backend {
            doing: format!("erasing {address}"),
            why: "this program does not know its kind".into(),
        });
    };
    let (shard, hash) = epoch.shard_of(address);
    let target = Target {
        kind,
        hash,
        id: address.id.to_string().into(),
    };
    let known = known_events(retention, address).await?;
    epoch.deliverer.room_to_remove().await;
    let (Erasure { seq, is_quarantined }, commit) = loop {
        let (executor, of) = (epoch.executor.clone(), address.clone());
        let ended = epoch.executor.visit(shard, move |shard| {
            let erased = shard.erase(kind, (hash, &of.id), known, &mut executor.group_commit.staging())?;
            // A quarantine of it has ended, too.
            executor.outbox.release(&of);
            Some((erased, executor.group_commit.last()))
        });
        match ended.await.map_err(|error| backend(&error))? {
            Some(ended) => break ended,
            None => epoch.executor.load(&target).await.map_err(|error| backend(&error))?,
        }
    };
    batch::wake_committer(retention.context());
    if seq == 0 {
        return Ok(None);
    }
    let at = Position::new(epoch.group_commit.writer, CommitNo(commit));
    let mut rows = vec![
        (row_of(address), Some(ended_at(seq, at))),
        (ended_row(address), Some(seq.to_be_bytes().to_vec())),
        (base_row(address), None),
        (family_row(address), None),
        (unloadable_row(address), None),
        (index_row(address), None),
    ];
    let dead_of_it = dead_rows(Some((&address.kind, Some(&address.id))));
    let mut visit = |row: &[u8], _: &[u8]| rows.push((row.to_vec(), None));
    retention
        .context()
        .store
        .system_scan(&dead_of_it, b"", usize::MAX, &mut visit)
        .await?;
    {
        let mut due = epoch.due();
        due.rows.extend(rows);
        due.cuts
            .push(all_of(address, if is_quarantined { EVERY_EVENT } else { seq }));
    }
    settle(retention, epoch).await?;
    if is_quarantined {
        // Not earlier: data that is still in the store could not be loaded.
        let id = address.id.clone();
        let released = epoch.executor.visit(shard, move |shard| shard.release(kind, hash, &id));
        released.await.map_err(|error| backend(&error))?;
    }
    Ok(Some(Erasing { seq, at }))
}

/// Returns the last event of an entity that rows show: its last end, or a recorded state.
async fn known_events(retention: &Retention, address: &Address) -> Result<u64, StoreError> {
    let ended = now_or_later(retention.context().store.system(&ended_row(address))).await?;
    let ended = ended.and_then(|row| row.first_chunk::<8>().copied());
    let recorded = pass::base(retention, address).await?;
    Ok(ended
        .map_or(0, u64::from_be_bytes)
        .max(recorded.map_or(0, |(seq, _)| seq)))
}

fn all_of(address: &Address, seq: u64) -> Cut {
    Cut {
        address: address.clone(),
        upto: seq,
        is_gone: true,
    }
}

/// Overwrites the journal's data of entities that have ended: their own records, which are in the streams of their shards, and the messages
/// to them, which may be in any stream. Streams of other nodes are still being written meanwhile; new messages in them are not to the
/// erased entities.
async fn overwrite(
    retention: &Arc<Retention>,
    epoch: &Arc<Epoch>,
    all: &[(Address, Erasing)],
    reached: &mut Positions,
) -> Result<Erased, StoreError> {
    // The last records of the entity are in a part of the journal that is still being written.
    retention.context().journal.end_segment().await?;
    let mut plan = Plan {
        now: retention.context().host.now(),
        ..Plan::default()
    };
    plan.erased.extend(all.iter().cloned());
    stand_in(retention, epoch, &mut plan, false).await?;
    // The checkpoint that forgot it may not have covered its last events, so a later one has indexed them.
    let cuts = all.iter().map(|(address, ended)| all_of(address, ended.seq));
    epoch.due().cuts.extend(cuts);
    settle(retention, epoch).await?;
    if retention.context().peers.is_some() {
        // Other nodes report their own numbers.
        plan.counts.clear();
        for (address, _) in all {
            plan.taken_upto = Some(taken_upto(retention, epoch, address).await?);
        }
    }
    plan.known_at = epoch.group_commit.durable();
    let plan = Arc::new(plan);
    let covers = epoch.group_commit.covers().unwrap_or_default();
    let upto = Position::new(covers.writer, CommitNo(covers.commit.0.saturating_sub(1)));
    let mut pruned = Pruned::default();
    let streams = epoch::streams(retention.context(), Some(epoch), reached.first()).await?;
    'streams: for stream in &streams {
        // In a stream that is still written, only the commits since the last attempt are left to overwrite.
        let Some(mut told) = reached.upto_of(stream.writer) else {
            continue;
        };
        let end = end_of(epoch, stream, upto);
        while told < end {
            let to = match retention.context().peers.is_some() {
                true => end.min(CommitNo(told.0.saturating_add(NOTED_EVERY))),
                false => end,
            };
            let at = |commit| Position::new(stream.writer, commit);
            let judge = Arc::clone(&plan);
            let done = retention.context().journal.prune(Prune {
                after: at(told),
                upto: to,
                judge: Arc::new(move |record, stamp| judge.is_over(record, stamp)),
                replaced_by: plan.known_at,
                how: pass::How::Erase,
            });
            let done = done.await?;
            pruned.add(done);
            // An engine without peers still writes its last file, and overwriting its stream stops there.
            told = match retention.context().peers.is_some() {
                true => to,
                false => told.max(done.upto),
            };
            reached.tell(at(told), &streams);
            for (address, ended) in all {
                note_reached(epoch, address, (*ended, reached));
            }
            // Commits after these count as overwritten only once nothing before them is left.
            if told < to {
                break 'streams;
            }
        }
    }
    for (address, ended) in all {
        if !reached.has(ended.at) {
            return Err(StoreError::Backend {
                doing: format!("erasing {address}"),
                why: format!(
                    "the journal has overwritten history up to commit {reached} only, of {}",
                    ended.at
                ),
            });
        }
    }
    let names: Vec<String> = all.iter().map(|(address, _)| address.to_string()).collect();
    tracing::info!("erased {}: {} records", names.join(", "), pruned.records);
    Ok(Erased {
        records: pruned.records,
        bytes: pruned.bytes,
    })
}

/// Returns the commit up to which a stream is examined. In streams that this epoch has taken over and writes itself, it is not after
/// `upto`.
fn end_of(epoch: &Epoch, stream: &Stream, upto: Position) -> CommitNo {
    let is_of_epoch = stream.writer == epoch.group_commit.writer
        || epoch.group_commit.sealed.iter().any(|end| end.writer == stream.writer);
    match stream.writer.cmp(&upto.writer) {
        Ordering::Greater if is_of_epoch => CommitNo(0),
        Ordering::Equal if is_of_epoch => stream.last.min(upto.commit),
        _ => stream.last,
    }
}
