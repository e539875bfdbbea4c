//! The part of the service that a request is for, and its callers.

use super::{admin, pages};
use crate::{
    access,
    caller::{Administrator, Caller, KnowsCallers, Role, Sender},
    connection::Connection,
    console,
    guard::Part,
    problem::{Answered, Problem},
    server::Server,
};
use http::request::Parts;

/// True if a request for this path never waits, and is never refused because of other requests: health, metrics, administration.
pub(crate) fn is_urgent(path: &str) -> bool {
    pages::is_own(path) || console::page::is_page(path) || path.starts_with("/admin/")
}

/// Adds the values that the extractors of an app's handler use.
pub(super) fn tell_handler(server: &Server, connection: &Connection, parts: &mut Parts) {
    if let Some(by) = admin::is(server, connection, parts) {
        parts.extensions.insert(Administrator(by.role));
        // On the service's own listener it may be a caller as well, who may do more.
        if connection.accepted_by().is_admin {
            parts.extensions.insert(by);
        }
    }
    if server.shared().guard.authenticates() {
        parts.extensions.insert(KnowsCallers(()));
    }
}

/// Requests for a path spend no rate: health, metrics, administration.
pub(super) fn is_uncounted(server: &Server, connection: &Connection, path: &str) -> bool {
    connection.accepted_by().is_admin
        || is_administration(server, path)
        || path == "/metrics"
        || path.starts_with("/health/")
}

/// Admits a request that is no command, and returns its caller.
///
/// Administration checks its own callers. Pages that show only the service's types, or that it lives, are open to everybody. On the
/// listener for administration, all other routes need an administrator, because the console uses the service's own routes, too.
pub(super) fn let_in(server: &Server, connection: &Connection, parts: &Parts) -> Answered<Option<Caller>> {
    let (path, accepted_by, guard) = (parts.uri.path(), connection.accepted_by(), &server.shared().guard);
    let sender = Sender::of(parts);
    let is_administration = is_administration(server, path);
    if is_administration && guard.has_admin_listener && !accepted_by.is_admin {
        return Err(Problem::no_administration_here().boxed());
    }
    let part = Part::of(accepted_by, is_administration);
    let is_open = pages::is_open(path) || server.shared().open_routes.iter().any(|open| open == path);
    if is_administration || is_open {
        guard.names.check(&sender, accepted_by.is_loopback, part)?;
        return Ok(None);
    }
    if accepted_by.is_admin {
        guard.names.check(&sender, accepted_by.is_loopback, part)?;
        admin::may(server, connection, &parts.headers, Role::of_method(&parts.method))?;
        return Ok(None);
    }
    access::enter(server, connection, &sender)
}

/// True if a path is administration's, on any listener.
pub(super) fn is_administration(server: &Server, path: &str) -> bool {
    path.starts_with("/admin/")
        || console::page::is_page(path)
        || path == "/metrics" && server.shared().guard.has_admin_listener
}
