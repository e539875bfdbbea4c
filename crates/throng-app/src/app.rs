//! A service as a value: its kinds, its routes, its settings.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use throng::{
    Builder, Engine, MakesCalls,
    model::{Actor, Entity, OnCallOutcome, OnOutcome, Outside, Query},
    projection::{Projection, Sink},
};
use throng_http::{Audit, Described, Gateway};

type Routes = Box<dyn FnOnce(Engine) -> axum::Router + Send>;
type Setting<T> = Box<dyn FnOnce(T) -> T + Send>;
type Role = fn() -> anyhow::Result<App>;
pub(crate) type Tool = fn(&clap::ArgMatches) -> anyhow::Result<ExitCode>;
/// Ends a task that runs beside a gateway.
pub type End = Box<dyn FnOnce() + Send>;
pub(crate) type Beside = Box<dyn FnOnce(&Engine) -> anyhow::Result<End> + Send>;

/// A service: its kinds, its own routes, its settings. [`run`](Self::run) makes a program of it.
pub struct App {
    name: &'static str,
    version: &'static str,
    builder: Builder,
    routes: Option<Routes>,
    described: Option<Described>,
    gateway: Vec<Setting<Gateway>>,
    defaults: fn() -> anyhow::Result<Defaults>,
    beside: Vec<Beside>,
    roles: Vec<(&'static str, Role)>,
    tools: Vec<(clap::Command, Tool)>,
}

/// Settings that hold unless the command line says otherwise, for a service that reads environment variables of its own.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The location of the journal, as `--journal` takes it.
    pub journal: Option<String>,
    /// Runs the projections or not.
    pub projections: Option<bool>,
}

impl App {
    /// Returns an empty service of this name: of its program, its directory below `data/`, and its documentation.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            version: "0",
            builder: Engine::builder(),
            routes: None,
            described: None,
            gateway: Vec::new(),
            defaults: || Ok(Defaults::default()),
            beside: Vec::new(),
            roles: Vec::new(),
            tools: Vec::new(),
        }
    }

    /// Sets its version, for `--version` and the documentation: `env!("CARGO_PKG_VERSION")`.
    #[must_use]
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// Gives it a kind of entity, as [`Builder::with`].
    #[must_use]
    pub fn with<E: Entity>(self) -> Self {
        self.engine(Builder::with::<E>)
    }

    /// Gives it a kind of actor, as [`Builder::actor`].
    #[must_use]
    pub fn actor<A: Actor>(self) -> Self {
        self.engine(Builder::actor::<A>)
    }

    /// Adds a query of a kind, as [`Builder::query`].
    #[must_use]
    pub fn query<E: Entity, Q: Query<E>>(self) -> Self {
        self.engine(Builder::query::<E, Q>)
    }

    /// Has a kind take the outcomes of its requests to another, as [`Builder::on_outcome`].
    #[must_use]
    pub fn on_outcome<E: OnOutcome<T>, T: Entity>(self) -> Self {
        self.engine(Builder::on_outcome::<E, T>)
    }

    /// Has a kind call an outside provider by this worker, as [`Builder::outside`].
    #[must_use]
    pub fn outside<E: OnCallOutcome<W>, W: Outside>(self, worker: impl MakesCalls<W>) -> Self {
        self.engine(|builder| builder.outside::<E, W>(worker))
    }

    /// Keeps a read model, as [`Builder::projection`].
    #[must_use]
    pub fn projection<P: Projection>(self, projection: P) -> Self {
        self.engine(|builder| builder.projection(projection))
    }

    /// Carries events to another system, as [`Builder::sink`].
    #[must_use]
    pub fn sink<S: Sink>(self, sink: S) -> Self {
        self.engine(|builder| builder.sink(sink))
    }

    /// Changes other settings of the engine.
    #[must_use]
    pub fn engine(mut self, set: impl FnOnce(Builder) -> Builder) -> Self {
        self.builder = set(self.builder);
        self
    }

    /// Adds routes of its own beside the generic ones, as [`Gateway::routes`]. The router is that of [`axum`].
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use throng_app::{
    ///     App, Engine, EntityEvent, Follow,
    ///     axum::{Router, extract::State, routing::get},
    ///     http::{Described, LiveEvents, Problem, Route},
    /// };
    ///
    /// /// Tells everybody that something was sold, and not to whom.
    /// async fn sales(State(engine): State<Engine>) -> Result<LiveEvents, Problem> {
    ///     let kind = engine.kind("order").unwrap_or_default();
    ///     let from = engine.place(false).await?;
    ///     let show = |event: &EntityEvent| match &*event.event.name {
    ///         "confirmed" => ControlFlow::Continue(Some(r#"{"sold":1}"#.to_owned())),
    ///         _ => ControlFlow::Continue(None),
    ///     };
    ///     LiveEvents::follow(&engine, Follow::Kind { kind, from }, show).await
    /// }
    ///
    /// let app = App::new("tickets")
    ///     .routes(|engine| Router::new().route("/sales", get(sales)).with_state(engine))
    ///     .describe(Described::new("sales", "What is sold").route(
    ///         Route::get("/sales", "Tells of each sale").streams::<serde_json::Value>("A sale each"),
    ///     ));
    /// # drop(app);
    /// ```
    #[must_use]
    pub fn routes(mut self, routes: impl FnOnce(Engine) -> axum::Router + Send + 'static) -> Self {
        self.routes = Some(Box::new(routes));
        self
    }

    /// Describes its own routes, as [`Gateway::describe`].
    #[must_use]
    pub fn describe(mut self, described: Described) -> Self {
        self.described = Some(described);
        self
    }

    /// Changes other settings of the gateway: limits, origins, a description.
    #[must_use]
    pub fn gateway(mut self, set: impl FnOnce(Gateway) -> Gateway + Send + 'static) -> Self {
        self.gateway.push(Box::new(set));
        self
    }

    /// Reads environment variables of the app's own when the service starts.
    #[must_use]
    pub fn defaults(mut self, read: fn() -> anyhow::Result<Defaults>) -> Self {
        self.defaults = read;
        self
    }

    /// Starts a task beside the gateway once the engine runs, for example the consumer of a broker's queue. The returned function ends it;
    /// it is called before the engine stops.
    #[must_use]
    pub fn background(mut self, start: impl FnOnce(&Engine) -> anyhow::Result<End> + Send + 'static) -> Self {
        self.beside.push(Box::new(start));
        self
    }

    /// Adds another arrangement of the service, which `serve --role NAME` runs instead of this one: for example a server in front of a
    /// broker, or
    /// the consumer of its queue.
    #[must_use]
    pub fn role(mut self, name: &'static str, app: fn() -> anyhow::Result<Self>) -> Self {
        self.roles.push((name, app));
        self
    }

    /// Adds a command of the app's own to those of its program, for example a tool for its queues.
    #[must_use]
    pub fn tool(mut self, command: clap::Command, run: fn(&clap::ArgMatches) -> anyhow::Result<ExitCode>) -> Self {
        self.tools.push((command, run));
        self
    }

    /// Returns the app's own commands.
    pub(crate) fn tools(&self) -> &[(clap::Command, Tool)] {
        &self.tools
    }

    /// Returns the service in a role, or itself without one.
    ///
    /// # Errors
    /// There is no such role, or the role's function returned an error, which is passed on.
    pub fn in_role(self, role: Option<&str>) -> anyhow::Result<Self> {
        let Some(role) = role else { return Ok(self) };
        match self.roles.iter().find(|(name, _)| *name == role) {
            Some((_, app)) => app(),
            None => {
                let names: Vec<&str> = self.roles.iter().map(|(name, _)| *name).collect();
                anyhow::bail!("{} has no role {role:?}; there are: {}", self.name, names.join(", "))
            }
        }
    }

    /// Removes and returns the functions that start tasks beside the gateway.
    pub(crate) fn take_beside(&mut self) -> Vec<Beside> {
        std::mem::take(&mut self.beside)
    }

    /// Returns its engine, not yet started: for tests and simulations.
    #[must_use]
    pub fn into_builder(mut self) -> Builder {
        self.take_builder()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn version_text(&self) -> &'static str {
        self.version
    }

    pub(crate) fn read_defaults(&self) -> anyhow::Result<Defaults> {
        (self.defaults)()
    }

    /// Returns the directory of its journal, unless another place is named.
    pub(crate) fn default_place(&self) -> PathBuf {
        Path::new("data").join(self.name)
    }

    /// Removes and returns the engine's part, to be started; the gateway's part stays. A service that stores data records its operator
    /// actions, too.
    pub(crate) fn take_builder(&mut self) -> Builder {
        let builder = std::mem::take(&mut self.builder);
        match builder.has_entities() {
            true => builder.with::<Audit>(),
            false => builder,
        }
    }

    /// Returns the gateway of its engine, complete but for its address.
    pub(crate) fn into_gateway(self, engine: Engine) -> Gateway {
        let mut gateway = Gateway::builder(engine.clone()).title(self.name, self.version);
        if let Some(routes) = self.routes {
            gateway = gateway.routes(routes(engine));
        }
        if let Some(described) = self.described {
            gateway = gateway.describe(described);
        }
        self.gateway.into_iter().fold(gateway, |gateway, set| set(gateway))
    }
}
