use super::headers;
use crate::{
    caller::{Caller, MayAct},
    key::own_key,
    problem::Problem,
};
use axum::extract::FromRequestParts;
use http::request::Parts;
use throng::{Handle, model::Entity};

/// The request's `Idempotency-Key`, as an extractor for an app's route. With a key, the route's command takes effect once.
///
/// The key is read as the gateway's own routes read it: one of 1 to 255 visible ASCII characters, quoted or not. Any other is
/// refused with 400 (`malformed`). It is its caller's own, by these routes, too: the same key of another caller is another one.
/// Such a route changes something: on the listener for administration it needs an operator, whatever its method ([`MayAct`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once(Option<String>);

impl Once {
    /// Returns the entity's handle, with the request's key if it has one.
    #[must_use]
    pub fn of<E: Entity>(self, entity: Handle<E>) -> Handle<E> {
        match self.0 {
            Some(key) => entity.once(key),
            None => entity,
        }
    }

    /// Returns the request's key, if it has one, qualified by its caller, and so not as it was written.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Once {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        MayAct::from_request_parts(parts, state).await?;
        let key = headers::idempotency_key(&parts.headers).map_err(|problem| *problem)?;
        let caller = parts.extensions.get().map(Caller::name);
        Ok(Self(key.map(|key| own_key(caller, key.into()).into_owned())))
    }
}
