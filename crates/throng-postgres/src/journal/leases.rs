//! Leases in the tables: begun, renewed, outlived.

use super::{
    lease::boot_micros,
    process::{self, Process},
    shared::Shared,
};
use crate::{columns::set_of, rollback::find, typed};
use futures_util::future::try_join;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use throng_journal::{Error, ShardSet, WriterId};
use tokio_postgres::{Client, Row};

/// The time between two looks at another engine's lease.
const LOOK: Duration = Duration::from_millis(50);
/// The interval of looks at the engine that has taken over, and their number.
const SUCCESSOR_LOOK: (Duration, u32) = (Duration::from_millis(500), 60);

/// Selects the leases of sealed engines that have not expired, except those of one engine.
const UNEXPIRED: &str = "SELECT w.session, l.process, w.node, w.shards FROM leases l JOIN writers w USING (writer) WHERE w.session <> $1 \
    AND w.sealed_at IS NOT NULL AND l.until > clock_timestamp()";
const SUCCESSOR: &str = "SELECT w.writer, w.opened_at::text, l.process FROM writers w JOIN writers own ON own.writer = $1 AND own.node = \
    w.node LEFT JOIN leases l ON l.writer = w.writer WHERE w.writer > $1 AND w.session <> own.session ORDER BY w.writer LIMIT 1";
const RENEW: &str = "UPDATE leases l SET until = clock_timestamp() + $2 * interval '1 microsecond' FROM writers w WHERE l.writer = $1 AND \
    NOT l.over AND w.writer = l.writer AND w.session = $3";

/// The engines that have to be outlived.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    /// The engines of this name, and those of a cluster that has ended.
    Of(&'a str),
    /// The engines that may know something of these shards.
    With(&'a ShardSet),
}

impl Before<'_> {
    fn is(self, row: &Row) -> bool {
        let shards = set_of(row, 3);
        match self {
            Self::Of(node) => row.get::<_, &str>(2) == node || shards.is_some(),
            Self::With(own) => shards.is_none_or(|shards| shards.overlaps(own)),
        }
    }
}

/// A new writer with a lease.
pub(super) struct Begun {
    pub(super) writer: WriterId,
    /// The time of the request for its lease, by the clock of [`boot_micros`].
    pub(super) asked_micros: u64,
}

impl Shared {
    pub(super) fn lease_micros(&self) -> i64 {
        self.lease.length.as_micros() as i64
    }

    /// Begins the lease that was written with the writer, and has it renewed. It does not ask the server for that, because requests wait
    /// during a change of shards, and a connection takes the server longer than most statements.
    pub(super) fn hold(self: &Arc<Self>, Begun { writer, asked_micros }: Begun) {
        self.lease.begin(writer, asked_micros);
        self.heard.store(boot_micros(), Ordering::Release);
    }

    /// Renews a lease that expired before its engine began, unless another engine has sealed the writer.
    pub(super) async fn hold_on(&self, client: &mut Client, writer: WriterId) -> Result<(), Error> {
        let asked = boot_micros();
        if !self.renew(client, writer).await? {
            return Err(Error::Sealed(writer));
        }
        self.lease.renew(writer, asked);
        Ok(())
    }

    /// Renews a lease, and checks that the server holds what it has acknowledged. `false`: the writer is sealed.
    pub(super) async fn renew(&self, client: &mut Client, writer: WriterId) -> Result<bool, Error> {
        let (number, length) = (writer.0.cast_signed(), self.lease_micros() as f64);
        let (acknowledged, session) = (&self.database.acknowledged, &self.database.session);
        let sent = acknowledged.known();
        let lease = [typed::number(&number), typed::float(&length), typed::text(session)];
        let (renewed, found) = try_join(client.execute_typed(RENEW, &lease), find(client, &sent))
            .await
            .map_err(self.database.failed("renewing the lease"))?;
        if sent.own.writer == writer {
            if let Err(lacks) = sent.refuse(&found, session) {
                return Err(self.database.rolled_back(client, lacks).await);
            }
            acknowledged.compare_losses(&sent, &found);
        }
        Ok(renewed == 1)
    }

    /// Waits until none of the earlier engines whose writer is sealed can answer reads: its lease has expired, or its process is known to
    /// be gone. Returns their sessions.
    pub(super) async fn outlive(&self, client: &Client, whose: Before<'_>) -> Result<BTreeSet<String>, Error> {
        let own = Process::own();
        let has_ended = |row: &Row| {
            let process: Option<Process> = row.get::<_, Option<&str>>(1).and_then(|text| text.parse().ok());
            matches!((&own, process), (Some(own), Some(process)) if process.has_ended(own))
        };
        let mut outlived = BTreeSet::new();
        loop {
            let rows = client
                .query_typed(UNEXPIRED, &[typed::text(&self.database.session)])
                .await
                .map_err(self.database.failed("waiting for the leases of the engines before"))?;
            let rows: Vec<&Row> = rows.iter().filter(|row| whose.is(row)).collect();
            outlived.extend(rows.iter().map(|row| row.get::<_, String>(0)));
            if rows.iter().all(|row| has_ended(row)) {
                return Ok(outlived);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Logs which engine has taken over, once it has begun.
    pub(super) async fn tell_successor(&self, writer: WriterId) -> Result<(), Error> {
        tracing::warn!("writer {writer} was sealed by another engine that takes over; this one answers nothing more");
        let doing = "looking for the engine that has taken over";
        for _ in 0..SUCCESSOR_LOOK.1 {
            let client = self.database.client(doing).await?;
            let row = client
                .query_opt(SUCCESSOR, &[&writer.0.cast_signed()])
                .await
                .map_err(self.database.failed(doing))?;
            if let Some(row) = row {
                let (successor, at): (i64, &str) = (row.get(0), row.get(1));
                let who = process::told(row.get(2));
                tracing::warn!("another engine has taken over: {who}, with writer {successor}, at {at}");
                return Ok(());
            }
            drop(client);
            tokio::time::sleep(SUCCESSOR_LOOK.0).await;
        }
        Ok(())
    }
}
