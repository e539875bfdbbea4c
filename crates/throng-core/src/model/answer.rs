//! Exactly one answer a command.

use super::{CommandAnswer, Entity, Sent};

impl<E: Entity> CommandAnswer<E> {
    /// Replies from the state after the events. A function or a closure without captures allocates nothing.
    pub fn after(read: impl FnOnce(&E) -> E::Reply + Send + 'static) -> Self {
        Self::After(Box::new(read))
    }

    /// Has another entity answer the asker. Both have the same reply type, so that no conversion has to cross a wire. If this
    /// command also emits events or sends messages, the forwarded command is recorded with them. It is then taken exactly once,
    /// also after a crash.
    pub fn forward<T: Entity<Reply = E::Reply, Rejection = E::Rejection>>(
        to: impl Into<T::Id>,
        command: T::Command,
    ) -> Self {
        Self::Forward(Sent::to::<T>(&to.into(), command))
    }

    /// Forwards like [`forward`](Self::forward). If the command creates the answering entity, that entity becomes a child of this one. The
    /// asker gets its reply from the child.
    pub fn create<T: Entity<Reply = E::Reply, Rejection = E::Rejection>>(
        id: impl Into<T::Id>,
        command: T::Command,
    ) -> Self {
        let mut to = Sent::to::<T>(&id.into(), command);
        to.child = true;
        Self::Forward(to)
    }
}
