//! Text that comes from outside.

/// Why JSON that begins with a byte order mark cannot be read, in a part of a sentence; `None` if it begins with none.
///
/// Some editors and shells write one before all text. A parser of JSON expects a value there, and says no more than that.
#[must_use]
pub fn byte_order_mark(text: &[u8]) -> Option<&'static str> {
    text.starts_with(b"\xEF\xBB\xBF")
        .then_some("it begins with a byte order mark (the bytes EF BB BF), which JSON does not have; leave that out")
}
