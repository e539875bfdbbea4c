//! Percent-encoding of path segments.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but RFC 3986's unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a text as one segment of a path.
#[must_use]
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn reserved_characters_of_a_path_are_encoded() {
        assert_eq!(segment("C S 142-1"), "C%20S%20142-1");
        assert_eq!(segment("a/b?c=d&e%#\u{e9}"), "a%2Fb%3Fc%3Dd%26e%25%23%C3%A9");
        assert_eq!(segment("A-z_0.9~"), "A-z_0.9~");
    }
}
