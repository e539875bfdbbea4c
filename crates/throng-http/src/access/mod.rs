//! Who asks, from which page, under which name of this service, and whether they may.

mod caller;
mod names;

pub use caller::{Access, Action, Caller, Means};
pub(crate) use names::Names;

use crate::{event_loop::Local, problem::Problem, routes::Answered};
use http::{HeaderMap, HeaderValue, Request, Uri, header, request::Parts, uri::Authority};

/// Decides about each access, where a service has something to say.
pub(crate) type Hook = Box<dyn Fn(&Access<'_>) -> Result<(), Box<Problem>> + Send + Sync>;

/// Who is let in.
#[derive(Default)]
pub(crate) struct Guard {
    pub(crate) names: Names,
    pub(crate) authorize: Option<Hook>,
}

/// What a request's head says of who sends it, and to whom.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said<'a> {
    pub(crate) host: Option<&'a [u8]>,
    /// The authority of the request's target, where it has one: HTTP/2, absolute form.
    pub(crate) authority: Option<&'a str>,
    pub(crate) origin: Option<&'a [u8]>,
    /// The body is JSON, in so many words.
    pub(crate) is_json: bool,
}

impl<'a> Said<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Self {
        Self::of_head(&parts.uri, &parts.headers)
    }

    pub(crate) fn of_request<B>(request: &'a Request<B>) -> Self {
        Self::of_head(request.uri(), request.headers())
    }

    fn of_head(target: &'a Uri, headers: &'a HeaderMap) -> Self {
        let field = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            host: field(header::HOST),
            authority: target.authority().map(Authority::as_str),
            origin: field(header::ORIGIN),
            is_json: field(header::CONTENT_TYPE) == Some(b"application/json"),
        }
    }
}

/// Lets a request in, and says who asks.
pub(crate) fn enter(local: &Local, said: &Said<'_>) -> Answered<Option<Caller>> {
    let guard = &local.shared().guard;
    guard.names.check(said)?;
    Ok(None)
}

/// Asks the service's hook, if there is one.
pub(crate) fn may(local: &Local, access: &Access<'_>) -> Answered<()> {
    match &local.shared().guard.authorize {
        None => Ok(()),
        Some(hook) => hook(access),
    }
}
