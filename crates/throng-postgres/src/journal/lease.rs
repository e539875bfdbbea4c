//! How long a writer's engine may answer reads: another engine that takes over waits until that time is over.

use super::Shared;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng_journal::{Durability, Error, WriterId};
use tokio_postgres::Client;

/// Renewed so many times in its length.
const RENEWALS: u32 = 5;
/// Between two looks at somebody else's.
const LOOK: Duration = Duration::from_millis(50);

/// What this process knows of its own lease.
pub(super) struct Lease {
    /// Zero: there are none.
    length: Duration,
    origin: Instant,
    writer: AtomicU64,
    /// Microseconds after the origin.
    until: AtomicU64,
}

impl Lease {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            origin: Instant::now(),
            writer: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Whether the writer's engine may answer now.
    pub(super) fn holds(&self, writer: WriterId) -> bool {
        if self.writer.load(Ordering::Acquire) != writer.0 {
            return false;
        }
        self.length.is_zero() || self.elapsed(Instant::now()) < self.until.load(Ordering::Acquire)
    }

    fn elapsed(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.origin).as_micros() as u64
    }

    /// The server has said at or after this time that the writer is its engine's.
    fn renew(&self, asked: Instant) {
        self.until.store(self.elapsed(asked + self.length), Ordering::Release);
    }

    fn begin(&self, writer: WriterId, asked: Instant) {
        self.renew(asked);
        self.writer.store(writer.0, Ordering::Release);
    }

    pub(super) fn end(&self, writer: WriterId) {
        // Of an earlier writer: then there is nothing to end.
        let _ = self
            .writer
            .compare_exchange(writer.0, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The key of the advisory lock a session holds for as long as its engine's connection lives.
fn lock_key(schema: &str, writer: WriterId) -> String {
    format!("throng {schema} {writer}")
}

impl Shared {
    pub(super) fn lease_micros(&self) -> i64 {
        self.lease.length.as_micros() as i64
    }

    /// The lease begins with the writer's opening, asked for at this time, and is renewed until it is over.
    pub(super) async fn hold(self: &Arc<Self>, writer: WriterId, asked: Instant) -> Result<(), Error> {
        if self.lease.length.is_zero() {
            self.lease.begin(writer, asked);
            return Ok(());
        }
        let client = self.lease_session(writer).await?;
        self.lease.begin(writer, asked);
        self.threads.spawn(renew(Arc::downgrade(self), client, writer));
        Ok(())
    }

    async fn lease_session(&self, writer: WriterId) -> Result<Client, Error> {
        let doing = "holding the lease of a writer";
        let client = self.database.connect(doing, Durability::Os).await?;
        let key = lock_key(&self.database.options.schema, writer);
        client
            .execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", &[&key])
            .await
            .map_err(self.database.failed(doing))?;
        Ok(client)
    }

    /// Waits until a sealed writer's engine answers no reads any more: its lease is over, or its session is gone.
    pub(super) async fn outlive(&self, client: &Client, writer: WriterId) -> Result<(), Error> {
        let key = lock_key(&self.database.options.schema, writer);
        loop {
            let row = client
                .query_opt(
                    "SELECT until <= clock_timestamp() OR pg_try_advisory_xact_lock(hashtextextended($2, 0)) FROM leases \
                     WHERE writer = $1",
                    &[&writer.0.cast_signed(), &key],
                )
                .await
                .map_err(self.database.failed("waiting for the lease of the writer before"))?;
            if row.is_none_or(|row| row.get(0)) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn renew(shared: Weak<Shared>, client: Client, writer: WriterId) {
    let mut client = Some(client);
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if strong.lease.writer.load(Ordering::Acquire) != writer.0 {
            return;
        }
        let every = strong.lease.length / RENEWALS;
        drop(strong);
        tokio::time::sleep(every).await;
        let Some(strong) = shared.upgrade() else { return };
        if client.as_ref().is_none_or(Client::is_closed) {
            client = match strong.lease_session(writer).await {
                Ok(client) => Some(client),
                Err(error) => {
                    tracing::warn!("the lease of writer {writer} is not renewed: {error}");
                    None
                }
            };
        }
        let Some(session) = &client else { continue };
        let asked = Instant::now();
        let renewed = session
            .execute(
                "UPDATE leases SET until = clock_timestamp() + $2 * interval '1 microsecond' WHERE writer = $1 AND NOT over",
                &[&writer.0.cast_signed(), &(strong.lease_micros() as f64)],
            )
            .await;
        match renewed {
            Ok(1) => strong.lease.renew(asked),
            Ok(_) => {
                strong.lease.end(writer);
                return;
            }
            Err(error) => {
                let error = strong.database.failed("renewing the lease")(error);
                tracing::warn!("the lease of writer {writer} is not renewed: {error}");
                client = None;
            }
        }
    }
}
