//! The console: a page, and the API it is made of, all on the listener for administration. `docs/console-api.md` says what each answer has.

mod limiting;
mod overview;
pub(crate) mod page;
mod series;

use crate::{
    access,
    access::Caller,
    answer::{self, Answer},
    connection::Connection,
    gate::Pass,
    problem::Problem,
    request::{body::RequestBody, headers, query},
    routes::Answered,
    server::Server,
    shared::Shared,
};
use http::{HeaderValue, Method, Response, header, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak, mpsc},
    thread,
    time::{Duration, Instant, SystemTime},
};
use throng::HotEntity;

/// Between two points of the series.
const POINT_EVERY: Duration = Duration::from_secs(1);
/// Hot entities that a point has.
const HOT_MAX: usize = 50;

/// What the console's parts share, one a gateway.
pub(crate) struct Console {
    series: Mutex<series::Series>,
    passes: Mutex<Vec<Arc<Pass>>>,
    started: SystemTime,
    pub(crate) about: About,
}

/// What the service says of itself.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) title: String,
    pub(crate) version: String,
    /// Where the journal stands, for people, and what it is: `directory`, `postgresql`, `memory`.
    pub(crate) place: Option<(&'static str, String)>,
    /// The most loops there may be.
    pub(crate) loops_max: usize,
}

impl Console {
    pub(crate) fn new(about: About) -> Self {
        Self {
            series: Mutex::default(),
            passes: Mutex::default(),
            started: SystemTime::now(),
            about,
        }
    }

    /// A loop begins, and is watched.
    pub(crate) fn watch(&self, pass: Arc<Pass>) {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).push(pass);
    }

    fn passes(&self) -> Vec<Arc<Pass>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What holds the journal.
fn medium(shared: &Shared) -> &'static str {
    shared
        .console
        .about
        .place
        .as_ref()
        .map_or("memory", |(medium, _)| *medium)
}

/// Takes the points of the series, until the gateway is over or gone.
pub(crate) fn watch(shared: Weak<Shared>, is_over: mpsc::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let take = move || {
        let mut next = Instant::now();
        loop {
            let Some(strong) = shared.upgrade() else { return };
            let passes = strong.console.passes();
            let hot = |is_wanted: bool| -> Vec<HotEntity> {
                let hot = is_wanted.then(|| runtime.block_on(strong.engine.hot(HOT_MAX)).ok());
                hot.flatten().unwrap_or_default()
            };
            let mut series = strong.console.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.take(&strong, &passes, hot);
            drop(series);
            drop(strong);
            // A late point does not move those that follow it, and none is made up for.
            next = (next + POINT_EVERY).max(Instant::now());
            let left = next.saturating_duration_since(Instant::now());
            if is_over.recv_timeout(left) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("throng-http-series".into())
        .spawn(take)
        .map(drop)
}

/// Who does something by hand.
pub(crate) struct By<'a> {
    caller: Option<Caller>,
    has_token: bool,
    connection: &'a Connection,
}

impl<'a> By<'a> {
    pub(crate) fn of(server: &Server, connection: &'a Connection, parts: &Parts) -> Self {
        let shown = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let has_token = headers::bearer(&parts.headers).is_some();
        Self {
            caller: access::who(server, connection, shown).ok().flatten(),
            has_token,
            connection,
        }
    }

    fn name(&self) -> &str {
        match &self.caller {
            Some(caller) => caller.name(),
            None if self.has_token => "token",
            None => "local",
        }
    }
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name(), self.connection.address())
    }
}

/// Which part of the series.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesQuery {
    #[serde(default)]
    since: i64,
}

/// No parameter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn asked<T: DeserializeOwned>(parts: &Parts) -> Answered<T> {
    query::read(parts.uri.query())
}

/// Whether a request's body is read.
pub(crate) fn reads_body(path: &str) -> bool {
    path.starts_with("/admin/entity/")
}

/// The method of a path of the console's API; `None` if it is none of them.
pub(crate) fn method(path: &str) -> Option<Method> {
    Some(match path {
        "/admin/overview" | "/admin/series" => Method::GET,
        _ => return None,
    })
}

/// Answers a path of the console's API, for who may.
pub(crate) async fn answer(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    _body: RequestBody,
) -> Answered<Response<Answer>> {
    let shared = server.shared();
    let by = By::of(server, connection, parts);
    let value = match parts.uri.path() {
        "/admin/overview" => {
            let Nothing {} = asked(parts)?;
            overview::overview(shared, &by).await?
        }
        "/admin/series" => {
            let SeriesQuery { since } = asked(parts)?;
            let series = shared.console.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.all(since)
        }
        path => return Err(Problem::unknown_route(path).boxed()),
    };
    Ok(json(&value))
}

/// Of this moment only.
fn json(value: &Value) -> Response<Answer> {
    let mut response = answer::json(value.to_string());
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}
