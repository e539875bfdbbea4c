//! Paths of the generic routes, matched undecoded. Only an id or name with a `%` is decoded.

use crate::problem::{Answered, Problem};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The parts of a path below `/api/`, still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPath<'a> {
    /// All of a kind: `/api/{kind}`
    Kind(&'a str),
    /// The entity itself: `/api/{kind}/{id}`
    Entity(&'a str, &'a str),
    /// A command or query of an entity, or its events: `/api/{kind}/{id}/{name}`
    Member(&'a str, &'a str, &'a str),
}

/// Matches a path; `None` if it is none of the generic routes'.
pub(crate) fn place(path: &str) -> Option<ApiPath<'_>> {
    let rest = path.strip_prefix("/api/")?;
    // Compares bytes, since this runs for every command. A vectored search is slower for parts as short as these.
    let split = |part: &str| part.as_bytes().iter().position(|byte| *byte == b'/');
    let Some(end) = split(rest) else {
        return (!rest.is_empty()).then_some(ApiPath::Kind(rest));
    };
    let (kind, rest) = (&rest[..end], &rest[end + 1..]);
    let (id, name) = match split(rest) {
        None => (rest, None),
        Some(end) => (&rest[..end], Some(&rest[end + 1..])),
    };
    if kind.is_empty() || id.is_empty() {
        return None;
    }
    match name {
        None => Some(ApiPath::Entity(kind, id)),
        Some(name) if name.is_empty() || split(name).is_some() => None,
        Some(name) => Some(ApiPath::Member(kind, id, name)),
    }
}

/// Decodes a part of a path; `None` if the result is not UTF-8.
pub(crate) fn decode(part: &str) -> Option<Cow<'_, str>> {
    if part.contains('%') {
        percent_decode_str(part).decode_utf8().ok()
    } else {
        Some(Cow::Borrowed(part))
    }
}

/// An entity's id from its part of the path.
pub(crate) fn entity_id(part: &str) -> Answered<Cow<'_, str>> {
    let id = decode(part).ok_or_else(|| {
        let detail = "The id is not UTF-8 once its %-escapes are decoded.";
        Problem::malformed(detail).at_field("id").boxed()
    });
    id.and_then(checked_id)
}

/// An entity's id, within its limits.
pub(crate) fn checked_id(id: Cow<'_, str>) -> Answered<Cow<'_, str>> {
    if !throng::limits::is_id(&id) {
        let most = throng::journal::Address::ID_BYTES_MAX;
        let detail = format!("The id has {} bytes; it may have 1 to {most}.", id.len());
        return Err(Problem::malformed(detail).at_field("id").boxed());
    }
    Ok(id)
}

/// A path's parts make the path again. Driven by `throng-fuzz`.
#[cfg(feature = "fuzzing")]
pub fn fuzzed(path: &str) {
    let parts = match place(path) {
        None => return,
        Some(ApiPath::Kind(kind)) => vec![kind],
        Some(ApiPath::Entity(kind, id)) => vec![kind, id],
        Some(ApiPath::Member(kind, id, name)) => vec![kind, id, name],
    };
    assert!(parts.iter().all(|part| !part.is_empty() && !part.contains('/')));
    assert_eq!(format!("/api/{}", parts.join("/")), path);
    for part in parts {
        assert!(decode(part).is_none_or(|decoded| decoded.len() <= part.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_kind_an_entity_or_a_member() {
        assert_eq!(place("/api/section"), Some(ApiPath::Kind("section")));
        assert_eq!(place("/api/section/S1"), Some(ApiPath::Entity("section", "S1")));
        assert_eq!(
            place("/api/section/S1/add"),
            Some(ApiPath::Member("section", "S1", "add"))
        );
        assert_eq!(
            place("/api/section/a%2Fb/add"),
            Some(ApiPath::Member("section", "a%2Fb", "add"))
        );
    }

    #[test]
    fn a_path_with_an_empty_part_or_a_part_too_many_is_no_route() {
        for path in [
            "/",
            "/api",
            "/api/",
            "/api//x",
            "/api/k/",
            "/api/k//c",
            "/api/k/i/",
            "/api/k/i/c/",
            "/api/k/i/c/d",
            "/apix/k",
        ] {
            assert_eq!(place(path), None, "{path}");
        }
    }

    #[test]
    fn parts_are_decoded_once_and_only_to_text() {
        assert_eq!(decode("C%20S%20142-1").as_deref(), Some("C S 142-1"));
        assert_eq!(decode("a%2Fb%252F").as_deref(), Some("a/b%2F"));
        assert_eq!(decode("a+b").as_deref(), Some("a+b"), "a plus is a plus in a path");
        assert_eq!(decode("%ff"), None);
        assert!(matches!(decode("plain"), Some(Cow::Borrowed("plain"))));
    }
}
