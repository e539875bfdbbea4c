//! Fields of a kind's state by which its entities are filtered.

use serde_json::Value;

/// A field by which an operator filters the entities of a kind.
pub struct IndexedField<E> {
    name: &'static str,
    read: fn(&E) -> Value,
}

impl<E> IndexedField<E> {
    /// A field of this name, read from the state. A list meets a condition if one of its members does. Of a text the first
    /// [`INDEXED_BYTES_MAX`](crate::limits::INDEXED_BYTES_MAX) bytes count. An object says that the value is not known: a filter on it counts the
    /// entity as unknown. Lists are not known either where an entity's fields have more than
    /// [`INDEXED_ROW_BYTES_MAX`](crate::limits::INDEXED_ROW_BYTES_MAX) bytes as JSON. The field is read under the lock of the entity's shard, so
    /// a long list is better not known.
    ///
    /// Raise the kind's `STATE_VERSION`, or rename the field, when its values change their meaning: those in the store are read until then.
    #[must_use]
    pub const fn of(name: &'static str, read: fn(&E) -> Value) -> Self {
        Self { name, read }
    }

    /// The field's name in a filter.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn read(&self, state: &E) -> Value {
        (self.read)(state)
    }
}
