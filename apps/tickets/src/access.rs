//! The roles: a customer has own orders, the box office all of them, and everybody sees what is on sale.

#![allow(
    clippy::result_large_err,
    reason = "a problem is rare, and handlers return it as it is"
)]

use crate::concert::Concert;
use throng_app::{
    http::{Access, Action, Caller, Gateway, Means, Problem},
    model::Entity,
};

/// The role of the box office: in the claim `roles` of a JSON web token, or the name of a token of the service's own file.
pub const BOX_OFFICE: &str = "box-office";

/// The counter at which callers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Callers are who their credentials say.
    Guarded,
    /// Everybody is the box office.
    Open,
}

/// The role in which a caller asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    BoxOffice,
    /// A customer, by name.
    Customer(String),
}

fn is_box_office(caller: &Caller) -> bool {
    let roles = caller.claims().get("roles").and_then(|roles| roles.as_array());
    let has_role = roles.is_some_and(|roles| roles.iter().any(|role| role == BOX_OFFICE));
    has_role || (caller.means() == Means::Token && caller.name() == BOX_OFFICE)
}

impl Counter {
    /// The role of a caller who orders, pays or looks at an order.
    pub(crate) fn role(self, caller: Option<&Caller>) -> Result<Role, Problem> {
        match caller {
            _ if self == Self::Open => Ok(Role::BoxOffice),
            Some(caller) if is_box_office(caller) => Ok(Role::BoxOffice),
            Some(caller) => Ok(Role::Customer(caller.name().to_owned())),
            None => Err(Problem::unauthorized(
                "Say who you are: the service takes tokens (`serve --tokens`), or everybody (`serve --role trial`).",
            )),
        }
    }

    /// Guards the generic routes: all of them are the box office's, but for what is on sale.
    #[must_use]
    pub fn guard(self, gateway: Gateway) -> Gateway {
        gateway.authorize(move |access: &Access<'_>| match access.action {
            Action::Query(_) | Action::List if access.kind == Concert::KIND => Ok(()),
            _ if self == Self::Open || access.caller.is_some_and(is_box_office) => Ok(()),
            _ => Err(Problem::forbidden("That is for the box office.").into()),
        })
    }
}
