//! The operator of an action.

use crate::{
    access,
    caller::Caller,
    connection::Connection,
    problem::{Answered, Problem},
    request::headers,
    server::Server,
};
use http::{HeaderValue, header, request::Parts};
use std::fmt;
use throng::ByHand;

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

    pub(crate) fn name(&self) -> &str {
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

/// Who does it, and why: no record of it is without.
pub(crate) fn by_hand<'a>(by: &'a By<'_>, reason: &'a str) -> Answered<ByHand<'a>> {
    if reason.trim().is_empty() {
        return Err(Problem::malformed("reason is empty; say why, in a sentence.")
            .at_field("reason")
            .boxed());
    }
    Ok(ByHand {
        by: by.name().into(),
        reason: reason.trim().into(),
    })
}
