//! Rules for a request's target and host, shared by all parsers of heads.

/// The bytes allowed in a path: those of RFC 3986, and the brackets and bars that browsers leave as they are.
const PATH: u8 = 1;
/// In a query: browsers leave more as it is.
const QUERY: u8 = 2;
/// In a host's name or address.
const HOST: u8 = 4;

/// The parts (`PATH`, `QUERY`, `HOST`) in which each byte is allowed.
static ALLOWED: [u8; 256] = allowed();

const fn allowed() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        let one = byte as u8;
        let unreserved = one.is_ascii_alphanumeric() || matches!(one, b'-' | b'.' | b'_' | b'~');
        let delimiter = matches!(
            one,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'/' | b'%'
        );
        let left_in_paths = matches!(one, b'[' | b']' | b'|');
        let left_in_queries = matches!(one, b'?' | b'{' | b'}' | b'^' | b'`' | b'\\');
        if unreserved {
            table[byte] |= HOST;
        }
        if unreserved || delimiter || left_in_paths {
            table[byte] |= PATH | QUERY;
        }
        if left_in_queries {
            table[byte] |= QUERY;
        }
        byte += 1;
    }
    table
}

/// True if all of these bytes are allowed there. It has no branch for each byte, since it runs for every request.
fn all(bytes: &[u8], place: u8) -> bool {
    bytes
        .iter()
        .fold(place, |so_far, byte| so_far & ALLOWED[usize::from(*byte)])
        == place
}

/// Returns a target without its query, if it is valid: path and query, or an absolute URL, without a fragment and without bytes that have
/// to be percent-encoded.
pub(crate) fn path_of(target: &str) -> Option<&str> {
    // A path holds no question mark.
    if all(target.as_bytes(), PATH) {
        return Some(target);
    }
    let (path, query) = target.split_once('?')?;
    (all(path.as_bytes(), PATH) && all(query.as_bytes(), QUERY)).then_some(path)
}

/// Parses a number that consists of digits alone.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!digits.is_empty()).then_some(number)
}

/// True if this is a valid `Host`: a name or an IP address, with or without a port, or nothing.
pub(crate) fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if host.last() != Some(&b']') => (&host[..colon], &host[colon + 1..]),
        _ => (host, &[][..]),
    };
    let is_port = port.is_empty() || port.len() <= 5 && number(port).is_some_and(|port| port <= u16::MAX.into());
    let is_name = match name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")) {
        None => all(name, HOST),
        Some(address) => std::str::from_utf8(address).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok()),
    };
    is_port && is_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_differ_in_characters_and_have_no_fragment() {
        for target in [
            "/",
            "/a/b%20c",
            "/a[1]|b",
            "/?a=[b]&c={d}|e^f`g\\h?i",
            "*",
            "http://a:1/b?c",
            "/a%zz",
        ] {
            assert_eq!(path_of(target), target.split('?').next(), "{target}");
        }
        for target in [
            "/a#b", "/?a#b", "/a<b", "/a\"", "/a^", "/a`", "/{a}", "/a\\b", "/é", "/?é", "/a b", "/?<",
        ] {
            assert!(path_of(target).is_none(), "{target}");
        }
    }

    #[test]
    fn a_number_is_digits_and_fits() {
        for (digits, is) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
        ] {
            assert_eq!(number(digits.as_bytes()), is);
        }
        for no in ["", "+2", "-1", "2 ", "2,2", "0x2", "18446744073709551616", "é"] {
            assert_eq!(number(no.as_bytes()), None, "{no}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in [
            "",
            "a",
            "a.example:80",
            "127.0.0.1:65535",
            "[::1]",
            "[2001:db8::1]:8080",
            "a:",
            "a_b-c~",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "a b", "a,b", "a/b", "a:b", "a:65536", "a:000080", "[::1", "::1", "[a]", "a@b", "é", "a:1:2",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
