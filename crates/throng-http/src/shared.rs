//! What all loops of a gateway share.

use crate::{
    Limits, StartError,
    access::{Entrance, Guard, Wrong},
    access_log::{AccessLog, Log},
    checks::Checks,
    clients::{Connected, Rate},
    connection::Connection,
    console::{self, Console},
    gate::Client,
    kinds::Kinds,
    metrics::Metrics,
    openapi,
    request::{headers, path},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use rustls::ServerConfig;
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use throng::{Engine, driver::Driver};

/// Connections for administration at most.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Who is trusted with what.
#[derive(Default)]
pub(crate) struct Trust {
    pub(crate) guard: Guard,
    pub(crate) client_header: Option<HeaderName>,
    /// The addresses whose word is taken for it; none: everybody's.
    pub(crate) proxies: Vec<IpAddr>,
    /// Kinds without generic routes.
    pub(crate) hidden: Vec<String>,
    /// The names below `/api/` that are the app's.
    pub(crate) app_names: Vec<String>,
    /// Paths of the app's that are for everybody.
    pub(crate) open_routes: Vec<String>,
    /// Tells if a part of a path is a secret.
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
    pub(crate) access_log: Option<Log>,
    pub(crate) console: Console,
    pub(crate) kinds: Kinds,
    /// The OpenAPI document.
    pub(crate) openapi: Bytes,
    /// Who is let in.
    pub(crate) guard: Guard,
    /// A header that says whose a request is, where whoever sets it is trusted.
    pub(crate) client_header: Option<HeaderName>,
    /// The addresses whose word is taken for it; none: everybody's.
    pub(crate) proxies: Vec<IpAddr>,
    /// The names below `/api/` that are the app's.
    pub(crate) app_names: Vec<String>,
    /// Paths of the app's that are for everybody.
    pub(crate) open_routes: Vec<String>,
    is_secret: Option<SecretParts>,
    /// How the service's other parts are.
    pub(crate) checks: Checks,
    /// Places for the connections of the service's own listener.
    pub(crate) places: Places,
    /// Of those, what each address has.
    pub(crate) connected: Connected,
    /// Connections a second of each address.
    pub(crate) connection_rate: Option<Rate>,
    /// Requests a second of each address.
    pub(crate) request_rate: Option<Rate>,
    /// Requests a second of each caller.
    pub(crate) caller_rate: Option<Rate>,
    /// Requests that are refused for who asks.
    pub(crate) wrong: Wrong,
    /// Of connections for administration: the others cannot take these.
    pub(crate) admin_places: Places,
    /// Of live streams.
    pub(crate) live: Places,
    /// Bytes of bodies in flight, which the engine leaves out of its own.
    pub(crate) bodies: Places,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        limits: Limits,
        about: &openapi::About,
        trust: Trust,
        checks: Checks,
        access_log: Option<&AccessLog>,
        console: console::About,
    ) -> Result<Self, StartError> {
        let described = openapi::describe(engine.registry(), engine.actor_kinds(), about, &trust.hidden)?;
        let (places, live) = (Places::new(limits.connections_max), Places::new(limits.live_max));
        let driver = engine.driver();
        let bodies = Places::of(driver.bytes_outside(), limits.bodies_bytes_max);
        let metrics = Metrics::register(&engine, places.clone(), live.clone(), bodies.clone());
        let start = |what: &AccessLog| {
            let path = || what.file.clone().unwrap_or_else(|| "-".into());
            let log = Log::start(what, metrics.access_log_dropped.clone());
            log.map_err(|source| StartError::AccessLog { path: path(), source })
        };
        let access_log = access_log.map(start).transpose()?;
        let mut checks = checks;
        let of_services = engine.checks().clone();
        checks.add(move || of_services.checks());
        let collector = Box::new(checks.clone());
        engine
            .metrics()
            .register(|registry| registry.register_collector(collector));
        Ok(Self {
            kinds: described.kinds,
            openapi: described.document,
            guard: trust.guard,
            client_header: trust.client_header,
            proxies: trust.proxies,
            app_names: trust.app_names,
            open_routes: trust.open_routes,
            is_secret: trust.is_secret,
            metrics,
            access_log,
            console: Console::new(console),
            checks,
            places,
            connected: Connected::new(limits.connections_per_address_max, limits.connections_max),
            connection_rate: Rate::new(limits.connection_rate_max),
            request_rate: Rate::new(limits.request_rate_max),
            caller_rate: Rate::new(limits.caller_request_rate_max),
            wrong: Wrong::new(limits.request_rate_max),
            admin_places: Places::new(ADMIN_CONNECTIONS_MAX),
            live,
            bodies,
            limits,
            driver,
            engine,
        })
    }
}

impl Shared {
    /// Whether a path is one of the generic routes': below `/api/`, and not one of the names that the app has there.
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

    /// How TLS is spoken with those who come in there: with everybody, but not by a listener for administration that only this machine reaches.
    pub(crate) fn tls(&self, entrance: Entrance) -> Option<Arc<ServerConfig>> {
        let tls = self.guard.tls.as_ref()?;
        (!entrance.is_admin || !entrance.is_loopback).then(|| (*tls.get()).clone())
    }

    /// The header that says whose a connection's requests are, where its word is taken.
    pub(crate) fn client_header(&self, connection: &Connection) -> Option<&HeaderName> {
        self.client_header.as_ref().filter(|_| connection.is_believed())
    }

    /// A number that stands for the address of a request, or for the text of a trusted header in its place.
    pub(crate) fn client(&self, connection: &Connection, headers: &HeaderMap) -> Client {
        let named = self.client_header(connection);
        let named = named.and_then(|name| headers::client(headers, name));
        named.unwrap_or_else(|| connection.client())
    }

    /// Where a request comes from: the address its connection's word is taken for, or else the connection's own.
    pub(crate) fn client_address(&self, connection: &Connection, headers: &HeaderMap) -> IpAddr {
        let named = self.client_header(connection);
        let named = named.and_then(|name| headers::client_address(headers, name));
        named.unwrap_or_else(|| connection.address())
    }
}

/// A bounded number of places.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// Some of them, until this is dropped.
pub(crate) struct Taken {
    of: Arc<AtomicUsize>,
    count: usize,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self::of(Arc::default(), most)
    }

    /// With this count of those that are taken.
    fn of(taken: Arc<AtomicUsize>, most: usize) -> Self {
        Self { taken, most }
    }

    /// Takes one, if one is free.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut none = self.none();
        self.take_up_to(&mut none, 1).then_some(none)
    }

    /// None of them.
    pub(crate) fn none(&self) -> Taken {
        Taken {
            of: self.taken.clone(),
            count: 0,
        }
    }

    /// Takes as many more as make so many of these, if they are free.
    pub(crate) fn take_up_to(&self, taken: &mut Taken, count: usize) -> bool {
        let more = count.saturating_sub(taken.count);
        if self.taken.fetch_add(more, Ordering::Relaxed).saturating_add(more) > self.most {
            self.taken.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        taken.count += more;
        true
    }

    /// How many there are.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_up_to_their_number_and_again_when_one_is_free() {
        let places = Places::new(2);
        let (first, _second) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert!(places.take().is_some());
    }

    #[test]
    fn many_places_are_taken_little_by_little_and_given_back_together() {
        let places = Places::new(10);
        let mut taken = places.none();
        assert!(places.take_up_to(&mut taken, 4) && places.take_up_to(&mut taken, 3));
        assert_eq!(places.taken(), 4, "those it has are enough");
        assert!(places.take_up_to(&mut taken, 9) && !places.take_up_to(&mut taken, 11));
        assert!(!places.take_up_to(&mut taken, usize::MAX));
        assert_eq!(places.taken(), 9);
        drop(taken);
        assert_eq!(places.taken(), 0);
    }
}
