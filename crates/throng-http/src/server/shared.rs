//! The state that all loops of a gateway share.

use crate::{
    Limits, StartError,
    access_log::{AccessLog, Log},
    admission::Client,
    checks::Checks,
    clients::{Connected, Rate},
    connection::{AcceptedBy, Connection},
    console_state::{About, Console},
    guard::{
        Guard, Wrong,
        expiry::{self, Expiries},
    },
    kinds::Kinds,
    limits::CONNECTION_BYTES,
    metrics::Metrics,
    openapi::{self, Described},
    places::Places,
    problem::Problem,
    refused::Refused,
    request::{headers, path, trace::OwnRoutes},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use rustls::ServerConfig;
use std::{net::IpAddr, sync::Arc, time::Duration};
use throng::{
    Engine,
    driver::{Budget, Charge, Driver, Share},
    spans::Tracer,
};
use tokio::time::timeout;

/// Connections for administration at most.
pub(crate) const ADMIN_CONNECTIONS_MAX: usize = 64;
/// The part of the memory for connections, as a divisor, and the least number of connections.
const CONNECTIONS_PART: usize = 8;
const CONNECTIONS_MIN: usize = 64;

/// The number of connections that the memory has room for.
pub(crate) fn connections_in_memory(budget: &Budget) -> usize {
    (budget.part(CONNECTIONS_PART) / CONNECTION_BYTES).max(CONNECTIONS_MIN)
}

/// The settings of access: callers, trusted proxies, open and hidden routes.
#[derive(Default)]
pub(crate) struct Trust {
    pub(crate) guard: Guard,
    pub(crate) client_header: Option<HeaderName>,
    /// The trusted proxies, which may set that header. If there are none, every peer may.
    pub(crate) proxies: Vec<IpAddr>,
    /// Kinds without generic routes.
    pub(crate) hidden: Vec<String>,
    /// The names below `/api/` that are the app's.
    pub(crate) app_names: Vec<String>,
    /// Paths of the app's that are for everybody.
    pub(crate) open_routes: Vec<String>,
    /// Tells whether a part of a path is a secret.
    pub(crate) is_secret: Option<SecretParts>,
}

/// Tells the parts of paths that are secrets.
pub(crate) type SecretParts = Box<dyn Fn(&str) -> bool + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    /// The same engine, as a gateway drives it.
    pub(crate) driver: Driver,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    /// Decides which requests are traced, if any may be.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The own routes that spans name; none where nothing is traced.
    pub(crate) own_routes: OwnRoutes,
    pub(crate) access_log: Option<Log>,
    pub(crate) console: Console,
    pub(crate) kinds: Kinds,
    /// The OpenAPI document.
    pub(crate) openapi: Bytes,
    /// The same for the listener for administration, if there is one.
    pub(crate) admin_openapi: Option<Bytes>,
    /// Access control: decides which callers are let in.
    pub(crate) guard: Guard,
    /// The header that names a request's client, where its sender is trusted.
    pub(crate) client_header: Option<HeaderName>,
    /// The trusted proxies, which may set that header. If there are none, every peer may.
    pub(crate) proxies: Vec<IpAddr>,
    /// The names below `/api/` that are the app's.
    pub(crate) app_names: Vec<String>,
    /// Paths of the app's that are for everybody.
    pub(crate) open_routes: Vec<String>,
    is_secret: Option<SecretParts>,
    /// The health checks of the service's other parts.
    pub(crate) checks: Checks,
    /// The connections that each address has to the service's own listener.
    pub(crate) connected: Connected,
    /// Connections a second of each address.
    pub(crate) connection_rate: Option<Rate>,
    /// Requests a second of each address.
    pub(crate) request_rate: Option<Rate>,
    /// Requests a second of each caller.
    pub(crate) caller_rate: Option<Rate>,
    /// The requests that were refused for their credentials.
    pub(crate) wrong: Wrong,
    /// The places beyond the limits for requests that always have one.
    pub(crate) spare: Places,
    /// The connections that were refused.
    pub(crate) refused: Refused,
    /// The places for live streams.
    pub(crate) live: Places,
    /// The shares of the memory that is held for clients.
    pub(crate) held: HeldBytes,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        limits: Limits,
        about: &openapi::About,
        trust: Trust,
        checks: Checks,
        access_log: Option<&AccessLog>,
        console: About,
    ) -> Result<Self, StartError> {
        let described = openapi::describe(engine.registry(), engine.actor_kinds(), about, &trust.hidden)?;
        let live = Places::new(limits.live_max);
        let driver = engine.driver();
        let held = HeldBytes::new(driver.budget(), &limits);
        let metrics = Metrics::register(&engine, held.connections.clone(), live.clone());
        let start = |what: &AccessLog| {
            let path = || what.file.clone().unwrap_or_else(|| "-".into());
            let log = Log::start(what, metrics.access_log_dropped.clone());
            log.map_err(|source| StartError::AccessLog { path: path(), source })
        };
        let access_log = access_log.map(start).transpose()?;
        let mut checks = checks;
        let of_services = engine.checks().clone();
        checks.add(move || of_services.checks());
        let unread = trust.guard.unread.clone();
        checks.add(move || Guard::check(&unread));
        let expiries = trust.guard.expiries();
        let of_certificates = Box::new(Expiries(expiries.clone()));
        checks.add(move || expiry::check(expiries(), Timestamp::now()).into_iter().collect());
        let collector = Box::new(checks.clone());
        engine.metrics().register(|registry| {
            registry.register_collector(collector);
            registry.register_collector(of_certificates);
        });
        Ok(Self {
            kinds: described.kinds,
            openapi: described.document,
            admin_openapi: described.admin_document,
            guard: trust.guard,
            client_header: trust.client_header,
            proxies: trust.proxies,
            app_names: trust.app_names,
            open_routes: trust.open_routes,
            is_secret: trust.is_secret,
            metrics,
            own_routes: match driver.tracer() {
                Some(_) => {
                    let paths = about.described.iter().flat_map(Described::paths);
                    OwnRoutes::new(paths.map(|(_, path)| path))
                }
                None => OwnRoutes::default(),
            },
            tracer: driver.tracer().cloned(),
            access_log,
            console: Console::new(console),
            checks,
            connected: Connected::new(limits.connections_per_address_max, limits.connections_max),
            connection_rate: Rate::new(limits.connection_rate_max),
            request_rate: Rate::new(limits.request_rate_max),
            caller_rate: Rate::new(limits.caller_request_rate_max),
            wrong: Wrong::new(limits.request_rate_max),
            spare: Places::new(limits.spare_connections_max.div_ceil(2)),
            refused: Refused::default(),
            live,
            held,
            limits,
            driver,
            engine,
        })
    }
}

impl Shared {
    /// True if the path belongs to the generic routes: below `/api/`, and not one of the app's names there.
    pub(crate) fn is_generic(&self, path: &str) -> bool {
        let below = path.strip_prefix("/api/");
        below.is_some_and(|below| !self.app_names.iter().any(|name| name == below))
    }

    /// A path without the parts of it that are secrets.
    pub(crate) fn shown_path(&self, path: Box<str>) -> Box<str> {
        let Some(is_secret) = &self.is_secret else { return path };
        let is_secret = |part: &str| path::decode(part).is_none_or(|part| is_secret(&part));
        let shown: Vec<_> = path
            .split('/')
            .map(|part| if is_secret(part) { "*" } else { part })
            .collect();
        shown.join("/").into()
    }

    /// Returns the TLS settings of a listener, if TLS is configured. A listener for administration on a loopback address has none.
    pub(crate) fn tls(&self, accepted_by: AcceptedBy) -> Option<Arc<ServerConfig>> {
        let tls = self.guard.tls.as_ref()?;
        (!accepted_by.is_admin || !accepted_by.is_loopback).then(|| (*tls.get()).clone())
    }

    /// Returns the header that names a request's client, if the connection's peer is trusted with it.
    pub(crate) fn client_header(&self, connection: &Connection) -> Option<&HeaderName> {
        self.client_header.as_ref().filter(|_| connection.is_believed())
    }

    /// Returns the number of a request's client: of its address, or of the text of a trusted header.
    pub(crate) fn client(&self, connection: &Connection, headers: &HeaderMap) -> Client {
        let named = self.client_header(connection);
        let named = named.and_then(|name| headers::client(headers, name));
        named.unwrap_or_else(|| connection.client())
    }

    /// Returns the address of a request's client: from the trusted header, or else the connection's own.
    pub(crate) fn client_address(&self, connection: &Connection, headers: &HeaderMap) -> IpAddr {
        let named = self.client_header(connection);
        let named = named.and_then(|name| headers::client_address(headers, name));
        named.unwrap_or_else(|| connection.address())
    }
}

/// The part of the memory for live pages, histories, answers and WebSocket messages, as a divisor.
const PAGES_PART: usize = 8;
const FRAMES_PART: usize = 8;
/// The part of the memory for live streams and subscriptions besides their pages, as a divisor, and the bytes of each: its task, its
/// position in the log, and the buffers of its connection.
const STREAMS_PART: usize = 8;
const STREAM_BYTES: usize = 32 << 10;

/// The shares of the engine's memory that are used for clients, one for each owner.
pub(crate) struct HeldBytes {
    /// Connections of the service's own listener.
    pub(crate) connections: Share,
    /// Connections for administration, whose share others cannot use.
    pub(crate) admin: Share,
    /// Bodies in flight, except those that were complete when the fast path had read the head.
    pub(crate) bodies: Share,
    /// Messages of WebSockets, from their first frame's head until they are executed.
    pub(crate) frames: Share,
    /// Live streams and subscriptions, without their pages.
    streams: Share,
    /// Pages of live streams, histories being written, and answers that clients have yet to take.
    pub(crate) pages: Share,
}

impl HeldBytes {
    fn new(budget: &Budget, limits: &Limits) -> Self {
        let connections = |count: usize| count.saturating_mul(CONNECTION_BYTES);
        Self {
            connections: budget.share("connections", connections(limits.connections_max)),
            admin: budget.share("admin_connections", connections(ADMIN_CONNECTIONS_MAX)),
            bodies: budget.share("bodies", limits.bodies_bytes_max),
            frames: budget.share("frames", budget.part(FRAMES_PART)),
            streams: budget.share("streams", budget.part(STREAMS_PART)),
            pages: pages(budget),
        }
    }

    /// Charges one more live stream, if there is room for it.
    pub(crate) fn stream(&self) -> Option<Charge> {
        self.streams.take(STREAM_BYTES)
    }
}

/// Returns the share for pages of live streams, histories being written, and answers that clients have yet to take.
fn pages(budget: &Budget) -> Share {
    budget.share("pages", budget.part(PAGES_PART))
}

/// The longest wait of an app's page for room, and the pause suggested to its client after that.
const PAGE_WAIT: Duration = Duration::from_millis(500);
const PAGE_RETRY: Duration = Duration::from_secs(1);

/// Room in the memory for answers, for a page that an app's handler makes of a history, until this is dropped.
pub struct PageRoom(#[expect(dead_code, reason = "it is held")] Charge);

impl PageRoom {
    /// Waits for room for this many bytes.
    ///
    /// # Errors
    /// [`Problem`] with status 503: other answers have used all room for half a second.
    pub async fn take(engine: &Engine, bytes: usize) -> Result<Self, Problem> {
        let share = pages(engine.driver().budget());
        let charge = timeout(PAGE_WAIT, share.room(bytes)).await;
        charge.map(Self).map_err(|_| {
            let detail = "The answers that clients have yet to take hold all the memory they may. Try again later.";
            Problem::overloaded(detail, PAGE_RETRY)
        })
    }
}
