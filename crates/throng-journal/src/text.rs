//! Text from outside.

/// Returns the reason, as part of a sentence, why JSON with a byte order mark cannot be read; `None` if it has none.
///
/// Some editors and shells write such a mark. A JSON parser would only report that it expected a value.
#[must_use]
pub fn byte_order_mark(text: &[u8]) -> Option<&'static str> {
    text.starts_with(b"\xEF\xBB\xBF")
        .then_some("it begins with a byte order mark (the bytes EF BB BF), which JSON does not have; leave that out")
}
