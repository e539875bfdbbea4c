//! Parameters with their types. Without them the server would be asked for the types first, in another round trip; and with them several
//! statements of one transaction can be sent together.

use tokio_postgres::types::{ToSql, Type};

pub(crate) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

pub(crate) fn number(value: &i64) -> Typed<'_> {
    (value, Type::INT8)
}

pub(crate) fn numbers<T: ToSql + Sync>(values: &T) -> Typed<'_> {
    (values, Type::INT8_ARRAY)
}

/// Types shards as [`numbers`](crate::columns::numbers) gives them.
pub(crate) fn shards<T: ToSql + Sync>(values: &T) -> Typed<'_> {
    (values, Type::INT4_ARRAY)
}

pub(crate) fn text<T: ToSql + Sync>(value: &T) -> Typed<'_> {
    (value, Type::TEXT)
}

pub(crate) fn bytes<T: ToSql + Sync>(value: &T) -> Typed<'_> {
    (value, Type::BYTEA)
}

pub(crate) fn float(value: &f64) -> Typed<'_> {
    (value, Type::FLOAT8)
}
