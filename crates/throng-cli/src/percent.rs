//! Ids in paths.

use std::fmt::Write as _;

/// The text as one segment of a path: everything but RFC 3986's unreserved characters is percent-encoded.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes any text");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn what_means_something_in_a_path_is_encoded() {
        assert_eq!(segment("C S 142-1"), "C%20S%20142-1");
        assert_eq!(segment("a/b?c=d&e%#\u{e9}"), "a%2Fb%3Fc%3Dd%26e%25%23%C3%A9");
        assert_eq!(segment("A-z_0.9~"), "A-z_0.9~");
    }
}
