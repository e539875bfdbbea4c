//! Forgetting one entity: nothing it was stays, but that it was erased.

use super::{
    judge::Plan,
    pass::{self, prune, shard_of, stand_in},
};
use crate::{
    door::{Target, turn},
    engine::{Core, Engine},
    handle::unknown_kind,
    ledger::unreadable,
    life::Life,
};
use std::{fmt, sync::Arc};
use throng_core::{
    model::Error,
    shard::{JsonRejection, base_row, dead_rows, ended_row, family_row},
};
use throng_journal::{Address, CommitNo, Cut, Position, Pruned};

/// What the rows of erasures begin with that have not ended yet: kind, 0, id.
const ERASING: &[u8] = b"x";

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
    /// sent and was sent. What is left is that an entity of this id was erased, and when. Once begun, it is carried to its end also
    /// after a crash.
    ///
    /// # Errors
    /// `Unknown` for an entity to which nothing has ever happened, or the engine's.
    pub async fn erase(&self, kind: &str, id: &str) -> Result<Erased, Error<JsonRejection>> {
        let core = &self.core;
        let index = core.context.registry.find(kind).ok_or_else(|| unknown_kind(kind))?;
        core.target(index, id.into())?;
        let life = core.lives.current()?;
        let address = Address::new(kind, id);
        let failed = |error: throng_journal::Error| unreadable(format!("{address} is not erased yet"), &error);
        let _one_at_a_time = core.pruning.lock().await;
        let is_known = end(core, &life, index, &address).await.map_err(failed)?;
        if !is_known {
            let kind = core.context.registry.kinds()[index].name;
            return Err(Error::Unknown {
                kind,
                id: id.to_owned(),
            });
        }
        overwrite(core, &life, &address).await.map_err(failed)
    }
}

/// Carries erasures to their end that a crash has cut off.
pub(super) async fn resume(core: &Arc<Core>, life: &Arc<Life>) -> Result<(), throng_journal::Error> {
    let mut begun = Vec::new();
    let mut visit = |row: &[u8], _: &[u8]| begun.extend(read_row(row));
    core.context.store.system_scan(ERASING, &mut visit).await?;
    for address in begun {
        let _one_at_a_time = core.pruning.lock().await;
        let erased = overwrite(core, life, &address).await?;
        tracing::info!("the erasure of {address} was cut off: {erased}");
    }
    Ok(())
}

fn row_of(address: &Address) -> Vec<u8> {
    [ERASING, address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

fn read_row(row: &[u8]) -> Option<Address> {
    let rest = row.strip_prefix(ERASING)?;
    let at = rest.iter().position(|byte| *byte == 0)?;
    let (kind, id) = (
        std::str::from_utf8(&rest[..at]).ok()?,
        std::str::from_utf8(&rest[at + 1..]).ok()?,
    );
    Some(Address::new(kind, id))
}

/// Ends it, and notes that it is to be erased. `false`: nothing has ever happened to it.
async fn end(
    core: &Arc<Core>,
    life: &Arc<Life>,
    kind: usize,
    address: &Address,
) -> Result<bool, throng_journal::Error> {
    let (shard, hash) = shard_of(life, address);
    let target = Target {
        kind,
        hash,
        id: address.id.to_string().into(),
    };
    life.mail.room().await;
    let seq = loop {
        let (ledger, id) = (life.ledger.clone(), address.id.clone());
        let ended = life
            .door
            .visit(shard, move |shard| shard.erase(kind, hash, &id, &mut ledger.staging()));
        match ended.await.map_err(|error| pass::backend(&error))? {
            Some(seq) => break seq,
            None => life.door.load(&target).await.map_err(|error| pass::backend(&error))?,
        }
    };
    turn::wake_committer(&core.context);
    if seq == 0 {
        return Ok(false);
    }
    let mut rows = vec![
        (row_of(address), Some(Vec::new())),
        (ended_row(address), Some(seq.to_be_bytes().to_vec())),
        (base_row(address), None),
        (family_row(address), None),
    ];
    let dead_of_it = dead_rows(Some((&address.kind, Some(&address.id))));
    let mut visit = |row: &[u8], _: &[u8]| rows.push((row.to_vec(), None));
    core.context.store.system_scan(&dead_of_it, &mut visit).await?;
    let mut due = core.lives.due();
    due.rows.extend(rows);
    due.cuts.push(Cut {
        address: address.clone(),
        upto: seq,
        is_gone: true,
    });
    Ok(true)
}

/// Overwrites what the journal holds of it.
async fn overwrite(core: &Arc<Core>, life: &Arc<Life>, address: &Address) -> Result<Erased, throng_journal::Error> {
    core.lives.checkpoint_now(life).await?;
    // What was written last of it is in a part of the journal that is still being written.
    core.context.journal.end_segment().await?;
    let mut plan = Plan {
        now: core.context.host.now(),
        ..Plan::default()
    };
    plan.erased.insert(address.clone());
    stand_in(core, life, &mut plan, false).await?;
    core.lives.checkpoint_now(life).await?;
    let covers = life.ledger.covers().unwrap_or_default();
    let upto = Position {
        commit: CommitNo(covers.commit.0.saturating_sub(1)),
        ..covers
    };
    let mut pruned = Pruned::default();
    prune(core, life, Arc::new(plan), (upto, pass::How::Erase), &mut pruned).await?;
    core.lives.due().rows.push((row_of(address), None));
    core.lives.checkpoint_now(life).await?;
    tracing::info!("{address} was erased: {} records", pruned.records);
    Ok(Erased {
        records: pruned.records,
        bytes: pruned.bytes,
    })
}
