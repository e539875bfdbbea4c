//! Reads and builds a message's properties, and computes their length.

use crate::{
    Message,
    repair::SUBSTITUTE,
    resend::{ROUTING_KEY, text},
};
use lapin::{
    BasicProperties,
    message::Delivery,
    types::{AMQPValue, FieldTable, ShortString, ShortStringError},
};
use std::borrow::Cow;

/// Returns a delivery as a message, without its body.
pub(crate) fn message(delivery: &Delivery) -> Message {
    let properties = &delivery.properties;
    let text_of = |text: &Option<ShortString>| text.as_ref().map(|text| text.as_str().to_owned());
    // A damaged text counts as missing, except for the id.
    let whole = |text: &Option<ShortString>| text_of(text).filter(|text| !text.contains(SUBSTITUTE));
    let shared = |text: &Option<ShortString>| whole(text).map(Cow::Owned);
    let headers = properties.headers().as_ref();
    // A dead letter that was sent again to its queue has its original routing key in a header.
    let first_key = match delivery.exchange.as_str().is_empty() {
        true => headers.and_then(|headers| text(headers, ROUTING_KEY)),
        false => None,
    };
    let values = headers.into_iter().flat_map(FieldTable::inner);
    Message {
        body: Vec::new(),
        id: text_of(properties.message_id()),
        routing_key: first_key.unwrap_or_else(|| delivery.routing_key.as_str().to_owned()),
        content_type: shared(properties.content_type()),
        content_encoding: shared(properties.content_encoding()),
        message_type: shared(properties.kind()),
        correlation_id: whole(properties.correlation_id()),
        reply_to: whole(properties.reply_to()),
        headers: values
            .filter_map(|(name, value)| Some((Cow::Owned(name.as_str().to_owned()), value_text(value)?)))
            .collect(),
    }
}

/// Returns a header's value as a text, or `None` if it is not a text, number or boolean.
fn value_text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::ShortString(text) => text.as_str().to_owned(),
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok()?.to_owned(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(number) => number.to_string(),
        AMQPValue::ShortShortUInt(number) => number.to_string(),
        AMQPValue::ShortInt(number) => number.to_string(),
        AMQPValue::ShortUInt(number) => number.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongUInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        AMQPValue::Timestamp(number) => number.to_string(),
        AMQPValue::Float(number) => number.to_string(),
        AMQPValue::Double(number) => number.to_string(),
        _ => return None,
    })
}

type Set = fn(BasicProperties, ShortString) -> BasicProperties;

/// Returns the properties of a message to be published under this id.
pub(crate) fn published(message: &Message, id: &str) -> Result<BasicProperties, ShortStringError> {
    let mut properties = BasicProperties::default().with_message_id(ShortString::try_new(id)?);
    let set: [(Option<&str>, Set); 5] = [
        (message.content_type.as_deref(), BasicProperties::with_content_type),
        (
            message.content_encoding.as_deref(),
            BasicProperties::with_content_encoding,
        ),
        (message.message_type.as_deref(), BasicProperties::with_type),
        (message.correlation_id.as_deref(), BasicProperties::with_correlation_id),
        (message.reply_to.as_deref(), BasicProperties::with_reply_to),
    ];
    for (text, with) in set {
        if let Some(text) = text {
            properties = with(properties, ShortString::try_new(text)?);
        }
    }
    if message.headers.is_empty() {
        return Ok(properties);
    }
    let mut headers = FieldTable::default();
    for (name, value) in &message.headers {
        headers.insert(
            ShortString::try_new(&**name)?,
            AMQPValue::LongString(value.as_str().into()),
        );
    }
    Ok(properties.with_headers(headers))
}

/// Returns a message's properties such that another user can publish and keep it. Removed are the publisher's name, which the broker
/// checks, the expiry, and texts that are not UTF-8.
pub(crate) fn republished(properties: &BasicProperties) -> BasicProperties {
    let text = |text: &Option<ShortString>| text.clone().filter(|text| !text.as_str().contains(SUBSTITUTE));
    let mut kept = BasicProperties::default();
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

/// Returns the length of the frame with these properties.
pub(crate) fn header_bytes(properties: &BasicProperties) -> usize {
    // 7 bytes before and 1 after the payload; class, weight, body size, flags.
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
