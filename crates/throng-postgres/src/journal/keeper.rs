//! Checks regularly whether the server answers, holds what it has acknowledged, and lets this engine answer.
//!
//! A hanging server keeps its connections and answers nothing, for ever. Only this task has a time limit for it. At that limit it cuts all
//! connections, which ends all waits, and each host of the URL is tried again.

use super::{lease::boot_micros, shared::Shared};
use crate::rollback;
use std::{
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng_journal::{Durability, Error, WriterId};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

const DOING: &str = "holding the lease of a writer";
/// The interval of checks without a lease to be renewed.
const LOOK_WITHOUT_LEASE: Duration = Duration::from_secs(1);
/// The number of renewals within a lease.
const RENEWALS: u32 = 5;
/// The least time after which a check without answer means that the server is silent.
const SILENCE_LEAST: Duration = Duration::from_secs(2);
/// The longest permitted silence without a lease.
const SILENCE_WITHOUT_LEASE: Duration = Duration::from_secs(5);
/// Identifies a running server. A promoted standby keeps running, but on another timeline.
const SERVER: &str = "SELECT pg_postmaster_start_time()::text";

/// A connection, and the server it leads to.
pub(super) struct Session {
    client: Client,
    server: String,
    timeline: String,
}

impl Shared {
    /// Begins to look, with the first writer.
    pub(super) fn keep(self: &Arc<Self>) {
        if !self.is_kept.swap(true, Ordering::AcqRel) {
            self.threads.spawn(keep(Arc::downgrade(self)));
        }
    }

    fn between_looks(&self) -> Duration {
        match self.lease.length.is_zero() {
            true => LOOK_WITHOUT_LEASE,
            false => self.lease.length / RENEWALS,
        }
    }

    fn silence_max(&self) -> Duration {
        match self.lease.length.is_zero() {
            true => SILENCE_WITHOUT_LEASE,
            false => self.lease.length,
        }
    }

    /// Returns a session that syncs its writes: a lease that a server forgets in a crash would end too early.
    async fn session(&self) -> Result<Session, Error> {
        let client = self.database.connect(DOING, Durability::Fsync).await?;
        let limit = self.database.dialer.limit();
        let server = timeout(limit, server(&client)).await;
        let server = server.map_err(|_| self.database.silent(DOING, limit))?;
        let (server, timeline) = server.map_err(self.database.failed(DOING))?;
        Ok(Session {
            client,
            server,
            timeline,
        })
    }

    /// Checks once, then pauses. Commits wait for a server that answers, even while its synchronous standby is away.
    async fn look(self: &Arc<Self>, session: &mut Session, silence: &Silence) -> Result<(), Error> {
        let limit = self.silence_max().max(SILENCE_LEAST);
        let Session {
            client,
            server,
            timeline,
        } = session;
        let mut looking = pin!(self.renew_own(client, timeline));
        loop {
            if let Ok(looked) = timeout(limit, &mut looking).await {
                return looked;
            }
            silence.tell(self);
            let is_dropped = Arc::strong_count(self) == 1;
            if is_dropped || !self.is_there(server).await {
                // This ends the waits of others, too.
                self.database.dialer.cut();
                return Err(self.database.silent(DOING, limit));
            }
        }
    }

    /// True if a new connection leads to the same server, and is answered.
    async fn is_there(&self, before: &str) -> bool {
        let found = async {
            let client = self.database.connect(DOING, Durability::Fsync).await.ok()?;
            server(&client).await.ok()
        };
        let hosts = self.database.options.hosts().max(1);
        let limit = self.database.dialer.limit() * u32::try_from(hosts + 1).unwrap_or(u32::MAX);
        let found = timeout(limit, found).await;
        matches!(found, Ok(Some((server, _))) if server == before)
    }

    /// Renews the lease of the writer that has one.
    async fn renew_own(self: &Arc<Self>, client: &mut Client, timeline: &str) -> Result<(), Error> {
        let asked = boot_micros();
        let writer = WriterId(self.lease.writer());
        let is_own = self.renew(client, writer).await?;
        self.heard.store(boot_micros(), Ordering::Release);
        if writer.0 == 0 {
            return Ok(());
        }
        self.database.acknowledged.saw_timeline(writer, timeline);
        if is_own {
            self.lease.renew(writer, asked);
        } else if self.lease.end(writer) {
            // If this engine had ended, it was sealed by this engine itself.
            self.lease.is_over_by_another(writer);
            let shared = Arc::clone(self);
            self.threads.spawn(async move {
                if let Err(error) = shared.tell_successor(writer).await {
                    tracing::warn!("who has taken over is not known: {error}");
                }
            });
        }
        Ok(())
    }
}

/// The server, and its timeline.
async fn server(client: &Client) -> Result<(String, String), tokio_postgres::Error> {
    let server = client.query_typed_one(SERVER, &[]).await?.get(0);
    Ok((server, rollback::timeline(client).await))
}

/// True once the server's silence was logged. Only the keeper's task writes it.
#[derive(Default)]
struct Silence(AtomicBool);

impl Silence {
    fn tell(&self, shared: &Shared) {
        let most = shared.silence_max();
        let since = Duration::from_micros(boot_micros().saturating_sub(shared.heard.load(Ordering::Acquire)));
        if since >= most && !self.0.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "no write was answered by the database for {:.1} s, longer than a lease ({most:?}): nothing is answered until one is ({}); is \
                 the server there, and a standby that its commits wait for?",
                since.as_secs_f64(),
                shared.database.options.place()
            );
        }
    }

    fn end(&self) {
        if self.0.swap(false, Ordering::AcqRel) {
            tracing::info!("the database answers writes again");
        }
    }
}

async fn keep(shared: Weak<Shared>) {
    let silence = Silence::default();
    let mut session: Option<Session> = None;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        // Checked before the wait: on a busy machine connecting may take as long as a lease.
        if session.as_ref().is_none_or(|session| session.client.is_closed()) {
            session = match strong.session().await {
                Ok(session) => Some(session),
                Err(error) => {
                    tracing::warn!("the lease of writer {} is not renewed: {error}", strong.lease.writer());
                    silence.tell(&strong);
                    None
                }
            };
        }
        let pause = strong.between_looks();
        drop(strong);
        sleep(pause).await;
        let Some(strong) = shared.upgrade() else { return };
        let Some(open) = &mut session else { continue };
        match strong.look(open, &silence).await {
            Ok(()) => silence.end(),
            Err(Error::RolledBack(_)) => {}
            Err(error) => {
                tracing::warn!("the lease of writer {} is not renewed: {error}", strong.lease.writer());
                silence.tell(&strong);
                session = None;
            }
        }
    }
}
