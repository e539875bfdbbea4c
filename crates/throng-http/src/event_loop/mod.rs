//! A loop: one thread, one single-threaded runtime, all of its connections.
//!
//! A batch: the loop reads the ready sockets; [admission](crate::admission) admits requests, which execute at once. The engine's committer,
//! woken by the first record of the batch, runs after all of them and commits their records together. Then the answers are sent.

mod accept;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod sent;
mod serve;
mod shared;
mod socket;

use crate::{
    admission::WaitTimes,
    connection::{AcceptedBy, Bounds, Connections, Verdict},
    http1::{self, Intake},
    server::{Server, Shared, Stage},
};
use shared::{EventLoop, Protocols, Refusals};
use std::{rc::Rc, sync::Arc, time::Instant};
use tokio::{runtime, sync::watch};

/// Looks for connections that wait too long for their clients, for ever.
async fn sweep(server: &Server, connections: &Connections) {
    let (bounds, metrics) = (Bounds::new(server.limits()), server.metrics());
    let mut every = tokio::time::interval(server.limits().sweep_every());
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        every.tick().await;
        // A loop that is always busy never parks and begins no batch, but it still looks at its sockets.
        server.admission.looked(std::mem::replace(&mut before, Instant::now()));
        server.date.look();
        server
            .shared()
            .refused
            .tell(Instant::now(), server.limits().connections_max);
        connections.sweep(&bounds, |limit| metrics.limited(limit));
    }
}

/// The parts that a loop starts with.
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    pub(crate) router: Option<axum::Router>,
    pub(crate) listener: std::net::TcpListener,
    /// The listener for administration, if this loop serves it.
    pub(crate) admin: Option<std::net::TcpListener>,
    pub(crate) stage: watch::Receiver<Stage>,
    /// Dropped when the loop has drained.
    pub(crate) drained: tokio::sync::mpsc::Sender<()>,
}

/// Builds a loop's runtime.
pub(crate) fn runtime(pass: &Arc<WaitTimes>) -> std::io::Result<runtime::LocalRuntime> {
    let (parks, wakes) = (pass.clone(), pass.clone());
    runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || parks.parks(Instant::now()))
        .on_thread_unpark(move || wakes.wakes(Instant::now()))
        .build_local(runtime::LocalOptions::default())
}

fn accepted_by(listener: &tokio::net::TcpListener, is_admin: bool) -> std::io::Result<AcceptedBy> {
    Ok(AcceptedBy {
        is_admin,
        is_loopback: listener.local_addr()?.ip().is_loopback(),
    })
}

/// Ends the process if this task panics: nothing works without it, and recovery is the safe path.
fn ends_the_process(task: tokio::task::JoinHandle<()>, name: &'static str) {
    tokio::task::spawn_local(async move {
        if task.await.is_err_and(|error| error.is_panic()) {
            tracing::error!("{name} panicked; the process ends here, and recovery is the safe path");
            std::process::abort();
        }
    });
}

/// Runs a loop until the gateway is over.
pub(crate) fn run(runtime: &runtime::LocalRuntime, pass: Arc<WaitTimes>, start: Start) -> std::io::Result<()> {
    runtime.block_on(async {
        let admin = start.admin.map(tokio::net::TcpListener::from_std).transpose()?;
        let Start {
            shared,
            router,
            listener,
            stage,
            drained,
            ..
        } = start;
        let server = Rc::new(Server::new(shared, pass, router, stage));
        let event_loop = Rc::new(EventLoop {
            protocols: Protocols::new(server.limits()),
            intake: Rc::new(Intake::default()),
            connections: Rc::default(),
            refusals: Refusals::default(),
            server,
        });
        // The first of all tasks, so that its waker is known before there is anything to commit.
        let committer = tokio::task::spawn_local(event_loop.server.shared().driver.committer());
        ends_the_process(committer, "the engine's committer");
        ends_the_process(
            tokio::task::spawn_local({
                let (server, intake, event_loop) =
                    (event_loop.server.clone(), event_loop.intake.clone(), event_loop.clone());
                http1::run(server, intake, move |departure| {
                    serve::take_over(event_loop.clone(), departure);
                })
            }),
            "the gateway's loop",
        );
        tokio::task::spawn_local({
            let event_loop = event_loop.clone();
            async move { sweep(&event_loop.server, &event_loop.connections).await }
        });
        tokio::task::spawn_local({
            let event_loop = event_loop.clone();
            async move {
                let looked = || event_loop.server.admission.looked(Instant::now());
                event_loop.connections.watch_looks(looked).await
            }
        });
        if let Some(admin) = admin {
            let accepted_by = accepted_by(&admin, true)?;
            tokio::task::spawn_local(accept::accept(event_loop.clone(), admin, accepted_by));
        }
        event_loop.server.opens().await;
        if !event_loop.server.is_draining() {
            // Not earlier: a socket that does not listen yet would look like a closed one.
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let accepted_by = accepted_by(&listener, false)?;
            accept::accept(event_loop.clone(), listener, accepted_by).await;
        }
        event_loop.connections.condemn(Verdict::Finish);
        let drain = event_loop.server.limits().drain;
        if tokio::time::timeout(drain, event_loop.connections.empty())
            .await
            .is_err()
        {
            tracing::warn!(
                "requests were still in flight {drain:?} after the stop began; their connections are closed"
            );
            event_loop.connections.condemn(Verdict::Drop);
            event_loop.connections.empty().await;
        }
        drop(drained);
        event_loop.server.is_over().await;
        Ok(())
    })
}
