//! Setting a gateway up.

use crate::{
    Limits,
    error::StartError,
    event_loop::{self, Stage, Start},
    gate::Pass,
    listen,
    openapi::About,
    running::Running,
    shared::Shared,
};
use serde_json::Value;
use std::{net::SocketAddr, sync::Arc, thread};
use throng::Engine;
use tokio::sync::{mpsc, watch};

/// Most loops of a gateway.
pub const LOOPS_MAX: usize = 64;

/// The HTTP gateway of an engine.
pub struct Gateway {
    engine: Engine,
    address: Result<SocketAddr, StartError>,
    loops: usize,
    limits: Limits,
    routes: Option<axum::Router>,
    about: About,
}

impl Gateway {
    /// A gateway with one loop, on a free port of 127.0.0.1.
    #[must_use]
    pub fn builder(engine: Engine) -> Self {
        Self {
            engine,
            address: Ok(([127, 0, 0, 1], 0).into()),
            loops: 1,
            limits: Limits::default(),
            routes: None,
            about: About::default(),
        }
    }

    /// Listens there: `127.0.0.1:8080`. Port 0 takes any free one. Whoever reaches the address may ask everything, so bind
    /// beyond loopback only behind something that decides who may.
    #[must_use]
    pub fn bind(mut self, address: impl ToString) -> Self {
        let text = address.to_string();
        self.address = text.parse().map_err(|_| StartError::Address { text });
        self
    }

    /// Runs this many loops, each a thread. One is best until it is saturated *and* a core is free.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops;
        self
    }

    /// Sets limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds an app's own routes. Its handlers run on the gateway's loops, so that an `ask` in one executes in place; they
    /// must not block. Request bodies are read before the handler runs, up to their limit. Paths below `/api/`, `/health/`
    /// and `/problems/`, and `/metrics`, `/openapi.json` and `/docs`, are the gateway's.
    #[must_use]
    pub fn routes(mut self, routes: axum::Router) -> Self {
        self.routes = Some(match self.routes {
            None => routes,
            Some(others) => others.merge(routes),
        });
        self
    }

    /// Names the service in its documentation.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>, version: impl Into<String>) -> Self {
        self.about.title = title.into();
        self.about.version = version.into();
        self
    }

    /// Describes the service in its documentation, in Markdown.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.about.description = description.into();
        self
    }

    /// Adds to the OpenAPI document, for an app's own routes: an object merged into it, with `paths`, `components`, `tags`.
    #[must_use]
    pub fn openapi(mut self, fragment: Value) -> Self {
        self.about.fragments.push(fragment);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system gives no threads.
    pub fn start(self) -> Result<Running, StartError> {
        if !(1..=LOOPS_MAX).contains(&self.loops) {
            return Err(StartError::Loops {
                loops: self.loops,
                most: LOOPS_MAX,
            });
        }
        let listeners = listen::listen(self.address?, self.loops)?;
        let address = listeners[0].local_addr().map_err(StartError::Loop)?;
        listen::allow_files(self.limits.connections_max);
        let shared = Arc::new(Shared::new(self.engine, self.limits, &self.about));
        let (stage, watched) = watch::channel(Stage::Serving);
        let (drained, all_drained) = mpsc::channel(1);
        let mut threads = Vec::with_capacity(listeners.len());
        for (number, listener) in listeners.into_iter().enumerate() {
            let start = Start {
                shared: shared.clone(),
                router: self.routes.clone(),
                listener,
                stage: watched.clone(),
                drained: drained.clone(),
            };
            threads.push(spawn(number, start)?);
        }
        tracing::info!("listening on http://{address}");
        Ok(Running::new(address, shared, stage, all_drained, threads))
    }
}

/// Starts a loop's thread; returns once its runtime is there.
fn spawn(number: usize, start: Start) -> Result<thread::JoinHandle<()>, StartError> {
    let (up, is_up) = std::sync::mpsc::channel();
    let run = move || {
        let pass = Arc::<Pass>::default();
        match event_loop::runtime(&pass) {
            Err(error) => drop(up.send(Err(error))),
            Ok(runtime) => {
                drop(up.send(Ok(())));
                if let Err(error) = event_loop::run(&runtime, pass, start) {
                    tracing::error!("a loop of the gateway ended: {error}");
                }
            }
        }
    };
    let thread = thread::Builder::new()
        .name(format!("throng-http-{number}"))
        .spawn(run)
        .map_err(StartError::Loop)?;
    match is_up.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(StartError::Loop(error)),
        Err(_) => Err(StartError::Loop(std::io::Error::other("its thread ended at once"))),
    }
}
