//! Forgetting one entity: nothing it was stays, but that it was erased.

use super::{
    elsewhere,
    judge::{Erasing, Plan},
    pass::{self, prune, settle, shard_of, stand_in},
};
use crate::{
    door::{OwnerOf, Target, now_or_later, turn},
    driver::peers::{Reply, Request},
    engine::{Core, Engine},
    handle::unknown_kind,
    ledger::unreadable,
    life::Life,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use throng_core::{
    limits,
    model::Error,
    shard::{JsonRejection, base_row, dead_rows, ended_row, family_row},
};
use throng_journal::{Address, CommitNo, Cut, Error as StoreError, Position, Pruned, WriterId};

/// What the rows of erasures begin with that are not done yet: kind, 0, id. They say with which event the entity was ended, and where;
/// nothing, before it was.
const ERASING: &[u8] = b"x";
/// The same of those that were cut off: they say how far they had come.
const REACHED: &[u8] = b"y";

/// Another node's erasure is waited for so long: it looks at all of the history.
const PATIENCE: Duration = Duration::from_mins(1);

/// How far erasures have come that the journal cut off.
pub(crate) type CutOff = HashMap<Address, (Erasing, Position)>;

/// What an erasure overwrote.
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

impl Engine {
    /// Ends an entity and overwrites all that is recorded and stored of it: its events, state, timers, idempotency keys, the messages it
    /// sent and was sent. What is left is that an entity of this id was erased, and when. Once begun, it is carried to its end by
    /// itself, also where the journal or the store failed meanwhile, and after a crash.
    ///
    /// # Errors
    /// `Unknown` for an entity to which nothing has ever happened, or the engine's: the text says whether it has begun.
    pub async fn erase(&self, kind: &str, id: &str) -> Result<Erased, Error<JsonRejection>> {
        let core = &self.core;
        let index = core.context.registry.find(kind).ok_or_else(|| unknown_kind(kind))?;
        let target = core.target::<JsonRejection>(index, id.into())?;
        let shard = limits::shard_of(target.hash, core.context.registry.shards());
        let owner = OwnerOf::new(core, shard).within(PATIENCE);
        elsewhere::refuse_older_nodes(core, elsewhere::ERASING).map_err(|reason| Error::Unavailable { reason })?;
        loop {
            if let Some(life) = core.owner_of(index, id)? {
                return core.erase_here(&life, (index, id)).await;
            }
            let (kind, id) = (kind.to_owned(), id.to_owned());
            if let Reply::Erased { records, bytes } = owner.ask(Request::Erase { kind, id }).await? {
                return Ok(Erased { records, bytes });
            }
        }
    }
}

impl Core {
    /// Erases an entity of this node.
    pub(super) async fn erase_here(
        self: &Arc<Self>,
        life: &Arc<Life>,
        (index, id): (usize, &str),
    ) -> Result<Erased, Error<JsonRejection>> {
        let kind = self.context.registry.kinds()[index].name;
        let address = Address::new(kind, id);
        let mut cut_off = self.pruning.lock().await;
        begin(self, life, &address)
            .await
            .map_err(|error| unreadable(format!("{address} is not erased: that did not begin"), &error))?;
        let erased = carry_on(self, life, (&address, None), &mut cut_off).await;
        // Nobody meets what was remembered meanwhile.
        self.remembered.forget(&address);
        let erased = erased
            .map_err(|error| unreadable(format!("{address} is not erased yet, that goes on by itself"), &error))?;
        erased.ok_or_else(|| Error::Unknown {
            kind,
            id: id.to_owned(),
        })
    }
}

/// Notes durably that it is to be erased; nothing has happened to it before.
async fn begin(core: &Arc<Core>, life: &Arc<Life>, address: &Address) -> Result<(), StoreError> {
    let row = row_of(address);
    // Also for whoever stops waiting.
    core.is_erasing.store(true, Ordering::Release);
    life.due().rows.push((row.clone(), Some(Vec::new())));
    let noted = settle(core, life).await;
    if noted.is_err() {
        life.due().rows.retain(|(due, _)| *due != row);
    }
    noted
}

/// Carries erasures to their end that a failure or a crash has cut off.
pub(super) async fn resume(core: &Arc<Core>, life: &Arc<Life>) -> Result<(), StoreError> {
    let mut cut_off = core.pruning.lock().await;
    let mut begun = Vec::new();
    let mut visit = |row: &[u8], value: &[u8]| begun.extend(read_row(row, value));
    core.context
        .store
        .system_scan(ERASING, b"", usize::MAX, &mut visit)
        .await?;
    for (address, ended) in begun {
        if !life.ledger.shards.contains(shard_of(life, &address).0) {
            continue;
        }
        if let Some(erased) = carry_on(core, life, (&address, ended), &mut cut_off).await? {
            tracing::info!("the erasure of {address} was cut off: {erased}");
        }
    }
    Ok(())
}

fn row_of(address: &Address) -> Vec<u8> {
    [ERASING, address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

fn read_row(row: &[u8], value: &[u8]) -> Option<(Address, Option<Erasing>)> {
    let rest = row.strip_prefix(ERASING)?;
    let at = rest.iter().position(|byte| *byte == 0)?;
    let (kind, id) = (
        std::str::from_utf8(&rest[..at]).ok()?,
        std::str::from_utf8(&rest[at + 1..]).ok()?,
    );
    let ended = <[[u8; 8]; 3]>::try_from(value.as_chunks::<8>().0).ok().map(|numbers| {
        let [seq, writer, commit] = numbers.map(u64::from_be_bytes);
        let at = Position {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        };
        Erasing { seq, at }
    });
    Some((Address::new(kind, id), ended))
}

/// The system row of how far an erasure came that was cut off: with which event the entity had been ended, where, and the last commit that was
/// overwritten.
fn reached_row(address: &Address) -> Vec<u8> {
    [REACHED, address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The next checkpoint notes how far it came, or a process that dies again and again would begin each time with all of the history, to which
/// each of its starts has added. Not in a cluster: the next owner of the shard reads other streams.
fn note_reached(core: &Core, life: &Life, address: &Address, (of, reached): (Erasing, Position)) {
    if core.context.peers.is_some() || reached == Position::default() {
        return;
    }
    let numbers = [
        of.seq,
        of.at.writer.0,
        of.at.commit.0,
        reached.writer.0,
        reached.commit.0,
    ];
    let value = numbers.map(u64::to_be_bytes).concat();
    life.due().rows.push((reached_row(address), Some(value)));
}

async fn read_reached(core: &Core, address: &Address) -> Result<Option<(Erasing, Position)>, StoreError> {
    if core.context.peers.is_some() {
        return Ok(None);
    }
    let row = now_or_later(core.context.store.system(&reached_row(address))).await?;
    let numbers = row.and_then(|row| <[[u8; 8]; 5]>::try_from(row.as_chunks::<8>().0).ok());
    let position = |writer, commit| Position {
        writer: WriterId(writer),
        commit: CommitNo(commit),
    };
    Ok(numbers.map(|numbers| {
        let [seq, writer, commit, at_writer, at_commit] = numbers.map(u64::from_be_bytes);
        let at = position(writer, commit);
        (Erasing { seq, at }, position(at_writer, at_commit))
    }))
}

/// Ends it, unless that was done, and overwrites what is there of it. `None`: nothing has ever happened to it.
async fn carry_on(
    core: &Arc<Core>,
    life: &Arc<Life>,
    (address, ended): (&Address, Option<Erasing>),
    cut_off: &mut CutOff,
) -> Result<Option<Erased>, StoreError> {
    let ended = match ended {
        Some(ended) => Some(ended),
        None => end(core, life, address).await?,
    };
    let erased = match ended {
        Some(ended) => {
            // A journal that fails now and then would never let go of a long history if each attempt began with all of it.
            let before = match cut_off.remove(address) {
                Some(before) => Some(before),
                None => read_reached(core, address).await?,
            };
            let mut reached = before.map_or(Position::default(), |(of, reached)| of.left_by(reached, ended));
            let overwritten = overwrite(core, life, (address, ended), &mut reached).await;
            if overwritten.is_err() {
                cut_off.insert(address.clone(), (ended, reached));
                note_reached(core, life, address, (ended, reached));
            }
            Some(overwritten?)
        }
        None => None,
    };
    life.due()
        .rows
        .extend([(row_of(address), None), (reached_row(address), None)]);
    settle(core, life).await?;
    Ok(erased)
}

/// Ends it, and has the store forget it. `None`: nothing has ever happened to it.
async fn end(core: &Arc<Core>, life: &Arc<Life>, address: &Address) -> Result<Option<Erasing>, StoreError> {
    let Some(kind) = core.context.registry.find(&address.kind) else {
        return Err(StoreError::Backend {
            doing: format!("erasing {address}"),
            why: "this program does not know its kind".into(),
        });
    };
    let (shard, hash) = shard_of(life, address);
    let target = Target {
        kind,
        hash,
        id: address.id.to_string().into(),
    };
    life.mail.room_to_remove().await;
    let (seq, commit) = loop {
        let (ledger, id) = (life.ledger.clone(), address.id.clone());
        let ended = life.door.visit(shard, move |shard| {
            let seq = shard.erase(kind, hash, &id, &mut ledger.staging());
            seq.map(|seq| (seq, ledger.last()))
        });
        match ended.await.map_err(|error| pass::backend(&error))? {
            Some(ended) => break ended,
            None => life.door.load(&target).await.map_err(|error| pass::backend(&error))?,
        }
    };
    turn::wake_committer(&core.context);
    if seq == 0 {
        return Ok(None);
    }
    let at = Position {
        writer: life.ledger.writer,
        commit: CommitNo(commit),
    };
    let mut rows = vec![
        (
            row_of(address),
            Some([seq, at.writer.0, commit].map(u64::to_be_bytes).concat()),
        ),
        (ended_row(address), Some(seq.to_be_bytes().to_vec())),
        (base_row(address), None),
        (family_row(address), None),
    ];
    let dead_of_it = dead_rows(Some((&address.kind, Some(&address.id))));
    let mut visit = |row: &[u8], _: &[u8]| rows.push((row.to_vec(), None));
    core.context
        .store
        .system_scan(&dead_of_it, b"", usize::MAX, &mut visit)
        .await?;
    {
        let mut due = life.due();
        due.rows.extend(rows);
        due.cuts.push(Cut {
            address: address.clone(),
            upto: seq,
            is_gone: true,
        });
    }
    settle(core, life).await?;
    Ok(Some(Erasing { seq, at }))
}

/// Overwrites what the journal holds of it.
async fn overwrite(
    core: &Arc<Core>,
    life: &Arc<Life>,
    (address, ended): (&Address, Erasing),
    reached: &mut Position,
) -> Result<Erased, StoreError> {
    // What was written last of it is in a part of the journal that is still being written.
    core.context.journal.end_segment().await?;
    let mut plan = Plan {
        now: core.context.host.now(),
        ..Plan::default()
    };
    plan.erased.insert(address.clone(), ended);
    stand_in(core, life, &mut plan, false).await?;
    settle(core, life).await?;
    if core.context.peers.is_some() {
        // Another node's numbers are its own to say.
        plan.counts.clear();
        plan.taken_upto = Some(elsewhere::taken_upto(core, life, address).await?);
    }
    let plan = Arc::new(plan);
    let covers = life.ledger.covers().unwrap_or_default();
    let upto = Position {
        commit: CommitNo(covers.commit.0.saturating_sub(1)),
        ..covers
    };
    let mut pruned = Pruned::default();
    let rest = (&mut *reached, upto, pass::How::Erase);
    prune(core, life, Arc::clone(&plan), rest, &mut pruned).await?;
    if core.context.peers.is_some() {
        elsewhere::overwrite(core, life, Arc::clone(&plan), &mut pruned).await?;
    }
    if *reached < ended.at {
        return Err(StoreError::Backend {
            doing: format!("erasing {address}"),
            why: format!(
                "the journal has overwritten history up to commit {reached} only, of {}",
                ended.at
            ),
        });
    }
    tracing::info!("{address} was erased: {} records", pruned.records);
    Ok(Erased {
        records: pruned.records,
        bytes: pruned.bytes,
    })
}
