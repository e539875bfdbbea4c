//! An app on its journal, behind a gateway on a port.

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};
use throng::{
    Engine, Options,
    journal::{Journal, Position},
};
use throng_http::{Gateway, Running};

use crate::{
    apps::App,
    place::{Opened, Opening, Place},
};

/// What an acknowledged command survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// Power loss: every commit is synced to the disk before it is answered.
    Fsync,
    /// The end of the process, not power loss: commits are handed to the operating system.
    Os,
    /// Nothing: all is lost with the process.
    Memory,
}

/// How a service is run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) app: &'static App,
    pub(crate) listen: SocketAddr,
    pub(crate) place: Place,
    pub(crate) durability: Durability,
    pub(crate) sync_delay: Duration,
    /// A loss of durable commits that is accepted.
    pub(crate) accept_loss: Option<Position>,
    /// How many; without it, one and more under load.
    pub(crate) loops: Option<usize>,
    /// Who shows it may administrate from anywhere.
    pub(crate) admin_token: Option<String>,
    pub(crate) engine: Options,
}

/// How long a journal may take to be let go after its engine has stopped.
const RELEASE: Duration = Duration::from_secs(10);

/// A service that runs.
pub(crate) struct Service {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    /// From opening the journal to an engine that can be asked.
    pub(crate) recovery: Duration,
    running: Running,
    journal: Weak<dyn Journal>,
}

impl Service {
    /// Opens the journal, starts the engine from it, and listens.
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let begun = Instant::now();
        let Opened { journal, store, views } = settings.place.open(&Opening {
            durability: settings.durability,
            sync_delay: settings.sync_delay,
            accept_loss: settings.accept_loss,
            has_projections: settings.app.has_projections,
        })?;
        let released = Arc::downgrade(&journal);
        let builder = (settings.app.kinds)(Engine::builder())
            .options(settings.engine.clone())
            .views(views);
        let engine = runtime.block_on(builder.start_shared(journal, store))?;
        let recovery = begun.elapsed();
        let mut gateway = Gateway::builder(engine.clone())
            .routes((settings.app.routes)(engine.clone()))
            .title(format!("throng {}", settings.app.name), env!("CARGO_PKG_VERSION"))
            .bind(settings.listen);
        if let Some(described) = (settings.app.describe)() {
            gateway = gateway.describe(described);
        }
        if let Some(loops) = settings.loops {
            gateway = gateway.loops(loops);
        }
        if let Some(token) = &settings.admin_token {
            gateway = gateway.admin_token(token);
        }
        let running = match gateway.start() {
            Ok(running) => running,
            Err(error) => {
                runtime.block_on(engine.stop());
                bail!(error);
            }
        };
        Ok(Self {
            address: running.address(),
            engine,
            recovery,
            running,
            journal: released,
        })
    }

    /// Where it can be asked.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Finishes what is in flight, makes a last checkpoint, and ends. The data directory is free then.
    pub(crate) fn stop(self) {
        self.running.stop_blocking();
        drop(self.engine);
        released(&self.journal);
    }
}

/// Waits until a stopped engine's last task has let its journal go, and with it the directory's lock.
pub(crate) fn released(journal: &Weak<dyn Journal>) {
    let begun = Instant::now();
    while journal.strong_count() > 0 && begun.elapsed() < RELEASE {
        thread::sleep(Duration::from_millis(1));
    }
}
