//! W3C trace context: the request that a command belongs to, and the request's own span.

use crate::{
    kinds::Kinds,
    problem::Problem,
    request::path::{self, ApiPath},
};
use http::{HeaderMap, StatusCode};
use std::{
    borrow::Cow,
    cell::Cell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use throng::spans::{Attribute, Span, SpanKind, TraceContext, Tracer};

/// The header field.
pub(crate) const TRACEPARENT: http::HeaderName = http::HeaderName::from_static("traceparent");

/// Reads a `traceparent`; `None` if it is malformed, and so ignored.
pub(crate) fn parent(text: &str) -> Option<TraceContext> {
    text.trim().parse().ok()
}

/// Reads the `traceparent` of a request.
pub(crate) fn parent_of(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT).and_then(|value| parent(value.to_str().ok()?))
}

/// Returns the log's span of a command, if its request is part of a trace.
pub(crate) fn log_span(parent: Option<TraceContext>, kind: &str, id: &str, command: &str) -> Option<tracing::Span> {
    let parent = parent?;
    Some(tracing::info_span!(
        "command",
        trace_id = format!("{:032x}", parent.trace()),
        parent_id = format!("{:016x}", parent.span),
        sampled = parent.is_sampled,
        kind,
        id,
        command
    ))
}

/// A request's span, until the request is answered. It is small without tracing.
#[derive(Default)]
pub(crate) struct RequestSpan {
    /// The parent and the span, if there is either.
    begun: Option<Box<Begun>>,
    /// The indices of the command's kind and name, once both are known to exist. Set by the loop that serves the request, if requests are
    /// traced.
    command: Cell<Option<(u16, u16)>>,
    /// The request is a command of a WebSocket. Set where requests are traced.
    pub(crate) is_message: bool,
}

struct Begun {
    parent: Option<TraceContext>,
    /// The span, if its trace is sampled.
    context: Option<TraceContext>,
    /// The entity's id, if spans show it.
    id: Option<String>,
}

/// The end of a request.
pub(crate) struct RequestEnd<'a> {
    pub(crate) method: &'a str,
    pub(crate) route: RequestRoute<'a>,
    pub(crate) status: StatusCode,
    pub(crate) problem: Option<&'a Problem>,
    /// The time since its arrival, if known.
    pub(crate) took: Option<Duration>,
}

/// The route of a request.
#[derive(Clone, Copy)]
pub(crate) enum RequestRoute<'a> {
    /// A generic route, by the path; empty where that is not known any more.
    Generic(&'a str),
    /// A path among the service's own routes.
    Own(&'a OwnRoutes, &'a str),
}

/// The service's own routes that it describes. Spans are named by their patterns.
#[derive(Default)]
pub(crate) struct OwnRoutes(matchit::Router<String>);

impl OwnRoutes {
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Self {
        let mut routes = matchit::Router::new();
        for pattern in patterns {
            // A pattern with several methods is described several times: it stays as it is.
            drop(routes.insert(pattern, pattern.to_owned()));
        }
        Self(routes)
    }

    /// The pattern of a path, if it is described.
    fn pattern(&self, path: &str) -> Option<&str> {
        self.0.at(path).ok().map(|found| found.value.as_str())
    }
}

impl RequestSpan {
    /// Begins the span of a request about an entity. The log's span names the parent even without tracing.
    pub(crate) fn begin(
        tracer: Option<&Tracer>,
        parent: Option<TraceContext>,
        id: impl FnOnce() -> Option<String>,
    ) -> Self {
        let context = tracer.and_then(|tracer| tracer.begin(parent));
        let begun = (context.is_some() || parent.is_some()).then(|| {
            let names_id = context.is_some() && tracer.is_some_and(Tracer::names_ids);
            let id = names_id.then(id).flatten();
            Box::new(Begun { parent, context, id })
        });
        Self {
            begun,
            command: Cell::new(None),
            is_message: false,
        }
    }

    /// Returns the span in a box, to keep small what waits for a commit; `None` if there is nothing to keep.
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        let is_known = self.begun.is_some() || self.command.get().is_some() || self.is_message;
        is_known.then(|| Box::new(self))
    }

    pub(crate) fn parent(&self) -> Option<TraceContext> {
        self.begun.as_ref()?.parent
    }

    /// The span, if its trace is sampled.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.begun.as_ref()?.context
    }

    /// Notes the command that the request asks for, by the indices of its kind and name.
    pub(crate) fn asks_for(&self, kind: usize, command: Option<usize>) {
        let command = command.and_then(|command| u16::try_from(command).ok());
        self.command.set(u16::try_from(kind).ok().zip(command));
    }

    /// Exports the span of a request that is just answered, if it is sampled, slow or refused.
    pub(crate) fn end(&self, tracer: &Tracer, kinds: &Kinds, end: &RequestEnd<'_>) {
        let is_refused = end.status.is_server_error() || end.status == StatusCode::TOO_MANY_REQUESTS;
        let took = micros(end.took.unwrap_or_default());
        let context = self.context();
        let Some(context) = context.or_else(|| tracer.begin_late(self.parent(), took.unsigned_abs(), is_refused))
        else {
            return;
        };
        let command = self.command.get().and_then(|(kind, command)| {
            let names = kinds.0.get(usize::from(kind))?;
            Some((names.kind, names.commands.get(usize::from(command))?))
        });
        let route: Option<Cow<'_, str>> = match (command, end.route) {
            (Some((kind, command)), _) => Some(format!("/api/{kind}/{{id}}/{command}").into()),
            (None, RequestRoute::Generic(path)) => Some(template(kinds, path).into()),
            (None, RequestRoute::Own(routes, path)) => routes.pattern(path).map(Cow::Borrowed),
        };
        let method = if self.is_message { "COMMAND" } else { end.method };
        let mut attributes = vec![
            ("http.request.method", Attribute::Text(method)),
            (
                "http.response.status_code",
                Attribute::Number(i64::from(end.status.as_u16())),
            ),
        ];
        let mut name: Cow<'_, str> = method.into();
        if let Some(route) = &route {
            attributes.push(("http.route", Attribute::Text(route)));
            name = format!("{method} {route}").into();
        }
        if let Some((kind, command)) = command {
            attributes.push(("throng.kind", Attribute::Text(kind)));
            attributes.push(("throng.command", Attribute::Text(command)));
        }
        if let Some(problem) = end.problem {
            attributes.push(("error.type", Attribute::Text(problem.slug())));
        }
        if let Some(id) = self.begun.as_ref().and_then(|begun| begun.id.as_deref()) {
            attributes.push(("throng.id", Attribute::Text(id)));
        }
        let now = micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        tracer.export(&Span {
            name: &name,
            kind: SpanKind::Server,
            context,
            parent: self.parent().map(|parent| parent.span),
            begun_micros: now.saturating_sub(took),
            ended_micros: now,
            attributes: &attributes,
            links: &[],
            links_dropped: 0,
            is_failed: end.status.is_server_error(),
        });
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the path with placeholders for parts that clients choose.
fn template(kinds: &Kinds, path: &str) -> String {
    let kind = |kind| kinds.find(kind).map(|(_, names)| names);
    let known = match path::place(path) {
        Some(ApiPath::Kind(name)) => kind(name).map(|names| format!("/api/{}", names.kind)),
        Some(ApiPath::Entity(name, _)) => kind(name).map(|names| format!("/api/{}/{{id}}", names.kind)),
        Some(ApiPath::Member(name, _, member)) => kind(name).map(|names| {
            let member = match member {
                "events" => Some("events"),
                _ if names.has_query(member) => Some(member),
                _ => names.command(member),
            };
            format!("/api/{}/{{id}}/{}", names.kind, member.unwrap_or("{name}"))
        }),
        None => None,
    };
    known.unwrap_or_else(|| "/api/{kind}/{id}".into())
}
