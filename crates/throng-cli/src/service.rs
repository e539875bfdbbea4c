//! An app on the embedded journal, behind a gateway on a port.

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use throng::{
    Engine, Options,
    journal::{self, Journal, MemoryJournal, MemoryStore, Store},
};
use throng_http::{Gateway, Running};

use crate::apps::App;

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
    pub(crate) data: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) sync_delay: Duration,
    pub(crate) loops: usize,
    pub(crate) engine: Options,
}

/// A service that runs.
pub(crate) struct Service {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    /// From opening the journal to an engine that can be asked.
    pub(crate) recovery: Duration,
    running: Running,
}

impl Service {
    /// Opens the journal, starts the engine from it, and listens.
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let begun = Instant::now();
        let (journal, store) = open(settings)?;
        let builder = (settings.app.kinds)(Engine::builder()).options(settings.engine.clone());
        let engine = runtime.block_on(builder.start_shared(journal, store))?;
        let recovery = begun.elapsed();
        let gateway = Gateway::builder(engine.clone())
            .routes((settings.app.routes)(engine.clone()))
            .title(format!("throng {}", settings.app.name), env!("CARGO_PKG_VERSION"))
            .bind(settings.listen)
            .loops(settings.loops)
            .start();
        let running = match gateway {
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
        })
    }

    /// Where it can be asked.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Finishes what is in flight, makes a last checkpoint, and ends.
    pub(crate) fn stop(self) {
        self.running.stop_blocking();
    }
}

fn open(settings: &Settings) -> anyhow::Result<(Arc<dyn Journal>, Arc<dyn Store>)> {
    let durability = match settings.durability {
        Durability::Fsync => journal::Durability::Fsync,
        Durability::Os => journal::Durability::Os,
        Durability::Memory => {
            let journal = MemoryJournal::new();
            return Ok((Arc::new(journal.clone()), Arc::new(MemoryStore::new(journal))));
        }
    };
    let options = throng_log::Options {
        durability,
        sync_delay: settings.sync_delay,
        ..throng_log::Options::default()
    };
    let (log, store) = throng_log::open_embedded(&settings.data, options)
        .with_context(|| format!("cannot open the data directory {}", settings.data.display()))?;
    Ok((log, store))
}
