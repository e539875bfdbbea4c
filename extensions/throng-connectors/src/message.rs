//! A message, as brokers have it.

use std::borrow::Cow;

/// The header with the trace that a message is a part of (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";

/// A message that arrives or leaves. A source or target carries those properties that its protocol has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The payload, unchanged.
    pub body: Vec<u8>,
    /// The id by which a second copy is recognised, at most 255 bytes.
    pub id: Option<String>,
    /// The routing key, subject or partition key. A message that was a dead letter and is sent again has its original one.
    pub routing_key: String,
    /// The type of the body, for example `application/json`.
    pub content_type: Option<Cow<'static, str>>,
    /// The encoding of the body, for example `gzip`. The body is not decoded.
    pub content_encoding: Option<Cow<'static, str>>,
    /// The kind of message, for its readers.
    pub message_type: Option<Cow<'static, str>>,
    /// The request that this message answers.
    pub correlation_id: Option<String>,
    /// The address for answers.
    pub reply_to: Option<String>,
    /// Further headers, as texts. Numbers and booleans become texts; other values are left out.
    pub headers: Vec<(Cow<'static, str>, String)>,
}

impl Message {
    /// Returns a message with this id and body, without other properties.
    #[must_use]
    pub fn new(id: impl Into<String>, body: Vec<u8>) -> Self {
        Self {
            id: Some(id.into()),
            body,
            ..Self::default()
        }
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(header, _)| header == name);
        header.map(|(_, value)| value.as_str())
    }

    /// The bytes of the body and of its properties, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let shared = [&self.content_type, &self.content_encoding, &self.message_type];
        let shared: usize = shared.into_iter().flatten().map(|text| text.len()).sum();
        let own = [&self.id, &self.correlation_id, &self.reply_to];
        let own: usize = own.into_iter().flatten().map(String::len).sum();
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.body.len() + self.routing_key.len() + shared + own + headers.sum::<usize>()
    }
}
