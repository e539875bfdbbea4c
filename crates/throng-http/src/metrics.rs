//! The gateway's metrics, beside those of the engine.

use crate::{limits::CONNECTION_BYTES, places::Places};
use http::StatusCode;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
};
use std::time::Duration;
use throng::{
    Engine,
    driver::Share,
    histogram::{Counts, Histogram},
};

/// The kind of route that a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Command,
    Query,
    History,
    Live,
    Entities,
    Socket,
    App,
    Other,
}

const ROUTES: [(Route, &str); 8] = [
    (Route::Command, "command"),
    (Route::Query, "query"),
    (Route::History, "history"),
    (Route::Live, "live"),
    (Route::Entities, "entities"),
    (Route::Socket, "websocket"),
    (Route::App, "app"),
    (Route::Other, "other"),
];
const STATUSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabels {
    r#type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The limit that was reached, named after its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Bodies,
    BodyWait,
    HeaderWait,
    WriteWait,
    Connections,
    ConnectionsPerAddress,
    ConnectionRate,
    RequestRate,
    CallerRequestRate,
    SocketMessages,
    Frames,
    MessageWait,
    Pages,
}

const LIMITS: [(Limit, &str); 13] = [
    (Limit::Bodies, "bodies_bytes_max"),
    (Limit::BodyWait, "body_wait"),
    (Limit::HeaderWait, "header_wait"),
    (Limit::WriteWait, "write_wait"),
    (Limit::Connections, "connections_max"),
    (Limit::ConnectionsPerAddress, "connections_per_address_max"),
    (Limit::ConnectionRate, "connection_rate_max"),
    (Limit::RequestRate, "request_rate_max"),
    (Limit::CallerRequestRate, "caller_request_rate_max"),
    (Limit::SocketMessages, "socket_messages_max"),
    (Limit::Frames, "frames"),
    (Limit::MessageWait, "message_wait"),
    (Limit::Pages, "pages"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// Counters and histograms. Those that every request uses are looked up once, at the start.
pub(crate) struct Metrics {
    requests: [[Counter; STATUSES.len()]; ROUTES.len()],
    seconds: [Histogram; ROUTES.len()],
    problems: Family<ProblemLabels, Counter>,
    tls_failures: Family<ReasonLabels, Counter>,
    /// Frames of WebSockets.
    pub(crate) frames_in: Counter,
    pub(crate) frames_out: Counter,
    sockets: Gauge,
    /// Loops that serve.
    pub(crate) loops: Gauge,
    limited: [Counter; LIMITS.len()],
    /// Connections over the limit.
    pub(crate) refused_connections: Counter,
    /// Requests that wait for their turn.
    pub(crate) waiting: Gauge,
    /// Lines of the access log that were not written.
    pub(crate) access_log_dropped: Counter,
}

impl Metrics {
    pub(crate) fn register(engine: &Engine, connections: Share, live: Places) -> Self {
        let requests = Family::<RequestLabels, Counter>::default();
        let seconds = Family::<RouteLabels, Histogram>::new_with_constructor(Histogram::of_seconds);
        let limited = Family::<LimitLabels, Counter>::default();
        let metrics = Self {
            limited: LIMITS.map(|(_, limit)| limited.get_or_create(&LimitLabels { limit }).clone()),
            requests: ROUTES.map(|(_, route)| {
                STATUSES.map(|status| requests.get_or_create(&RequestLabels { route, status }).clone())
            }),
            seconds: ROUTES.map(|(_, route)| seconds.get_or_create(&RouteLabels { route }).clone()),
            problems: Family::default(),
            tls_failures: Family::default(),
            frames_in: Counter::default(),
            frames_out: Counter::default(),
            sockets: Gauge::default(),
            loops: Gauge::default(),
            refused_connections: Counter::default(),
            waiting: Gauge::default(),
            access_log_dropped: Counter::default(),
        };
        engine.metrics().register(|registry| {
            let http = registry.sub_registry_with_prefix("http");
            http.register(
                "requests",
                "Requests answered, by what they were for and how they were answered",
                requests,
            );
            http.register("request_seconds", "From a request's arrival to its answer", seconds);
            http.register(
                "problems",
                "Requests answered with a problem, by its type",
                metrics.problems.clone(),
            );
            http.register(
                "tls_failures",
                "TLS handshakes that failed, by the reason",
                metrics.tls_failures.clone(),
            );
            http.register(
                "connections_refused",
                "Connections closed because there were too many",
                metrics.refused_connections.clone(),
            );
            http.register(
                "limited",
                "Requests refused and connections ended because of a limit, by its name",
                limited,
            );
            http.register("loops", "Loops that serve connections", metrics.loops.clone());
            http.register("websockets", "Open WebSockets", metrics.sockets.clone());
            http.register(
                "websocket_frames_received",
                "Frames with messages that came over WebSockets",
                metrics.frames_in.clone(),
            );
            http.register(
                "websocket_frames_sent",
                "Frames with messages sent over WebSockets",
                metrics.frames_out.clone(),
            );
            http.register(
                "waiting",
                "Requests read that wait for their turn",
                metrics.waiting.clone(),
            );
            http.register(
                "access_log_dropped",
                "Lines of the access log that were dropped, since more came than could be written",
                metrics.access_log_dropped.clone(),
            );
            http.register_collector(Box::new(Levels { connections, live }));
        });
        metrics
    }

    /// Counts an answered request.
    pub(crate) fn answered(&self, route: Route, status: StatusCode, took: Option<Duration>) {
        let class = usize::from(status.as_u16() / 100).clamp(2, 5) - 2;
        self.requests[route as usize][class].inc();
        if let Some(took) = took {
            self.seconds[route as usize].observe(took.as_secs_f64());
        }
    }

    /// Times from arrival to answer, of all routes but [`Route::Other`]: administration, health and pages.
    pub(crate) fn latency(&self) -> Counts {
        let of = |route: Route| self.seconds[route as usize].counts();
        let others = ROUTES
            .iter()
            .filter(|(route, _)| !matches!(route, Route::Command | Route::Other));
        others.fold(of(Route::Command), |all, (route, _)| all.and(&of(*route)))
    }

    /// Returns the number of times each limit was reached, with the name of its setting.
    pub(crate) fn limits_reached(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LIMITS
            .iter()
            .zip(&self.limited)
            .map(|((_, name), count)| (*name, count.get()))
    }

    pub(crate) fn sockets(&self) -> i64 {
        self.sockets.get()
    }

    /// Counts a limit that was reached.
    pub(crate) fn limited(&self, limit: Limit) {
        self.limited[limit as usize].inc();
    }

    /// Counts an open WebSocket, until the result is dropped.
    pub(crate) fn socket_opened(&self) -> Level {
        self.sockets.inc();
        Level(self.sockets.clone())
    }

    /// Counts a TLS handshake that failed.
    pub(crate) fn tls_failed(&self, reason: &'static str) {
        self.tls_failures.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request that was answered with a problem of this type.
    pub(crate) fn problem(&self, slug: &str) {
        self.problems
            .get_or_create(&ProblemLabels {
                r#type: slug.to_owned(),
            })
            .inc();
    }
}

/// Counts down once it is dropped.
pub(crate) struct Level(Gauge);

impl Drop for Level {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Gauges whose values are read when metrics are requested.
#[derive(Debug)]
struct Levels {
    connections: Share,
    live: Places,
}

impl Collector for Levels {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let levels = [
            (
                "connections",
                "Open connections",
                self.connections.held() / CONNECTION_BYTES,
            ),
            (
                "live_streams",
                "Open live event streams and subscriptions",
                self.live.taken(),
            ),
        ];
        for (name, help, count) in levels {
            let level = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            level.encode(encoder.encode_descriptor(name, help, None, level.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_limits_stand_at_their_own_place() {
        for (at, (route, _)) in ROUTES.iter().enumerate() {
            assert_eq!(*route as usize, at);
        }
        for (at, (limit, _)) in LIMITS.iter().enumerate() {
            assert_eq!(*limit as usize, at);
        }
    }
}
