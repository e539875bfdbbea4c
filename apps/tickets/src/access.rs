//! The roles: customers have their own orders, the box office has all orders, and everyone sees the concerts on sale.

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

/// The access policy for callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Each caller has the role of its credentials.
    Guarded,
    /// Every caller is the box office.
    Open,
}

/// The role of a caller.
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
    /// Returns the role of a caller who orders, pays or reads an order.
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

    /// Guards the generic routes: only the box office may use them, except for reading concerts on sale.
    #[must_use]
    pub fn guard(self, gateway: Gateway) -> Gateway {
        gateway.authorize(move |access: &Access<'_>| match access.action {
            Action::Query(_) | Action::List if access.kind == Concert::KIND => Ok(()),
            _ if self == Self::Open || access.caller.is_some_and(is_box_office) => Ok(()),
            _ => Err(Problem::forbidden("That is for the box office.").into()),
        })
    }
}
