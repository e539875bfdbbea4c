//! The person or program behind a request for administration, and their role.

use super::{is_forwarded, now, who};
use crate::{
    caller::Role,
    connection::Connection,
    problem::{Answered, Problem},
    request::headers,
    server::Server,
};
use http::{HeaderMap, HeaderValue, header};

/// A person or program that has a role in administration.
#[derive(Clone, Debug)]
pub(crate) struct Administrates {
    /// The caller's name, the token's name in its file, `token` for that of `--admin-token`, or `local` for a program on this machine.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Administrates {
    /// Refuses requests that need a greater role.
    pub(crate) fn need(self, needed: Role) -> Answered<Self> {
        if self.role >= needed {
            return Ok(self);
        }
        let Self { name, role } = self;
        let detail = format!("{name} has the role {role} in administration, and this needs {needed}.");
        Err(Problem::forbidden(detail).boxed())
    }
}

/// Returns the role that a request's credentials give. Without configured roles, this machine's own programs are owners, through a listener
/// that only they can reach. A request that came through a proxy is not one of theirs.
pub(crate) fn administrates(server: &Server, connection: &Connection, headers: &HeaderMap) -> Answered<Administrates> {
    let roles = &server.shared().guard.roles;
    let given = headers::bearer(headers);
    if let Some((name, role)) = given.and_then(|given| roles.of_token(given, now())) {
        return Ok(Administrates { name, role });
    }
    let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    if roles.may_be_of_callers()
        && let Ok(Some(caller)) = who(server, connection, shown)
    {
        let name = caller.name();
        return match roles.of_caller(&caller) {
            Some(role) => Ok(Administrates {
                name: name.to_owned(),
                role,
            }),
            None => Err(Problem::forbidden(format!("{name} does not administrate this service.")).boxed()),
        };
    }
    if !roles.is_empty() {
        let detail = "The header Authorization does not hold this service's token for administration.";
        return Err(Problem::unauthorized(detail).boxed());
    }
    let is_local = connection.accepted_by().is_loopback && connection.client() == crate::admission::LOCAL;
    if is_local && !is_forwarded(headers) {
        let caller = who(server, connection, shown).ok().flatten();
        let nobody = if given.is_some() { "token" } else { "local" };
        return Ok(Administrates {
            name: caller.map_or_else(|| nobody.to_owned(), |caller| caller.name().to_owned()),
            role: Role::Owner,
        });
    }
    Err(Problem::no_administration().boxed())
}
