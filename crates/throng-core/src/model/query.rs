//! Queries: a read without a write.

use super::{Entity, Message, Moment};

/// A read without a write. Each query is a type, so that its answer has its own type. Over HTTP: `GET
/// /api/{kind}/{id}/{NAME}`, its fields from the query string. It never creates an entity and never writes.
pub trait Query<E: Entity>: Message {
    /// `view` answers `GET /api/{kind}/{id}`.
    const NAME: &'static str;
    /// The answer to the query.
    type Answer: Message;

    /// Answers from the state.
    ///
    /// # Errors
    /// The entity's [`Rejection`](Entity::Rejection).
    fn answer(self, entity: &E, moment: &Moment<'_, E>) -> Result<Self::Answer, E::Rejection>;
}

/// The name under which a query answers `GET /api/{kind}/{id}`.
pub struct View;

impl View {
    /// The name of that query.
    pub const NAME: &'static str = "view";
}
