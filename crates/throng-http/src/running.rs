//! A gateway that runs, and its end.

use crate::{
    StopSignal,
    error::StartError,
    listen,
    scale::Threads,
    server::{Shared, Stage},
};
use serde_json::Value;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, PoisonError, Weak, mpsc::Sender},
    thread,
    time::Duration,
};
use throng::Engine;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};

/// The longest wait of a stop for the access log's last lines.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// Returns a node's newest figures for the consoles of other nodes. Clones share it.
#[derive(Clone)]
pub struct NodeReport(Weak<Shared>);

impl NodeReport {
    /// Returns the newest point of its series, summarized; `null` before the first, and after its end.
    #[must_use]
    pub fn now(&self) -> Value {
        self.0.upgrade().map_or(Value::Null, |shared| shared.console.now())
    }
}

/// A running gateway. Dropping it ends it at once, without the waits of [`stop`](Self::stop).
pub struct Running {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    shared: Arc<Shared>,
    stage: watch::Sender<Stage>,
    drained: mpsc::Receiver<()>,
    /// Sockets that listen once it is opened.
    to_open: Vec<TcpListener>,
    threads: Threads,
    handles: Vec<Handle>,
    /// Dropped, they end the watch over the loops, and over files.
    watches: Vec<Sender<()>>,
}

impl Running {
    pub(crate) fn new(
        (address, admin): (SocketAddr, Option<SocketAddr>),
        shared: Arc<Shared>,
        stage: watch::Sender<Stage>,
        (drained, to_open): (mpsc::Receiver<()>, Vec<TcpListener>),
        (threads, handles): (Threads, Vec<Handle>),
        watches: Vec<Sender<()>>,
    ) -> Self {
        Self {
            address,
            admin,
            shared,
            stage,
            drained,
            to_open,
            threads,
            handles,
            watches,
        }
    }

    /// Accepts connections from now on, if it was [closed](crate::Gateway::closed).
    ///
    /// # Errors
    /// [`PortTaken`](StartError::PortTaken): another program has taken the port meanwhile.
    pub fn open(&mut self) -> Result<(), StartError> {
        let to_open = std::mem::take(&mut self.to_open);
        if to_open.is_empty() {
            return Ok(());
        }
        listen::begin(&to_open)?;
        self.stage.send_replace(Stage::Serving);
        tracing::info!("listening on {}", self.url());
        Ok(())
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the listener for administration, if it is a separate one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The same as a URL, `http://127.0.0.1:8080`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.shared.guard.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the loops it was started with. Tasks spawned there run in their batches, between the requests of connections, and their
    /// records are committed together; they must not block. The loops end once the engine has stopped.
    #[must_use]
    pub fn loops(&self) -> &[Handle] {
        &self.handles
    }

    /// Returns the report for other nodes of its cluster.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        NodeReport(Arc::downgrade(&self.shared))
    }

    /// The engine it serves.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Stops gracefully: accepts no more connections, answers what is in flight within [`Limits::drain`](crate::Limits::drain), then stops
    /// the engine with a last checkpoint.
    pub async fn stop(mut self) {
        self.stage.send_replace(Stage::Draining);
        self.watches.clear();
        // Nothing is ever sent: the channel ends when the last loop has dropped its end.
        while self.drained.recv().await.is_some() {}
        // The loops still run, and so do the committers: the engine's last commits land.
        self.shared.engine.stop().await;
        if let Some(log) = &self.shared.access_log {
            log.flush(FLUSH_WAIT);
        }
        self.stage.send_replace(Stage::Over);
    }

    /// [`stop`](Self::stop) for code that is not async; returns once the loops' threads have ended. It may be called anywhere, even on a
    /// thread of an async runtime, which it blocks.
    pub fn stop_blocking(self) {
        let threads = self.threads.clone();
        // A separate thread: a runtime cannot be entered on a thread that already runs another one.
        let stopping = thread::Builder::new().name("throng-http-stop".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().build() {
                Ok(runtime) => runtime.block_on(self.stop()),
                // Without a runtime it cannot wait. The journal has everything acknowledged.
                Err(error) => tracing::error!("cannot stop gracefully: {error}"),
            }
        });
        match stopping {
            Ok(stopping) => drop(stopping.join()),
            Err(error) => tracing::error!("cannot stop gracefully: {error}"),
        }
        let ended = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in ended {
            drop(thread.join());
        }
    }

    /// Serves until SIGTERM or SIGINT (Ctrl-C), and then [stops](Self::stop) gracefully, with a last checkpoint. A second signal ends the
    /// process at once.
    ///
    /// # Errors
    /// [`io::Error`]: the system does not allow signals to be handled. The gateway is stopped then, too.
    pub async fn run_until_signal(self) -> io::Result<()> {
        let signal = match StopSignal::watch() {
            Ok(signal) => signal.received().await,
            Err(error) => Err(error),
        };
        self.stop().await;
        signal
    }

    /// [`run_until_signal`](Self::run_until_signal) for code that is not async. It may be called anywhere, even on a thread of an async
    /// runtime, which it blocks.
    ///
    /// # Errors
    /// [`io::Error`]: the system does not allow signals to be handled. The gateway is stopped then, too.
    pub fn run_until_signal_blocking(self) -> io::Result<()> {
        let signal = StopSignal::watch().map(StopSignal::wait);
        self.stop_blocking();
        signal
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Over);
    }
}
