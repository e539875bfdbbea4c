//! Header fields the gateway honours.

use crate::{admission::Client, connection::client_named, key::checked_key, problem::Problem};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::{
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Takes effect once under this key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header that limits the time the asker waits.
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");
/// The same header as older clients write it.
const X_REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// Refuses a repeated field that defines the request, its caller or its page: one would be checked, and the other used.
pub(crate) fn are_single(headers: &HeaderMap) -> Result<(), Box<Problem>> {
    for (field, name) in [
        ("Host", header::HOST),
        ("Origin", header::ORIGIN),
        ("Content-Type", header::CONTENT_TYPE),
        ("Authorization", header::AUTHORIZATION),
    ] {
        is_single(headers, &name, field)?;
    }
    Ok(())
}

/// Refuses a repeated field of this name.
pub(crate) fn is_single(headers: &HeaderMap, name: &HeaderName, field: &str) -> Result<(), Box<Problem>> {
    if headers.get_all(name).iter().nth(1).is_none() {
        return Ok(());
    }
    let detail = format!("The header {field} is given more than once. Nothing was done.");
    Err(Problem::malformed(detail).at_field(field).boxed())
}

/// True if there are no fields, or only an idempotency key.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    headers.is_empty() || headers.keys().all(|name| *name == IDEMPOTENCY_KEY)
}

/// The idempotency key, without the quotes a structured field has.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Box<Problem>> {
    const FIELD: &str = "Idempotency-Key";
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    is_single(headers, &IDEMPOTENCY_KEY, FIELD)?;
    let written = value.as_bytes();
    let quoted = written.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let key = checked_key(quoted.unwrap_or(written)).map_err(|wrong| {
        Problem::malformed(format!("The header {FIELD} {wrong}."))
            .at_field(FIELD)
            .boxed()
    })?;
    Ok(Some(key))
}

/// True if a field of this name limits the wait for the answer.
pub(crate) fn is_timeout(name: &str) -> bool {
    // Compares the lengths first: most names need no further comparison.
    match name.len() {
        15 => name.eq_ignore_ascii_case(REQUEST_TIMEOUT.as_str()),
        17 => name.eq_ignore_ascii_case(X_REQUEST_TIMEOUT.as_str()),
        _ => false,
    }
}

/// Returns the time that the asker waits: the request's own, or the default.
pub(crate) fn timeout(headers: &HeaderMap, default: Duration, longest: Duration) -> Result<Duration, Box<Problem>> {
    is_single(headers, &REQUEST_TIMEOUT, "Request-Timeout")?;
    is_single(headers, &X_REQUEST_TIMEOUT, "X-Request-Timeout")?;
    let (name, value) = match headers.get(REQUEST_TIMEOUT) {
        Some(value) => ("Request-Timeout", value),
        None => match headers.get(X_REQUEST_TIMEOUT) {
            Some(value) => ("X-Request-Timeout", value),
            None => return Ok(default),
        },
    };
    let parsed = value
        .to_str()
        .ok()
        .and_then(duration)
        .filter(|duration| *duration <= longest);
    parsed.ok_or_else(|| {
        let found = String::from_utf8_lossy(value.as_bytes());
        let longest = longest.as_secs_f64();
        let expected = format!(
            "expected seconds such as 2 or 0.5, or milliseconds such as 500ms, more than 0 and at most {longest} s"
        );
        Problem::malformed(format!("The header {name} is {found:?}; {expected}."))
            .at_field(name)
            .boxed()
    })
}

/// Parses `2`, `0.5`, `2s`, `500ms`: more than zero.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit_seconds) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 0.001),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let number = number.trim_end();
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = plain.then(|| number.parse::<f64>().ok())?? * unit_seconds;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
}

/// Checks that the body says that it is JSON, even an empty one: a browser lets a page of any site send other types. It must be UTF-8 and
/// uncompressed.
pub(crate) fn json_content(headers: &HeaderMap) -> Result<(), Box<Problem>> {
    let text = match headers.get(header::CONTENT_TYPE) {
        Some(value) if value == "application/json" => return uncoded(headers),
        Some(value) => value.to_str().unwrap_or("?"),
        None => "",
    };
    let media = text.split(';').next().unwrap_or("").trim();
    let json = media.eq_ignore_ascii_case("application/json")
        || (media.len() > 5
            && media.is_char_boundary(media.len() - 5)
            && media[media.len() - 5..].eq_ignore_ascii_case("+json"));
    if json {
        is_utf8(headers)?;
        uncoded(headers)
    } else {
        Err(Problem::unsupported_media(text).boxed())
    }
}

/// Checks that the body is not compressed.
pub(crate) fn uncoded(headers: &HeaderMap) -> Result<(), Box<Problem>> {
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let mut codings = text.split(',').map(str::trim);
        if codings.any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity")) {
            return Err(Problem::unsupported_coding(&text).boxed());
        }
    }
    Ok(())
}

/// Checks that the body's text is UTF-8, as far as its media type says.
pub(crate) fn is_utf8(headers: &HeaderMap) -> Result<(), Box<Problem>> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    for parameter in media.unwrap_or_default().split(';').skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let charset = value.trim().trim_matches('"');
        let is_other = !["utf-8", "utf8"].iter().any(|own| charset.eq_ignore_ascii_case(own));
        if name.trim().eq_ignore_ascii_case("charset") && is_other {
            return Err(Problem::unsupported_charset(charset).boxed());
        }
    }
    Ok(())
}

/// The token a request shows.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the client that a trusted header names: its last element, which the nearest of several proxies has added. An address is
/// recognized in any notation and with any port; `None`: the header names no client.
pub(crate) fn client(headers: &HeaderMap, name: &HeaderName) -> Option<Client> {
    if let Some(address) = client_address(headers, name) {
        return Some(client_named(address));
    }
    let named = last_element(headers, name);
    let mut hasher = std::hash::DefaultHasher::new();
    named.hash(&mut hasher);
    // A named client is never this machine itself.
    (!named.is_empty()).then(|| hasher.finish() | 1)
}

/// Returns the address of the client that such a header names; `None` if it is not an address, for example a key.
pub(crate) fn client_address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let text = std::str::from_utf8(last_element(headers, name)).ok()?;
    let of_socket = || Some(text.parse::<SocketAddr>().ok()?.ip());
    let in_brackets = || {
        text.strip_prefix('[')?
            .strip_suffix(']')?
            .parse::<Ipv6Addr>()
            .ok()
            .map(IpAddr::V6)
    };
    let address = text.parse().ok().or_else(of_socket).or_else(in_brackets);
    address.map(|address: IpAddr| address.to_canonical())
}

fn last_element<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a [u8] {
    let last = headers.get_all(name).into_iter().next_back();
    let mut elements = last.map_or(&[][..], HeaderValue::as_bytes).rsplit(|byte| *byte == b',');
    elements.next().unwrap_or_default().trim_ascii()
}

/// Returns the announced length of the body.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// True if the client asks for a live stream.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    accepts(headers, "text/event-stream")
}

/// The client takes answers compressed by gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(header::ACCEPT_ENCODING).iter();
    fields.any(|field| {
        let mut codings = field.to_str().unwrap_or_default().split(',').map(str::trim);
        codings.any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
            let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
            name.trim() == "gzip" && weight.parse().is_ok_and(|weight: f32| weight > 0.0)
        })
    })
}

/// True if the client has the version with this tag (RFC 9110 §13.1.2: weak tags suffice).
pub(crate) fn knows(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
    let own = tag.to_str().map(opaque).unwrap_or_default();
    let mut fields = headers.get_all(header::IF_NONE_MATCH).iter();
    fields.any(|field| {
        let mut tags = field.to_str().unwrap_or_default().split(',').map(str::trim);
        tags.any(|tag| tag == "*" || opaque(tag) == own)
    })
}

/// True if the client asks for a page.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

/// True if the client accepts metrics in the newer format, too.
pub(crate) fn wants_open_metrics(headers: &HeaderMap) -> bool {
    accepts(headers, "application/openmetrics-text")
}

fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let mut accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted.any(|text| {
        text.split(',')
            .any(|one| one.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(media))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn timeouts_are_seconds_or_milliseconds() {
        let of = |text| {
            timeout(
                &with(REQUEST_TIMEOUT, text),
                Duration::from_secs(5),
                Duration::from_secs(3_600),
            )
            .ok()
        };
        assert_eq!(of("2"), Some(Duration::from_secs(2)));
        assert_eq!(of("0.25"), Some(Duration::from_millis(250)));
        assert_eq!(of("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(of("1.5 s"), Some(Duration::from_millis(1_500)));
        assert_eq!(of("3600"), Some(Duration::from_secs(3_600)));
        for wrong in [
            "",
            "0",
            "-1",
            "soon",
            "1e3",
            "nan",
            "inf",
            "3600.1",
            "5m",
            ".",
            "99999999999999999999",
        ] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_timeout_may_come_under_its_older_name_or_not_at_all() {
        let default = Duration::from_secs(5);
        let longest = Duration::from_secs(10);
        assert_eq!(
            timeout(&with(X_REQUEST_TIMEOUT, "1"), default, longest).ok(),
            Some(Duration::from_secs(1))
        );
        assert_eq!(timeout(&HeaderMap::new(), default, longest).ok(), Some(default));
    }

    #[test]
    fn an_idempotency_key_stands_once_quoted_or_not() {
        let of =
            |text: &str| idempotency_key(&with(IDEMPOTENCY_KEY, text)).map_err(|problem| problem.detail().to_owned());
        assert_eq!(of("abc"), Ok(Some("abc".into())));
        assert_eq!(
            of("\"abc\""),
            Ok(Some("abc".into())),
            "a structured field's quotes are not part of the key"
        );
        assert_eq!(of("\""), Ok(Some("\"".into())));
        assert!(of("\"\"").is_err_and(|why| why.starts_with("The header Idempotency-Key is empty; expected one key")));
        assert_eq!(idempotency_key(&HeaderMap::new()).ok(), Some(None));
        let mut twice = with(IDEMPOTENCY_KEY, "a");
        twice.append(IDEMPOTENCY_KEY, HeaderValue::from_static("b"));
        assert!(idempotency_key(&twice).is_err());
    }

    #[test]
    fn a_client_is_the_last_one_a_trusted_header_names() {
        let of = |text| {
            client(
                &with(HeaderName::from_static("x-forwarded-for"), text),
                &HeaderName::from_static("x-forwarded-for"),
            )
        };
        assert_eq!(of("10.0.0.1"), of("1.2.3.4, 10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.1, 1.2.3.4"));
        assert_eq!(of("10.0.0.1"), of("10.0.0.1:8080"));
        assert_eq!(of("2001:db8::1"), of("[2001:db8::2]:80"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("a key"), of("another key"));
        for own in ["127.0.0.1", "::1", "a key"] {
            assert_ne!(of(own), Some(crate::admission::LOCAL), "{own}");
        }
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_header_names_an_address_or_something_else() {
        let of = |text| {
            let name = HeaderName::from_static("x-forwarded-for");
            client_address(&with(name.clone(), text), &name).map(|address| address.to_string())
        };
        for (text, address) in [
            ("192.0.2.7", "192.0.2.7"),
            ("10.0.0.1, 192.0.2.7:8080", "192.0.2.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:8080", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(of(text).as_deref(), Some(address), "{text}");
        }
        for text in ["", "a key that is secret", "192.0.2.7, unknown", "192.0.2"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_body_says_that_it_is_json() {
        let is = |text: &str| json_content(&with(header::CONTENT_TYPE, text)).is_ok();
        assert!(is("application/json") && is("Application/JSON; charset=utf-8") && is("application/problem+json"));
        assert!(is("application/json;charset=\"UTF-8\"") && is("application/json; profile=x; charset=utf8"));
        for charset in ["iso-8859-1", "utf-16", "\"us-ascii\"", ""] {
            assert!(!is(&format!("application/json; charset={charset}")), "{charset}");
        }
        assert!(!is("text/plain") && !is("application/x-www-form-urlencoded") && !is("json") && !is(""));
        assert!(json_content(&HeaderMap::new()).is_err_and(|problem| problem.detail().contains("no Content-Type")));
    }

    #[test]
    fn a_stream_is_asked_for_by_its_media_type() {
        assert!(wants_stream(&with(
            header::ACCEPT,
            "text/html, text/event-stream;q=0.9"
        )));
        assert!(!wants_stream(&with(header::ACCEPT, "*/*")) && !wants_stream(&HeaderMap::new()));
    }

    #[test]
    fn gzip_is_taken_unless_its_weight_is_nothing() {
        for taken in ["gzip", "br, gzip", "gzip;q=0.1, identity;q=0", "deflate, gzip; q=1.0"] {
            assert!(takes_gzip(&with(header::ACCEPT_ENCODING, taken)), "{taken}");
        }
        for not in ["", "br", "gzip;q=0", "gzip; q=0.000", "x-gzip", "gzip;q=none"] {
            assert!(!takes_gzip(&with(header::ACCEPT_ENCODING, not)), "{not}");
        }
    }

    #[test]
    fn a_tag_is_known_weak_or_strong_and_among_others() {
        let tag = HeaderValue::from_static("W/\"a\"");
        for known in ["W/\"a\"", "\"a\"", "\"b\", W/\"a\"", "*"] {
            assert!(knows(&with(header::IF_NONE_MATCH, known), &tag), "{known}");
        }
        for unknown in ["", "a", "\"b\"", "W/\"A\""] {
            assert!(!knows(&with(header::IF_NONE_MATCH, unknown), &tag), "{unknown}");
        }
    }
}
