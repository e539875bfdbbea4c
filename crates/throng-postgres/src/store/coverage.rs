//! The position up to which each shard is covered, and the one up to which its events are in the table for people.

use crate::{
    columns::{numbers, position_of},
    database::Database,
    typed,
};
use deadpool_postgres::Transaction;
use throng_journal::{CommitNo, Covered, Error, Position, Record, ShardId, ShardSet, WriterId};
use tokio_postgres::GenericClient;

/// Selects a shard's coverage: from its own row, else from the row for all.
const COVERS: &str = "SELECT s.shard, CASE WHEN v.shard IS NULL THEN c.writer ELSE v.writer END, CASE WHEN v.shard IS NULL THEN c.commit \
    ELSE v.commit END, CASE WHEN v.shard IS NULL THEN c.events_writer ELSE v.events_writer END, CASE WHEN v.shard IS NULL THEN \
    c.events_commit ELSE v.events_commit END FROM checkpoint c CROSS JOIN unnest($1::int[]) s(shard) LEFT JOIN LATERAL (SELECT * FROM \
    covers WHERE covers.shard = s.shard) v ON true";
/// Locks the shards' rows, so that checkpoints of one shard are made one after the other; those of other shards can run concurrently.
const LOCK: &str = "SELECT FROM covers WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";
const LOCK_ALL: &str = "SELECT FROM checkpoint FOR UPDATE";
const SET: &str = "INSERT INTO covers (shard, writer, commit, events_writer, events_commit) SELECT s, $2, $3, e.writer, e.commit FROM \
    unnest($1::int[], $4::bigint[], $5::bigint[]) e(s, writer, commit) ON CONFLICT (shard) DO UPDATE SET writer = excluded.writer, \
    commit = excluded.commit, events_writer = excluded.events_writer, events_commit = excluded.events_commit";
const SET_ALL: &str =
    "UPDATE checkpoint SET writer = $1, commit = $2, events_writer = $3, events_commit = $4, made_at = now()";
const CLEAR: &str = "DELETE FROM covers";

/// The coverage of the shards of one stream.
pub(super) struct Coverage {
    shards: ShardSet,
    /// The reach of each shard, by its number.
    of: Vec<Reach>,
}

#[derive(Clone, Copy, Default)]
struct Reach {
    covers: Option<Position>,
    events: Option<Position>,
}

/// The maker of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// An engine outside a cluster: one row has the coverage of all shards.
    Alone,
    /// A node of a cluster, where others cover other shards.
    Node,
}

impl Coverage {
    pub(super) async fn read(
        database: &Database,
        client: &impl GenericClient,
        shards: &ShardSet,
        doing: &str,
    ) -> Result<Self, Error> {
        let wanted = numbers(shards);
        let rows = client
            .query_typed(COVERS, &[typed::shards(&wanted)])
            .await
            .map_err(database.failed(doing))?;
        let mut of = Vec::new();
        for row in &rows {
            let shard = usize::try_from(row.get::<_, i32>(0)).unwrap_or_default();
            if shard >= of.len() {
                of.resize(shard + 1, Reach::default());
            }
            of[shard] = Reach {
                covers: position_of(row, 1, 2),
                events: position_of(row, 3, 4),
            };
        }
        let shards = shards.clone();
        Ok(Self { shards, of })
    }

    /// Locks the shards against other checkpoints, and reads what is covered.
    pub(super) async fn lock(
        database: &Database,
        transaction: &Transaction<'_>,
        (maker, shards): (Maker, &ShardSet),
        doing: &str,
    ) -> Result<Self, Error> {
        let failed = || database.failed(doing);
        if maker == Maker::Alone {
            transaction.execute(LOCK_ALL, &[]).await.map_err(failed())?;
        }
        transaction.execute(LOCK, &[&numbers(shards)]).await.map_err(failed())?;
        Self::read(database, &**transaction, shards, doing).await
    }

    /// The shards by how far they are covered.
    pub(super) fn covered(&self) -> Vec<Covered> {
        let mut all: Vec<Covered> = Vec::new();
        for shard in self.shards.iter() {
            let upto = self.of(shard).covers;
            match all.iter_mut().find(|covered| covered.upto == upto) {
                Some(covered) => _ = covered.shards.insert(shard),
                None => all.push(Covered {
                    shards: [shard].into_iter().collect(),
                    upto,
                }),
            }
        }
        all
    }

    fn of(&self, shard: ShardId) -> Reach {
        self.of.get(usize::from(shard.0)).copied().unwrap_or_default()
    }

    /// Returns two flags: the record has to be indexed, and it has to be added to the table for people.
    pub(super) fn wants(&self, record: &Record<'_>, at: Position) -> (bool, bool) {
        let reach = self.of(record.shard);
        let is_after = |upto: Option<Position>| upto.is_none_or(|upto| upto < at);
        let is_own = self.shards.contains(record.shard);
        (is_own && is_after(reach.covers), is_own && is_after(reach.events))
    }

    /// Returns the first writer whose covered events are missing in the table for people, because it was not filled at that time.
    pub(super) fn missing_events(&self) -> Option<WriterId> {
        let reaches = self.shards.iter().map(|shard| self.of(shard));
        let behind = reaches.filter(|reach| reach.events < reach.covers);
        behind.map(|reach| reach.events.unwrap_or_default().writer).min()
    }

    /// Returns the part of a stream to be read, which ends here and may hold records of these (`None`: of all): what is not covered or, if
    /// the table for people is filled, is missing there.
    pub(super) fn stretch(&self, end: Position, of: Option<&ShardSet>, fills: bool) -> Option<(Position, Position)> {
        let begin = |upto: Option<Position>| match upto {
            Some(upto) if upto.writer == end.writer => upto.commit,
            Some(upto) if upto.writer > end.writer => end.commit,
            _ => CommitNo(0),
        };
        let of_shard = |shard| {
            let reach = self.of(shard);
            let covers = begin(reach.covers);
            if fills { covers.min(begin(reach.events)) } else { covers }
        };
        let held = self
            .shards
            .iter()
            .filter(|shard| of.is_none_or(|of| of.contains(*shard)));
        let commit = held.map(of_shard).min()?;
        (commit < end.commit).then_some((Position { commit, ..end }, end))
    }

    /// Records that all of them are covered up to here, and are in the table for people if it was filled.
    pub(super) async fn set(
        &self,
        database: &Database,
        transaction: &Transaction<'_>,
        (maker, upto, has_filled): (Maker, Position, bool),
        doing: &str,
    ) -> Result<(), Error> {
        let failed = || database.failed(doing);
        let column = |position: Option<Position>| {
            let number = |number: u64| number.cast_signed();
            (
                position.map(|at| number(at.writer.0)),
                position.map(|at| number(at.commit.0)),
            )
        };
        let (writer, commit) = column(Some(upto));
        let events = |shard| if has_filled { Some(upto) } else { self.of(shard).events };
        if maker == Maker::Alone {
            let least = self.shards.iter().map(events).min().flatten();
            let (events_writer, events_commit) = column(least);
            transaction
                .execute(SET_ALL, &[&writer, &commit, &events_writer, &events_commit])
                .await
                .map_err(failed())?;
            // Nodes may have filled the table up to different positions, which one row cannot express.
            if self.shards.iter().all(|shard| events(shard) == least) {
                transaction.execute(CLEAR, &[]).await.map_err(failed())?;
                return Ok(());
            }
        }
        let (writers, commits): (Vec<Option<i64>>, Vec<Option<i64>>) =
            self.shards.iter().map(|shard| column(events(shard))).unzip();
        transaction
            .execute(SET, &[&numbers(&self.shards), &writer, &commit, &writers, &commits])
            .await
            .map(drop)
            .map_err(failed())
    }
}
