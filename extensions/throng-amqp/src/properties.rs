//! A message's properties: as another may publish them, and how long they are.

use crate::repair::SUBSTITUTE;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};

/// A message's properties as another user may publish them, to be kept: without its publisher's name, which the broker checks; without the time after
/// which it expires; without texts that are not UTF-8.
pub(crate) fn republished(properties: &BasicProperties) -> BasicProperties {
    let text = |text: &Option<ShortString>| text.clone().filter(|text| !text.as_str().contains(SUBSTITUTE));
    let mut kept = BasicProperties::default();
    type Set = fn(BasicProperties, ShortString) -> BasicProperties;
    let set: [(Option<ShortString>, Set); 8] = [
        (text(properties.content_type()), BasicProperties::with_content_type),
        (
            text(properties.content_encoding()),
            BasicProperties::with_content_encoding,
        ),
        (text(properties.correlation_id()), BasicProperties::with_correlation_id),
        (text(properties.reply_to()), BasicProperties::with_reply_to),
        (text(properties.message_id()), BasicProperties::with_message_id),
        (text(properties.kind()), BasicProperties::with_type),
        (text(properties.app_id()), BasicProperties::with_app_id),
        (text(properties.cluster_id()), BasicProperties::with_cluster_id),
    ];
    for (value, with) in set {
        kept = value.into_iter().fold(kept, with);
    }
    let (headers, mode) = (properties.headers().clone(), *properties.delivery_mode());
    let (priority, timestamp) = (*properties.priority(), *properties.timestamp());
    kept = headers.into_iter().fold(kept, BasicProperties::with_headers);
    kept = mode.into_iter().fold(kept, BasicProperties::with_delivery_mode);
    kept = priority.into_iter().fold(kept, BasicProperties::with_priority);
    timestamp.into_iter().fold(kept, BasicProperties::with_timestamp)
}

/// The length of the frame with these properties.
pub(crate) fn header_bytes(properties: &BasicProperties) -> usize {
    // The frame's own seven and one; class, weight, body size, flags.
    const FIXED: usize = 7 + 1 + 2 + 2 + 8 + 2;
    let texts = [
        properties.content_type(),
        properties.content_encoding(),
        properties.correlation_id(),
        properties.reply_to(),
        properties.expiration(),
        properties.message_id(),
        properties.kind(),
        properties.user_id(),
        properties.app_id(),
        properties.cluster_id(),
    ];
    let texts: usize = texts.into_iter().flatten().map(|text| 1 + text.as_str().len()).sum();
    let headers = properties.headers().as_ref().map_or(0, table_bytes);
    let bytes = usize::from(properties.delivery_mode().is_some()) + usize::from(properties.priority().is_some());
    FIXED + texts + headers + bytes + 8 * usize::from(properties.timestamp().is_some())
}

fn table_bytes(table: &FieldTable) -> usize {
    let entry = |(key, value): (&ShortString, &AMQPValue)| 1 + key.as_str().len() + value_bytes(value);
    4 + table.inner().iter().map(entry).sum::<usize>()
}

/// Returns the bytes of a value with its type.
fn value_bytes(value: &AMQPValue) -> usize {
    1 + match value {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => 4 + text.as_bytes().len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.as_slice().len(),
        AMQPValue::FieldArray(values) => 4 + values.as_slice().iter().map(value_bytes).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_bytes(table),
    }
}
