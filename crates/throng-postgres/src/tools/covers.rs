//! The store's own account of its coverage.

use super::walk::PATIENCE;
use crate::{
    PostgresOptions,
    columns::{position_of, shard},
    database::Database,
};
use std::{fmt, sync::Arc};
use throng_journal::{Error, Position, ShardId, ShardSet};
use tokio_postgres::IsolationLevel;

const DOING: &str = "looking at the store";

/// The position up to which each shard is covered.
#[derive(Default)]
pub(super) struct Covers {
    /// The position of all shards without one of their own.
    all: Option<Position>,
    nodes: Vec<(Position, ShardSet)>,
    /// The number of indexed events, of all entities.
    pub(super) events: u64,
}

impl Covers {
    pub(super) fn read(options: &PostgresOptions) -> Result<Self, Error> {
        let database = Database::look(options.clone())?;
        let task = Arc::clone(&database);
        let look = async move {
            let mut client = task.client(DOING).await?;
            read(&mut client).await.map_err(task.failed(DOING))
        };
        database.threads.block(look, PATIENCE)
    }

    pub(super) fn covers(&self, shard: ShardId, at: Position) -> bool {
        let own = self.nodes.iter().find(|(_, shards)| shards.contains(shard));
        let upto = own.map(|(upto, _)| *upto).or(self.all);
        upto.is_some_and(|upto| at <= upto)
    }

    /// The newest commit that is covered of any shard.
    pub(super) fn newest(&self) -> Option<Position> {
        let nodes = self.nodes.iter().map(|(upto, _)| *upto);
        nodes.chain(self.all).max()
    }
}

/// Reads the coverage at one moment.
async fn read(client: &mut tokio_postgres::Client) -> Result<Covers, tokio_postgres::Error> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let all = transaction
        .query_one(
            "SELECT writer, commit, (SELECT coalesce(sum(seq), 0)::bigint FROM entities) FROM checkpoint",
            &[],
        )
        .await?;
    let mut covers = Covers {
        all: position_of(&all, 0, 1),
        events: all.get::<_, i64>(2).cast_unsigned(),
        nodes: Vec::new(),
    };
    let rows = transaction
        .query("SELECT writer, commit, shard FROM covers ORDER BY shard", &[])
        .await?;
    for row in &rows {
        let Some(upto) = position_of(row, 0, 1) else { continue };
        let shard = shard(row, 2);
        match covers.nodes.iter_mut().find(|(other, _)| *other == upto) {
            Some((_, shards)) => _ = shards.insert(shard),
            None => covers.nodes.push((upto, [shard].into_iter().collect())),
        }
    }
    Ok(covers)
}

/// Writes `writer.commit`, and the shards that differ from it.
impl fmt::Display for Covers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        if let Some(all) = self.all {
            write!(f, "{all}")?;
            comma = ", ";
        }
        for (upto, shards) in &self.nodes {
            write!(f, "{comma}{upto} (shards {shards})")?;
            comma = ", ";
        }
        Ok(())
    }
}
