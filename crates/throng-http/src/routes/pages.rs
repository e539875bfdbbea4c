//! The gateway's own pages: health, metrics, the OpenAPI document, documentation, problem types, the index.

use crate::{
    access::cors,
    answer::{self, HTML, JSON, ResponseBody},
    caller::Role,
    checks,
    connection::{AcceptedBy, Connection},
    problem::{self, Answered, Problem},
    request::headers,
    server::Server,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::sync::LazyLock;
use throng::{
    journal::Durability,
    services::health::{Check, Reason, Status},
};

const DOCS: &str = include_str!("../pages/docs.html");
const INDEX: &str = include_str!("../pages/index.html");
static INDEX_WITHOUT_METRICS: LazyLock<String> = LazyLock::new(|| {
    let lines = INDEX.split_inclusive('\n');
    lines.filter(|line| !line.contains("\"/metrics\"")).collect()
});
/// The content types of metrics: for requests that accept OpenMetrics, and for others.
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
/// The pages need only their own script and style, identified by their hashes, and this server.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hashes = |element| [DOCS, INDEX].map(|page| inline_hash(page, element)).join(" ");
    let (scripts, styles) = (hashes("script"), hashes("style"));
    let policy = format!(
        "default-src 'none'; style-src {styles}; script-src {scripts}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The hash of a page's one inline script or style, as its policy names it.
fn inline_hash(page: &str, element: &str) -> String {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let inside = page.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let hash = digest(&SHA256, inside.map_or("", |(inside, _)| inside).as_bytes());
    format!("'sha256-{}'", BASE64_STANDARD.encode(hash))
}

/// The path at which clients learn which node owns which shards, if configured.
const OWNERS: &str = "/cluster";

/// The service as a whole: the target of `OPTIONS *`.
const SERVICE: &str = "*";

/// Returns true if the path is one of the gateway's own.
pub(super) fn is_own(path: &str) -> bool {
    matches!(
        path,
        "/health/live" | "/health/ready" | "/metrics" | "/openapi.json" | "/docs" | SERVICE
    ) || path.starts_with("/problems/")
}

/// True if everybody may see the page: it shows only the service's types, or that it lives.
pub(super) fn is_open(path: &str) -> bool {
    is_own(path) && path != "/metrics"
}

/// Answers a path that is the gateway's own; `None` if it is not.
pub(super) fn answer(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
) -> Option<Answered<Response<ResponseBody>>> {
    let path = parts.uri.path();
    let owners = server.shared().console.about.owners.as_ref();
    let owners = owners.filter(|_| path == OWNERS);
    if !is_own(path) && owners.is_none() {
        return None;
    }
    if path == SERVICE {
        let allow = match parts.method {
            Method::OPTIONS => cors::METHODS,
            _ => "OPTIONS",
        };
        return Some(Err(Problem::method_not_allowed(&parts.method, allow).boxed()));
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Some(Err(Problem::method_not_allowed(&parts.method, "GET, HEAD").boxed()));
    }
    if let Some(owners) = owners {
        return Some(Ok(fresh(answer::json(owners().to_string()))));
    }
    Some(match path {
        "/health/live" => Ok(fresh(answer::json(r#"{"live":true}"#))),
        "/health/ready" => Ok(ready(
            server,
            super::admin::may(server, connection, &parts.headers, Role::Viewer).is_ok(),
        )),
        "/metrics" => {
            let may = match server.shared().guard.has_admin_listener {
                true => super::admin::may(server, connection, &parts.headers, Role::Metrics).map(drop),
                false => Ok(()),
            };
            may.map(|()| metrics(server, headers::wants_open_metrics(&parts.headers)))
        }
        "/openapi.json" => {
            let shared = server.shared();
            let apart = shared
                .admin_openapi
                .as_ref()
                .filter(|_| connection.accepted_by().is_admin);
            Ok(answer::json(apart.unwrap_or(&shared.openapi).clone()))
        }
        "/docs" => Ok(page(DOCS.into())),
        _ => problem_type(
            server,
            path.strip_prefix("/problems/").unwrap_or(""),
            headers::wants_page(&parts.headers),
        ),
    })
}

/// Lists the routes: a page for people, JSON for programs. A listener does not list routes of the other one.
pub(super) fn index(server: &Server, is_page: bool, accepted_by: AcceptedBy) -> Response<ResponseBody> {
    let has_metrics = accepted_by.is_admin || !server.shared().guard.has_admin_listener;
    if is_page {
        return page(match has_metrics {
            true => INDEX.into(),
            false => Bytes::from_static(INDEX_WITHOUT_METRICS.as_bytes()),
        });
    }
    let kinds: Vec<_> = server
        .shared()
        .kinds
        .names()
        .into_iter()
        .map(|kind| format!("/api/{kind}"))
        .collect();
    let mut links = json!({
        "docs": "/docs", "openapi": "/openapi.json",
        "live": "/health/live", "ready": "/health/ready", "kinds": kinds,
    });
    if has_metrics {
        links["metrics"] = "/metrics".into();
    }
    answer::json(links.to_string())
}

/// Answers whether the service is ready. Only operators learn where and why the journal fails.
fn ready(server: &Server, is_operator: bool) -> Response<ResponseBody> {
    let health = server.shared().engine.health();
    let mut checks = server.shared().checks.all();
    if health.quarantines > 0 {
        let times = health.quarantines;
        checks.push(Check {
            name: "entities".into(),
            status: Status::Warn,
            reason: Reason::Other(format!(
                "{times} were quarantined since the start; /admin/stuck names those in memory"
            )),
        });
    }
    let failing = checks.iter().find(|check| check.status == Status::Fail);
    let waiting = health.unresolved.iter().map(|waiting| match is_operator {
        true => waiting.to_string(),
        false => waiting.brief(),
    });
    let troubles: Vec<String> = health.troubles.into_iter().chain(waiting).collect();
    let is_closed = server.is_closed();
    let is_ready = health.ready && !is_closed && !server.is_draining() && failing.is_none();
    let durability = match health.durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
        Durability::Memory => "memory",
    };
    let reason = health
        .reason
        .or_else(|| {
            let failing = failing?;
            Some(match &failing.reason {
                Reason::None => format!("{} fails, and did not say why", failing.name),
                why => format!("{} fails: {why}", failing.name),
            })
        })
        .or_else(|| is_closed.then(|| "the port for clients opens once the service can serve".into()))
        .or_else(|| (!is_ready).then(|| "the gateway is stopping".into()));
    let mut body = json!({
        "ready": is_ready, "reason": reason, "stands_by": health.stands_by, "storage_full": health.storage_full, "troubles": troubles, "durability": durability,
        "position": health.position.map(|position| position.to_string()),
        "entities_in_memory": health.entities, "journal_bytes": health.journal_bytes,
    });
    if let Some(detail) = health.detail.filter(|_| is_operator) {
        body["detail"] = detail.into();
    }
    if !checks.is_empty() {
        body["checks"] = checks.iter().map(checks::json).collect();
    }
    let mut response = fresh(answer::json(body.to_string()));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn metrics(server: &Server, is_open: bool) -> Response<ResponseBody> {
    let (mut text, metrics) = (String::new(), server.shared().engine.metrics());
    let (encoded, media) = match is_open {
        true => (metrics.encode(&mut text), OPEN_METRICS),
        false => (metrics.encode_plain(&mut text), METRICS),
    };
    match encoded {
        Ok(()) => fresh(answer::bytes(text, media)),
        Err(_) => Problem::crashed("the metrics cannot be written").response(),
    }
}

fn problem_type(server: &Server, slug: &str, is_page: bool) -> Answered<Response<ResponseBody>> {
    let Some(entry) = problem::find(slug) else {
        return rejection_type(server, slug);
    };
    if is_page {
        let mut response = Response::new(ResponseBody::Whole(None));
        *response.status_mut() = StatusCode::SEE_OTHER;
        if let Ok(place) = HeaderValue::try_from(format!("/docs#problem-{slug}")) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        return Ok(response);
    }
    let kind = format!("/problems/{slug}");
    let shown = json!({ "type": kind, "title": entry.title, "status": entry.status, "meaning": entry.meaning });
    Ok(answer::bytes(shown.to_string(), JSON))
}

/// The type of an entity's own "no".
fn rejection_type(server: &Server, code: &str) -> Answered<Response<ResponseBody>> {
    let Some((kind, refusal)) = server.shared().kinds.rejection(code) else {
        return Err(Problem::unknown_problem(code).boxed());
    };
    let own = refusal
        .description
        .as_deref()
        .map_or(String::new(), |own| format!(" {own}"));
    let meaning = format!(
        "An entity of the kind {kind} said no, and nothing has happened.{own} `rejection` says the rest; /docs has its fields."
    );
    let shown = json!({ "type": format!("/problems/{code}"), "title": problem::title(code), "meaning": meaning });
    Ok(answer::bytes(shown.to_string(), JSON))
}

fn page(html: Bytes) -> Response<ResponseBody> {
    let mut response = answer::bytes(html, HTML);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}

/// Forbids caches to keep the response.
fn fresh(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
