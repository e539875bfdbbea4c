//! Queries: a read without a write.

use super::{Entity, Message, Moment};

/// A read without a write. Each query is a type, so that its answer has its own type. Over HTTP: `GET
/// /api/{kind}/{id}/{NAME}`, its fields from the query string. It never creates an entity and never writes.
pub trait Query<E: Entity>: Message {
    /// The query's name in the route. `view` answers `GET /api/{kind}/{id}`.
    const NAME: &'static str;
    /// The answer to the query.
    type Answer: Message;

    /// Answers the query from the state.
    ///
    /// # Errors
    /// The entity's [`Rejection`](Entity::Rejection).
    fn answer(self, entity: &E, moment: &Moment<'_, E>) -> Result<Self::Answer, E::Rejection>;
}

/// The name of the query that answers `GET /api/{kind}/{id}`.
pub struct View;

impl View {
    /// The name to give to the query that answers that route. A WebSocket message that names no query means it, too.
    pub const NAME: &'static str = "view";
}
