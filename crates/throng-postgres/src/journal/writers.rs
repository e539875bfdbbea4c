//! Writers: opened, sealed, taken.

use super::{
    lease::boot_micros,
    leases::{Before, Begun},
    process::Process,
    shared::Shared,
};
use crate::{
    columns::set_of,
    directory::{self, Change, close},
    locks::{LOCK_CLUSTER, PATIENCE, TRIES, end_sessions, has_met_another},
    losses::next_writer,
    rollback::{Known, ServerAnswer, find},
    typed,
};
use futures_util::future::{try_join, try_join3, try_join4, try_join5};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use throng_journal::{
    CommitNo, Error, FEATURES, Inventory, Join, NodeId, Opened, PartEntry, Position, ShardSet, Stream, Taken,
    WriterEntry, WriterId,
};
use tokio_postgres::{Client, Row, Transaction, error::SqlState};

/// Seals, and writes something even if the writer was sealed before, so that it waits until a standby has everything before it.
const SEAL: &str = "SET LOCAL lock_timeout TO '3s'; SELECT pg_logical_emit_message(true, 'throng', '')";
/// Selects the schema's tables, the largest first: name, bytes with indexes, and approximate rows.
pub(crate) const TABLES: &str = "SELECT relname::text, pg_total_relation_size(oid), reltuples::bigint FROM pg_class WHERE relkind = 'r' AND \
     relnamespace = current_schema::regnamespace ORDER BY 2 DESC, 1";
/// A round trip above which several appends are kept in flight.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(1);
const DEPTH_FAR: usize = 4;

impl Shared {
    /// Seals the node's earlier writers, opens a new one, and waits until earlier engines cannot answer any more.
    pub(super) async fn open(self: &Arc<Self>, node: &str) -> Result<Opened, Error> {
        let doing = "opening a writer";
        let failed = || self.database.failed(doing);
        self.lease.end(WriterId(self.own.load(Ordering::Acquire)));
        self.keep();
        let mut client = self.database.client(doing).await?;
        let loss = self.refuse_loss(&mut client).await?;
        self.database.acknowledged.begin_anew(None);
        let mut tries = 1;
        let begun = loop {
            match self.begin(&mut client, node).await {
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && tries < TRIES => {
                    self.end_sessions_of(&client, node).await.map_err(failed())?;
                    tries += 1;
                }
                Err(error) if has_met_another(&error) && tries < TRIES => tries += 1,
                begun => break begun,
            }
        };
        let (begun, sealed) = begun.map_err(failed())??;
        self.begin_epoch(&mut client, (begun, loss), Before::Of(node), sealed)
            .await
    }

    /// Opens a writer like [`open`](Self::open), for a node of a cluster and its shards.
    pub(super) async fn open_shards(self: &Arc<Self>, node: NodeId, shards: &ShardSet) -> Result<Opened, Error> {
        let doing = "opening a writer";
        self.lease.end(WriterId(self.own.load(Ordering::Acquire)));
        self.keep();
        // The node's ownership was rolled back, too, so it has to join first.
        if let Some(refused) = self.database.acknowledged.rolled_back() {
            return Err(refused);
        }
        let mut client = self.database.client(doing).await?;
        let loss = self.refuse_loss(&mut client).await?;
        let mut tries = 1;
        let begun = loop {
            match self.begin_shards(&mut client, node, shards).await {
                Err(error) if has_met_another(&error) && tries < TRIES => tries += 1,
                begun => break begun,
            }
        };
        let begun = begun.map_err(self.database.failed(doing))??;
        self.begin_epoch(&mut client, (begun, loss), Before::With(shards), Vec::new())
            .await
    }

    /// Holds the lease of a new writer, once no earlier engine can answer any more.
    async fn begin_epoch(
        self: &Arc<Self>,
        client: &mut Client,
        (begun, loss): (Begun, i64),
        whose: Before<'_>,
        sealed: Vec<String>,
    ) -> Result<Opened, Error> {
        let failed = || self.database.failed("opening a writer");
        let writer = begun.writer;
        self.database.acknowledged.begin(writer, loss);
        let is_first = self.own.swap(writer.0, Ordering::AcqRel) == 0;
        self.hold(begun);
        // This includes engines sealed by others, which perhaps nobody has waited for to the end.
        let mut before = self.outlive(client, whose).await?;
        before.extend(sealed);
        // Their remaining sessions, such as one with a begun checkpoint, hold locks. A node that has only given shards away goes on.
        let living = match before.is_empty() {
            true => BTreeSet::new(),
            false => directory::sessions(client).await.map_err(failed())?,
        };
        let is_over = |session: &&String| **session != self.database.session && !living.contains(*session);
        for session in before.iter().filter(is_over) {
            end_sessions(client, session).await.map_err(failed())?;
        }
        self.appender.connect().await?;
        if !self.lease.holds(writer) {
            self.hold_on(client, writer).await?;
        }
        if self.database.options.depth.is_none() && is_first {
            let depth = if round_trip(client).await.map_err(failed())? > LONG_ROUND_TRIP {
                DEPTH_FAR
            } else {
                1
            };
            self.depth.store(depth, Ordering::Relaxed);
        }
        self.begin_looking(client).await?;
        Ok(Opened { writer })
    }

    /// Begins a stream that may hold records of a node's shards only; its earlier ones end.
    async fn begin_shards(
        &self,
        client: &mut Client,
        node: NodeId,
        shards: &ShardSet,
    ) -> Result<Change<Begun>, tokio_postgres::Error> {
        let number = node.0.cast_signed();
        let this = [typed::number(&number)];
        let transaction = client.transaction().await?;
        // Sent together, in this order, because requests wait for this.
        let (_, name, owned, rows) = try_join4(
            transaction.batch_execute(PATIENCE),
            directory::living(&transaction, (node, &self.database.session)),
            directory::owns(&transaction, node, shards),
            transaction.query_typed(
                "UPDATE writers SET sealed_at = now() WHERE node_id = $1 AND sealed_at IS NULL RETURNING writer",
                &this,
            ),
        )
        .await?;
        let Some(name) = name else {
            return Ok(Err(Error::Gone(node)));
        };
        if let Err(refused) = owned {
            return Ok(Err(refused));
        }
        let own: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if !own.is_empty() {
            try_join(close(&transaction, &own), self.give_back(&transaction, &own)).await?;
        }
        // One at a time gets a number, which is greater than that of every ended stream.
        let (_, open, next) = try_join3(
            transaction.execute_typed(LOCK_CLUSTER, &[]),
            directory::refuse_open(&transaction, shards),
            next_writer(&self.database, &transaction),
        )
        .await?;
        if let Err(refused) = open {
            return Ok(Err(refused));
        }
        let writer = next;
        let set = shards.bytes();
        let row = [
            typed::number(&writer),
            typed::text(&name),
            typed::text(&self.database.session),
            typed::number(&number),
            typed::bytes(&set),
        ];
        let (_, begun) = try_join(
            transaction.execute_typed(
                "INSERT INTO writers (writer, node, session, node_id, shards) VALUES ($1, $2, $3, $4, $5)",
                &row,
            ),
            self.insert_lease(&transaction, writer),
        )
        .await?;
        transaction.commit().await?;
        Ok(Ok(begun))
    }

    async fn insert_lease(&self, transaction: &Transaction<'_>, writer: i64) -> Result<Begun, tokio_postgres::Error> {
        let asked_micros = boot_micros();
        let (length, process) = (self.lease_micros() as f64, Process::own().map(|own| own.to_string()));
        transaction
            .execute_typed(
                "INSERT INTO leases (writer, until, process) VALUES ($1, clock_timestamp() + $2 * interval '1 microsecond', $3)",
                &[typed::number(&writer), typed::float(&length), typed::text(&process)],
            )
            .await?;
        Ok(Begun {
            writer: WriterId(writer.cast_unsigned()),
            asked_micros,
        })
    }

    /// True if another living engine of this node has begun later than this one. Its lease may have been expired for as long again: a new
    /// engine renews it late on a busy machine, and would find itself sealed during its start.
    async fn is_taken_over(
        &self,
        transaction: &Transaction<'_>,
        node: &str,
        own: u64,
    ) -> Result<bool, tokio_postgres::Error> {
        let row = transaction
            .query_one(
                "SELECT EXISTS (SELECT FROM writers w JOIN leases l USING (writer) WHERE w.node = $1 AND w.session <> $2 AND \
                 w.writer > $3 AND w.sealed_at IS NULL AND ($4::float8 = 0 OR l.until + $4::float8 * interval '1 microsecond' > \
                 clock_timestamp()))",
                &[&node, &self.database.session, &own.cast_signed(), &(self.lease_micros() as f64)],
            )
            .await?;
        Ok(row.get(0))
    }

    /// Ends the sessions of the engines that have this node's writers open: one of them holds a lock and does not proceed.
    async fn end_sessions_of(&self, client: &Client, node: &str) -> Result<(), tokio_postgres::Error> {
        let rows = client
            .query(
                "SELECT DISTINCT session FROM writers WHERE node = $1 AND sealed_at IS NULL AND session <> $2",
                &[&node, &self.database.session],
            )
            .await?;
        for row in rows {
            end_sessions(client, row.get(0)).await?;
        }
        Ok(())
    }

    /// Seals the node's writers and begins the next, which records the sealed ones' sessions. Both happen in one transaction, one engine
    /// after the other, so that a sealed engine finds its successor. Refused while a node of a cluster lives; no node joins meanwhile. What
    /// is left of a cluster without living nodes ends.
    async fn begin(
        &self,
        client: &mut Client,
        node: &str,
    ) -> Result<Change<(Begun, Vec<String>)>, tokio_postgres::Error> {
        let transaction = client.transaction().await?;
        transaction.execute(LOCK_CLUSTER, &[]).await?;
        transaction.batch_execute(PATIENCE).await?;
        // An engine that was taken over does not take back: only a starting one takes over from one that lives.
        let own = self.own.load(Ordering::Acquire);
        if own != 0 && self.is_taken_over(&transaction, node, own).await? {
            return Ok(Err(Error::Sealed(WriterId(own))));
        }
        let row = transaction.query_one("SELECT features, app FROM cluster", &[]).await?;
        let own = Join {
            program: concat!("throng ", env!("CARGO_PKG_VERSION")).into(),
            app: self.database.options.release,
            features: FEATURES,
            ..Join::default()
        };
        if let Err(refused) = directory::floor_of(&row, 0).refuse(&own) {
            return Ok(Err(refused));
        }
        if let Err(name) = directory::end_all(&transaction).await? {
            return Ok(Err(Error::Refused(format!(
                "the node {name:?} of a cluster serves this journal: start this engine with --cluster, or stop the nodes first"
            ))));
        }
        let rows = transaction
            .query(
                "UPDATE writers SET sealed_at = now() WHERE node = $1 AND sealed_at IS NULL RETURNING writer, session",
                &[&node],
            )
            .await?;
        let before: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        close(&transaction, &before).await?;
        let writer = next_writer(&self.database, &transaction).await?;
        transaction
            .execute(
                "INSERT INTO writers (writer, node, session) VALUES ($1, $2, $3)",
                &[&writer, &node, &self.database.session],
            )
            .await?;
        let begun = self.insert_lease(&transaction, writer).await?;
        transaction.commit().await?;
        Ok(Ok((begun, rows.iter().map(|row| row.get(1)).collect())))
    }

    pub(super) async fn take(&self, by: WriterId, shards: &ShardSet) -> Result<Vec<Taken>, Error> {
        let (doing, number) = ("taking the streams before", by.0.cast_signed());
        let client = self.database.client(doing).await?;
        let rows = client
            .query_typed(
                "SELECT writer, last, shards FROM writers WHERE writer < $1 AND last IS NOT NULL AND EXISTS (SELECT FROM writers \
                 WHERE writer = $1 AND sealed_at IS NULL) UNION ALL SELECT writer, NULL, NULL FROM writers WHERE writer = $1 AND \
                 sealed_at IS NULL ORDER BY 1",
                &[typed::number(&number)],
            )
            .await
            .map_err(self.database.failed(doing))?;
        // The last row is the taker's own.
        let Some((_, before)) = rows.split_last() else {
            return Err(Error::Sealed(by));
        };
        let taken = before.iter().map(|row| Taken {
            writer: WriterId(row.get::<_, i64>(0).cast_unsigned()),
            last: CommitNo(row.get::<_, Option<i64>>(1).unwrap_or_default().cast_unsigned()),
            shards: set_of(row, 2),
        });
        let may_hold = |taken: &Taken| taken.shards.as_ref().is_none_or(|set| set.overlaps(shards));
        let taken: Vec<Taken> = taken.filter(may_hold).collect();
        self.database
            .acknowledged
            .ended(taken.iter().map(|taken| Position::new(taken.writer, taken.last)));
        Ok(taken)
    }

    /// Returns all streams from a writer's on, as one statement sees them.
    pub(super) async fn streams(&self, from: WriterId) -> Result<Vec<Stream>, Error> {
        let doing = "listing the streams";
        let failed = || self.database.failed(doing);
        let client = self.database.client(doing).await?;
        let statement = client
            .prepare_cached(
                "SELECT writer, last IS NOT NULL, shards, coalesce(last, (SELECT max(number) FROM commits c WHERE c.writer = \
                 w.writer), 0) FROM writers w WHERE writer >= $1 ORDER BY writer",
            )
            .await
            .map_err(failed())?;
        let rows = client
            .query(&statement, &[&from.0.cast_signed()])
            .await
            .map_err(failed())?;
        let stream = |row: &Row| Stream {
            writer: WriterId(row.get::<_, i64>(0).cast_unsigned()),
            shards: set_of(row, 2),
            last: CommitNo(row.get::<_, i64>(3).cast_unsigned()),
            is_sealed: row.get(1),
        };
        Ok(rows.iter().map(stream).collect())
    }

    /// The newest writers, and the tables of the schema.
    pub(super) async fn inventory(&self, limit: usize) -> Result<Inventory, Error> {
        let doing = "listing the writers";
        let failed = || self.database.failed(doing);
        let client = self.database.client(doing).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let micros =
            "(extract(epoch FROM opened_at) * 1000000)::bigint, (extract(epoch FROM sealed_at) * 1000000)::bigint";
        let writers = format!(
            "SELECT writer, node, sealed_at IS NULL, coalesce(last, (SELECT max(number) FROM commits c WHERE c.writer = w.writer), 0), \
             {micros}, (SELECT count(*) FROM writers) FROM writers w ORDER BY writer DESC LIMIT $1"
        );
        let rows = client.query(&writers, &[&limit]).await.map_err(failed())?;
        let total = rows.first().map_or(0, |row| row.get::<_, i64>(6));
        let writers = rows.iter().map(|row| WriterEntry {
            writer: WriterId(row.get::<_, i64>(0).cast_unsigned()),
            node: row.get(1),
            last: CommitNo(row.get::<_, i64>(3).cast_unsigned()),
            is_open: row.get(2),
            begun_micros: row.get(4),
            ended_micros: row.get(5),
            segments: None,
        });
        let writers = writers.collect();
        let rows = client.query(TABLES, &[]).await.map_err(failed())?;
        let parts: Vec<PartEntry> = rows
            .iter()
            .map(|row| PartEntry {
                name: row.get(0),
                first: None,
                begun_micros: None,
                // -1 if it was never counted.
                rows: u64::try_from(row.get::<_, i64>(2)).ok(),
                bytes: row.get::<_, i64>(1).cast_unsigned(),
            })
            .collect();
        Ok(Inventory {
            writers,
            writers_total: total.cast_unsigned(),
            parts_total: parts.len() as u64,
            parts,
        })
    }

    /// Seals a writer. The update waits for a statement in doubt, if there is one; after it, nothing lands.
    pub(super) async fn seal(&self, writer: WriterId) -> Result<CommitNo, Error> {
        let doing = "sealing a writer";
        let failed = || self.database.failed(doing);
        self.lease.end(writer);
        let mut client = self.database.client(doing).await?;
        let sent = self.database.acknowledged.known();
        let unreplicated = self.database.dialer.unreplicated();
        let sealed = match self.seal_writer(&mut client, (writer, &sent)).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                let row = client
                    .query_opt(
                        "SELECT session FROM writers WHERE writer = $1",
                        &[&writer.0.cast_signed()],
                    )
                    .await
                    .map_err(failed())?;
                if let Some(session) = row
                    .map(|row| row.get::<_, String>(0))
                    .filter(|found| *found != self.database.session)
                {
                    end_sessions(&client, &session).await.map_err(failed())?;
                }
                self.seal_writer(&mut client, (writer, &sent)).await
            }
            sealed => sealed,
        };
        let (last, found) = sealed.map_err(failed())?;
        if self.database.dialer.unreplicated() != unreplicated {
            // The commits before it need not be there either: their outcomes follow from the seal.
            return Err(Error::backend(
                format!("{doing} ({})", self.database.options.place()),
                "the server did not wait until it was on a synchronous standby",
            ));
        }
        if sent.own.writer == writer
            && let Err(lacks) = sent.refuse(&found, &self.database.session)
        {
            return Err(self.database.rolled_back(&mut client, lacks).await);
        }
        last.ok_or(Error::NoCommit(Position::new(writer, CommitNo(0))))
    }

    /// Ends the engine's own leases of these writers, so that nobody has to wait for them.
    async fn give_back(&self, transaction: &Transaction<'_>, writers: &[i64]) -> Result<(), tokio_postgres::Error> {
        transaction
            .execute_typed(
                "UPDATE leases l SET until = clock_timestamp() FROM writers w WHERE l.writer = ANY($1) AND w.writer = l.writer AND \
                 w.session = $2 AND l.until > clock_timestamp()",
                &[typed::numbers(&writers), typed::text(&self.database.session)],
            )
            .await
            .map(drop)
    }

    async fn seal_writer(
        &self,
        client: &mut Client,
        (writer, sent): (WriterId, &Known),
    ) -> Result<(Option<CommitNo>, ServerAnswer), tokio_postgres::Error> {
        // A writer of another engine with the same number is not sealed.
        let session = (sent.own.writer == writer).then_some(&*self.database.session);
        let writer = writer.0.cast_signed();
        let (this, these) = ([typed::number(&writer), typed::text(&session)], [writer]);
        let transaction = client.transaction().await?;
        // Sent together, in this order, because requests wait for this.
        let steps = try_join5(
            transaction.batch_execute(SEAL),
            transaction.execute_typed(
                "UPDATE writers SET sealed_at = now() WHERE writer = $1 AND sealed_at IS NULL AND ($2::text IS NULL OR session = $2)",
                &this,
            ),
            close(&transaction, &these),
            self.give_back(&transaction, &these),
            transaction.query_typed_opt("SELECT last FROM writers WHERE writer = $1 AND last IS NOT NULL", &this[..1]),
        );
        let ((_, _, (), (), row), found) = try_join(steps, find(&transaction, sent)).await?;
        transaction.commit().await?;
        let last = row.map(|row| CommitNo(row.get::<_, i64>(0).cast_unsigned()));
        Ok((last, found))
    }
}

async fn round_trip(client: &Client) -> Result<Duration, tokio_postgres::Error> {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        client.batch_execute("").await?;
        shortest = shortest.min(begun.elapsed());
    }
    Ok(shortest)
}
