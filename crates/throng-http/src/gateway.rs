//! Setting a gateway up.

use crate::{
    AccessLog, LOOPS_MAX, Limits, Problem,
    admission::WaitTimes,
    audit,
    caller::{Access, Role},
    checks::Checks,
    console,
    console_state::{About as ConsoleAbout, Cluster, OwnerOf, OwnersReport},
    error::StartError,
    event_loop::{self, Start},
    guard::{Jwt, LOOK_EVERY, OtherFiles, Sources, Tls, expiry::Reminder},
    listen,
    openapi::{About, Described},
    running::Running,
    scale::{self, Sampler, Threads},
    server::{ADMIN_CONNECTIONS_MAX, Shared, Stage, Trust, connections_in_memory},
};
use http::HeaderName;
use jiff::Timestamp;
use serde_json::Value;
use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, PoisonError, atomic::Ordering, mpsc::RecvTimeoutError},
    thread,
    time::Duration,
};
use throng::{
    Engine,
    journal::{ShardId, StoredEvent},
    services::health::Check,
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};

/// The longest time for which a start waits for keys to be fetched.
const FETCH_WAIT: Duration = Duration::from_secs(6);

/// The HTTP gateway of an engine.
pub struct Gateway {
    engine: Engine,
    address: Result<SocketAddr, StartError>,
    admin: Option<SocketAddr>,
    sources: Sources,
    /// The number of loops at the start, and the most.
    loops: (usize, usize),
    limits: Limits,
    routes: Option<axum::Router>,
    about: About,
    place: Option<(&'static str, String)>,
    cluster: Option<Box<dyn Cluster>>,
    owners: Option<OwnersReport>,
    owner: Option<OwnerOf>,
    trust: Trust,
    checks: Checks,
    access_log: Option<AccessLog>,
    is_closed: bool,
}

impl Gateway {
    /// Returns a gateway on a free port of 127.0.0.1, with one loop, and more while it is saturated and cores are free.
    #[must_use]
    pub fn builder(engine: Engine) -> Self {
        let cores = thread::available_parallelism();
        Self {
            engine,
            address: Ok(([127, 0, 0, 1], 0).into()),
            admin: None,
            sources: Sources::default(),
            loops: (1, cores.map_or(1, |cores| scale::most(cores.get()))),
            limits: Limits::default(),
            routes: None,
            about: About::default(),
            place: None,
            cluster: None,
            owners: None,
            owner: None,
            trust: Trust::default(),
            checks: Checks::default(),
            access_log: None,
            is_closed: false,
        }
    }

    /// Sets the address to listen on: `127.0.0.1:8080`. Port 0 takes any free one. Everybody who reaches the address may send requests, so
    /// bind beyond loopback only with access control.
    #[must_use]
    pub fn bind(mut self, address: impl ToString) -> Self {
        let text = address.to_string();
        self.address = text.parse().map_err(|_| StartError::Address { text });
        self
    }

    /// Runs exactly this many loops, each a thread. One is best until it is saturated *and* a core is free.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = (loops, loops);
        self
    }

    /// Begins with one loop and starts others for new connections, up to this many: one whenever all loops were saturated for two seconds
    /// while a core was free. The default is the number of cores less one.
    #[must_use]
    pub fn loops_up_to(mut self, most: usize) -> Self {
        self.loops = (1, most);
        self
    }

    /// Sets the limits of connections, bytes and waits; without it, the defaults of [`Limits`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Changes some limits.
    #[must_use]
    pub fn adjust_limits(mut self, set: impl FnOnce(&mut Limits)) -> Self {
        set(&mut self.limits);
        self
    }

    /// Adds an app's own routes. Its handlers run on the gateway's loops, so that an `ask` in one executes at once; they must not block.
    /// Request bodies are read before the handler runs, up to their limit. Paths below `/api/` (except [`app_name`](Self::app_name)s),
    /// `/admin/`, `/health/` and `/problems/`, and `/metrics`, `/openapi.json` and `/docs`, are the gateway's.
    #[must_use]
    pub fn routes(mut self, routes: axum::Router) -> Self {
        self.routes = Some(match self.routes {
            None => routes,
            Some(others) => others.merge(routes),
        });
        self
    }

    /// Makes holders of this token (`Authorization: Bearer …`) administrators, from anywhere. Without it and without an
    /// [`administrator`](Self::administrator), `/admin/` answers only programs on this machine, through a listener bound to loopback and
    /// not through a proxy.
    #[must_use]
    pub fn admin_token(mut self, token: impl Into<String>) -> Self {
        self.trust.guard.roles.token = Some(token.into());
        self
    }

    /// Makes the caller of this name an [`Owner`](Role::Owner) in administration, whatever its credentials.
    #[must_use]
    pub fn administrator(self, name: impl Into<String>) -> Self {
        self.admin_role(name, Role::Owner)
    }

    /// Gives the caller of this name a role in administration, whatever its credentials.
    #[must_use]
    pub fn admin_role(mut self, name: impl Into<String>, role: Role) -> Self {
        self.trust.guard.roles.callers.push((name.into(), role));
        self
    }

    /// Gives roles in administration by the tokens of a file with lines `ROLE NAME HASH`. These tokens are for administration alone.
    #[must_use]
    pub fn admin_tokens(mut self, file: impl Into<PathBuf>) -> Self {
        self.sources.admin_tokens = Some(file.into());
        self
    }

    /// Gives roles in administration by a claim of JSON web tokens: the name of a role, or a list of names. A dot leads into an object, as
    /// in `realm_access.roles`.
    #[must_use]
    pub fn admin_claim(mut self, claim: impl Into<String>) -> Self {
        self.trust.guard.roles.claim = Some(claim.into());
        self
    }

    /// Serves `/admin/` and `/metrics` at this address and no longer at the service's. Best on loopback: bound beyond it without a token or
    /// an administrator, both are closed.
    #[must_use]
    pub fn admin(mut self, address: SocketAddr) -> Self {
        self.admin = Some(address);
        self
    }

    /// Authenticates callers by the tokens of this file: lines of `NAME HASH [UNTIL]`, as [`make_token`](crate::make_token) makes them. It
    /// is read again when it changes. Requests without a valid token get 401; health, `/docs` and `/openapi.json` are open to everybody.
    #[must_use]
    pub fn tokens(mut self, file: impl Into<PathBuf>) -> Self {
        self.sources.tokens = Some(file.into());
        self
    }

    /// Accepts JSON web tokens of an issuer. [`tokens`](Self::tokens) may be accepted as well.
    #[must_use]
    pub fn jwt(mut self, jwt: Jwt) -> Self {
        self.sources.jwt = Some(jwt);
        self
    }

    /// Uses only TLS with clients; on a listener for administration only if others than this machine can reach it. With a client CA, a
    /// client's certificate names the caller.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.sources.tls = Some(tls);
        self
    }

    /// Reads further files at the start and whenever one of them changes, and passes their contents to `read`. A file that cannot be used
    /// is reported like those of [`tokens`](Self::tokens): the start fails, or later the log and `/health/ready` say so. A certificate in
    /// them (PEM) is reported from 30 days before it expires.
    #[must_use]
    pub fn watch_files(
        mut self,
        paths: Vec<PathBuf>,
        read: impl Fn(&[Vec<u8>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let read = Box::new(read);
        self.sources.others.push(OtherFiles { paths, read });
        self
    }

    /// Admits requests without credentials as anonymous; [`authorize`](Self::authorize), entities and the app's handlers decide what they
    /// may do. Wrong credentials are refused nevertheless.
    #[must_use]
    pub fn anonymous(mut self) -> Self {
        self.trust.guard.lets_anonymous = true;
        self
    }

    /// Lets pages of this origin (`https://app.example`) send requests, besides its own; `*` allows all. They cannot administrate. A
    /// browser lets pages of any site send requests anywhere, and names the page's origin in them; those of other origins are refused with
    /// 403.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.trust.guard.names.origins.push(origin.into());
        self
    }

    /// Sets the origin (`https://console.example`) of a proxy in front of the console. Its pages may administrate, and its host is a name
    /// of the listener for administration. Pages of any other origin but that listener's own may not, whatever [`origin`](Self::origin)
    /// allows.
    #[must_use]
    pub fn admin_origin(mut self, origin: impl Into<String>) -> Self {
        self.trust.guard.names.admin_origins.push(origin.into());
        self
    }

    /// Adds a name of this service, as clients write it in a URL, without a port; `*` is any. While the service is bound to loopback, it
    /// accepts `localhost`, an address, and the names given here; a request for any other host is refused with 421. So a page whose own
    /// host name was pointed to this machine cannot use it. Bound beyond loopback, it accepts any name until one is given.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.trust.guard.names.hosts.push(name.into());
        self
    }

    /// Removes the generic routes and the documentation of a kind. Only the app's own routes, entities and timers can use it.
    #[must_use]
    pub fn without_routes(mut self, kind: impl Into<String>) -> Self {
        self.trust.hidden.push(kind.into());
        self
    }

    /// Lets the app's routes use this name directly below `/api/`, for an established interface: with `ui-context`, `/api/ui-context` is
    /// the app's, and no kind's list.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.trust.app_names.push(name.into());
        self
    }

    /// Sets a hook that decides about each access by the generic routes and by WebSocket, given the caller, kind, entity and command. Its
    /// result is the answer: [`Problem::unauthorized`] or [`Problem::forbidden`] with a reason. It runs on the gateway's loops for each
    /// request, and must not block.
    ///
    /// ```
    /// # use throng_http::{Access, Action, Gateway, Problem};
    /// # fn set(gateway: Gateway) -> Gateway {
    /// gateway.authorize(|access: &Access<'_>| match access.action {
    ///     Action::List => Err(Problem::forbidden("Nobody lists all accounts.").into()),
    ///     _ if access.id == access.caller.map(|caller| caller.name()) => Ok(()),
    ///     _ => Err(Problem::forbidden("Everybody has their own account, and no other.").into()),
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn authorize(mut self, hook: impl Fn(&Access<'_>) -> Result<(), Box<Problem>> + Send + Sync + 'static) -> Self {
        self.trust.guard.authorize = Some(Box::new(hook));
        self
    }

    /// Sets a hook that decides about each event before a caller gets it: in a page, a live stream or a subscription. Refused events are
    /// left out, so the numbers of the events that a caller gets have gaps. The access names the entity. It runs on the gateway's loops for
    /// each event and each reader, and must not block. [`LiveEvents`](crate::LiveEvents) and the console do not use it.
    ///
    /// ```
    /// # use throng_http::Gateway;
    /// # fn set(gateway: Gateway) -> Gateway {
    /// gateway.filter_events(|access, event| {
    ///     let is_own = access.caller.is_some_and(|caller| access.id == Some(caller.name()));
    ///     is_own || &*event.name != "card-charged"
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn filter_events(
        mut self,
        is_shown: impl Fn(&Access<'_>, &StoredEvent) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.trust.guard.filter_events = Some(Arc::new(is_shown));
        self
    }

    /// Distinguishes clients by the last element of this header instead of their address, for fairness under load: behind a proxy that sets
    /// `X-Forwarded-For`, or by an API key. Use it only if every request passes through a program that sets it. Otherwise a client could
    /// pose as many.
    #[must_use]
    pub fn client_header(mut self, name: HeaderName) -> Self {
        self.trust.client_header = Some(name);
        self
    }

    /// Accepts [`client_header`](Self::client_header) only from this address, a proxy's; other peers count by their address. By default it
    /// is accepted from everybody.
    #[must_use]
    pub fn trusted_proxy(mut self, address: IpAddr) -> Self {
        self.trust.proxies.push(address.to_canonical());
        self
    }

    /// Opens this path of the app's own routes to everybody, like `/health/live`, even if callers have to be authenticated.
    #[must_use]
    pub fn open_route(mut self, path: impl Into<String>) -> Self {
        self.trust.open_routes.push(path.into());
        self
    }

    /// Sets a function that tells which parts of a path, decoded, are secrets. The access log shows `*` in their place, because a path
    /// alone may be enough to use an app's route.
    #[must_use]
    pub fn secret_parts(mut self, is_secret: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.trust.is_secret = Some(Box::new(is_secret));
        self
    }

    /// Writes a line of JSON for each request, or for one in so many: time of the answer, the client's address (from
    /// [`client_header`](Self::client_header), if that is an address), protocol, method, path without the query, caller, status, the
    /// problem's type, and microseconds from its arrival to its answer. Lines that cannot be written in time are dropped and counted
    /// (`throng_http_access_log_dropped_total`).
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Names the service in its documentation.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>, version: impl Into<String>) -> Self {
        self.about.title = title.into();
        self.about.version = version.into();
        self
    }

    /// Sets the journal's medium (`directory`, `postgresql`, `object-storage` or `memory`) and location, for administrators.
    #[must_use]
    pub fn journal_place(mut self, medium: &'static str, place: impl Into<String>) -> Self {
        self.place = Some((medium, place.into()));
        self
    }

    /// Sets the cluster of this node, for administrators: `GET /admin/cluster` and further routes (see `docs/console-api.md`).
    #[must_use]
    pub fn cluster(mut self, cluster: impl Cluster) -> Self {
        self.cluster = Some(Box::new(cluster));
        self
    }

    /// Sets the answer of `GET /cluster`, from which clients learn which node owns which shards. It is open to callers of the service's own
    /// routes.
    #[must_use]
    pub fn owners(mut self, owners: impl Fn() -> serde_json::Value + Send + Sync + 'static) -> Self {
        self.owners = Some(Box::new(owners));
        self
    }

    /// Sets the function that returns the URL of a shard's owner, for the header `Throng-Owner` in each answer of an entity. It runs on the
    /// gateway's loops and must not block.
    #[must_use]
    pub fn tell_owner(mut self, owner: impl Fn(ShardId) -> Option<String> + Send + Sync + 'static) -> Self {
        self.owner = Some(Box::new(owner));
        self
    }

    /// Describes the service in its documentation, in Markdown.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.about.description = description.into();
        self
    }

    /// Describes an app's own routes in the OpenAPI document and on `/docs`, by the types of their handlers.
    #[must_use]
    pub fn describe(mut self, described: Described) -> Self {
        self.about.described.push(described);
        self
    }

    /// Sets a function that returns checks of the service's parts that are not registered with [`Engine::checks`]. It is called for each
    /// request to `/health/ready` or `/metrics`. The service is not ready while a check fails. It runs on the gateway's loops and must not
    /// block.
    #[must_use]
    pub fn health(mut self, checks: impl Fn() -> Vec<Check> + Send + Sync + 'static) -> Self {
        self.checks.add(checks);
        self
    }

    /// Adds an object to the OpenAPI document that [`describe`](Self::describe) cannot produce, with `paths`, `components`, `tags`.
    #[must_use]
    pub fn openapi(mut self, fragment: Value) -> Self {
        self.about.fragments.push(fragment);
        self
    }

    /// Reserves the port, but refuses connections until it is [opened](Running::open): for a service that cannot serve yet.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.is_closed = true;
        self
    }

    /// Starts the gateway.
    ///
    /// # Errors
    /// [`StartError`]: the address cannot be listened on, a file cannot be used, or the system has no threads left.
    pub fn start(self) -> Result<Running, StartError> {
        self.start_watched(scale::LOOK_EVERY, None)
    }

    /// Starts the gateway; a test supplies the observation of the machine.
    fn start_watched(mut self, look_every: Duration, seen: Option<scale::Sample>) -> Result<Running, StartError> {
        let (loops, most) = self.loops;
        for count in [loops, most] {
            if !(1..=LOOPS_MAX).contains(&count) {
                return Err(StartError::Loops {
                    loops: count,
                    most: LOOPS_MAX,
                });
            }
        }
        let listeners = listen::bind(self.address?, loops, most > loops)?;
        let address = listeners[0].local_addr().map_err(StartError::Loop)?;
        let limits = &mut self.limits;
        if limits.connections_max == Limits::default().connections_max {
            limits.connections_max = connections_in_memory(self.engine.driver().budget());
        }
        let others = ADMIN_CONNECTIONS_MAX + limits.spare_connections_max;
        limits.connections_max = listen::allow_files(limits.connections_max, others)?;
        let admin = self.admin.map(|admin| listen::listen(admin, 1, false)).transpose();
        let admin = admin.map_err(|error| match error {
            StartError::PortTaken { address } => StartError::AdminPortTaken { address },
            error => error,
        })?;
        let mut admin = admin.and_then(|mut listeners| listeners.pop());
        let admin_address = admin.as_ref().and_then(|admin| admin.local_addr().ok());
        if audit::is_kept(&self.engine) {
            self.trust.hidden.push(audit::KIND.into());
        }
        let guard = &mut self.trust.guard;
        guard.has_admin_listener = admin.is_some();
        guard.read(self.sources)?;
        self.about.credentials = guard.credentials();
        self.about.has_admin_listener = guard.has_admin_listener;
        if !address.ip().is_loopback() && !guard.authenticates() {
            warn_of_everybody(address);
        }
        let console = ConsoleAbout {
            title: self.about.title.clone(),
            version: self.about.version.clone(),
            place: self.place,
            loops_max: most,
            cluster: self.cluster,
            url: format!(
                "{}://{address}",
                if self.trust.guard.tls.is_some() {
                    "https"
                } else {
                    "http"
                }
            ),
            owners: self.owners,
            owner: self.owner,
        };
        let shared = Arc::new(Shared::new(
            self.engine,
            self.limits,
            &self.about,
            self.trust,
            self.checks,
            self.access_log.as_ref(),
            console,
        )?);
        let (stage, stages) = watch::channel(Stage::Closed);
        let to_open: Result<Vec<_>, _> = listeners.iter().map(TcpListener::try_clone).collect();
        let (drained, all_drained) = mpsc::channel(1);
        let routes = self.routes;
        let begin = {
            let shared = shared.clone();
            move |number: usize, listener, admin, pass: Arc<WaitTimes>| {
                let start = Start {
                    shared: shared.clone(),
                    router: routes.clone(),
                    listener,
                    admin,
                    stage: stages.clone(),
                    drained: drained.clone(),
                };
                shared.console.watch(pass.clone());
                let started = spawn(number, pass, start)?;
                shared.metrics.loops.inc();
                Ok::<_, StartError>(started)
            }
        };
        let threads = Threads::default();
        let mut handles = Vec::with_capacity(loops);
        let mut sampler = Sampler::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let pass = Arc::<WaitTimes>::default();
            sampler.add(pass.clone());
            let (thread, handle) = begin(number, listener, admin.take(), pass)?;
            handles.push(handle);
            threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        let (over, is_over) = std::sync::mpsc::channel();
        if most > loops {
            let threads = threads.clone();
            let sampler = RefCell::new(sampler);
            let watching = move || {
                let sample = || seen.unwrap_or_else(|| sampler.borrow_mut().sample());
                let start = |number| {
                    let pass = Arc::<WaitTimes>::default();
                    let (thread, _) = begin(number, listen::another(address)?, None, pass.clone())?;
                    sampler.borrow_mut().add(pass);
                    Ok(thread)
                };
                scale::watch(&is_over, look_every, most, &threads, sample, start);
            };
            let named = thread::Builder::new().name("throng-http-watch".into());
            drop(named.spawn(watching).map_err(StartError::Loop)?);
        }
        let (files_over, is_files_over) = std::sync::mpsc::channel();
        if !shared.guard.watched.is_empty() {
            look_after_files(&shared, is_files_over)?;
        }
        let (points_over, is_points_over) = std::sync::mpsc::channel();
        console::watch(Arc::downgrade(&shared), is_points_over).map_err(StartError::Loop)?;
        if let Some(admin) = admin_address {
            tracing::info!("administration and metrics on http://{admin}");
        }
        let watches = vec![over, files_over, points_over];
        let mut running = Running::new(
            (address, admin_address),
            shared,
            stage,
            (all_drained, to_open.map_err(StartError::Loop)?),
            (threads, handles),
            watches,
        );
        if !self.is_closed {
            running.open()?;
        }
        Ok(running)
    }
}

fn warn_of_everybody(address: SocketAddr) {
    tracing::warn!(
        "NO AUTHENTICATION on {address}, which others than this machine can reach: WHOEVER REACHES IT may ask all that is public, and read all; \
         administration is closed unless it has its own listener or a token. Give it tokens, JWT keys or a client CA (docs/security.md)"
    );
}

/// Reads files again when they change, until the gateway is over.
fn look_after_files(shared: &Arc<Shared>, is_over: std::sync::mpsc::Receiver<()>) -> Result<(), StartError> {
    let (first, is_first_done) = std::sync::mpsc::channel();
    let (watched, expiries) = (shared.guard.watched.clone(), shared.guard.expiries());
    let shared = Arc::downgrade(shared);
    let look = move || {
        let mut reminder = Reminder::default();
        let mut remind = || {
            let lines = reminder.lines(expiries(), Timestamp::now());
            lines.iter().for_each(|line| tracing::warn!("{line}"));
        };
        // Keys that have to be fetched are there before the first request, or known to be out of reach.
        let _ = first.send(watched.iter().filter(|watched| watched.refresh()).count());
        remind();
        while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            // All of them are looked at.
            let changed = watched.iter().filter(|watched| watched.refresh()).count();
            remind();
            let Some(shared) = shared.upgrade() else { return };
            let unread = watched.iter().filter(|watched| watched.has_failed()).count();
            shared.guard.unread.store(unread, Ordering::Relaxed);
            if changed > 0 {
                shared.guard.version.next();
            }
        }
    };
    let named = thread::Builder::new().name("throng-http-files".into());
    named.spawn(look).map(drop).map_err(StartError::Loop)?;
    let _ = is_first_done.recv_timeout(FETCH_WAIT);
    Ok(())
}

/// Starts a loop's thread, and returns once its runtime exists.
fn spawn(number: usize, pass: Arc<WaitTimes>, start: Start) -> Result<(thread::JoinHandle<()>, Handle), StartError> {
    let (up, is_up) = std::sync::mpsc::channel();
    let run = move || match event_loop::runtime(&pass) {
        Err(error) => drop(up.send(Err(error))),
        Ok(runtime) => {
            drop(up.send(Ok(runtime.handle().clone())));
            if let Err(error) = event_loop::run(&runtime, pass, start) {
                tracing::error!("a loop of the gateway ended: {error}");
            }
        }
    };
    let thread = thread::Builder::new()
        .name(format!("throng-http-{number}"))
        .spawn(run)
        .map_err(StartError::Loop)?;
    match is_up.recv() {
        Ok(Ok(handle)) => Ok((thread, handle)),
        Ok(Err(error)) => Err(StartError::Loop(error)),
        Err(_) => Err(StartError::Loop(std::io::Error::other("its thread ended at once"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::BTreeSet,
        io::{Read, Write},
        net::TcpStream,
    };
    use throng::journal::{MemoryJournal, MemoryStore};

    /// Returns the name of the thread that serves a new connection.
    fn served_by(address: SocketAddr) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        let request = "GET /thread HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer.rsplit("\r\n").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_loop_started_under_load_serves_its_share_of_connections() {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let engine = runtime.block_on(Engine::builder().start(journal, store)).unwrap();
        let name = async || thread::current().name().unwrap_or_default().to_owned();
        let routes = axum::Router::new().route("/thread", axum::routing::get(name));
        let saturated = scale::Sample {
            busy: 1.0,
            idle_cores: 1.0,
        };
        let gateway = Gateway::builder(engine).routes(routes).loops_up_to(2);
        let running = gateway
            .start_watched(Duration::from_millis(1), Some(saturated))
            .unwrap();
        let mut seen = BTreeSet::new();
        while seen.len() < 2 {
            seen.insert(served_by(running.address()));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["throng-http-0", "throng-http-1"]);
        // The loop serves from its first moment on, but is counted a moment later.
        let are_two = || {
            let mut text = String::new();
            running.engine().metrics().encode(&mut text).unwrap();
            text.lines().any(|line| line == "throng_http_loops 2")
        };
        while !are_two() {
            thread::yield_now();
        }
        running.stop_blocking();
    }
}
