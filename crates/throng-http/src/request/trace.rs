//! W3C trace context: the request that a command is a part of.

use tracing::Span;

/// The header field.
pub(crate) const TRACEPARENT: http::HeaderName = http::HeaderName::from_static("traceparent");

/// The fields of a `traceparent` (W3C Trace Context §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent<'a> {
    /// 32 hexadecimal digits.
    pub(crate) trace: &'a str,
    /// 16 hexadecimal digits.
    pub(crate) parent: &'a str,
    /// The caller records this trace.
    pub(crate) is_sampled: bool,
}

/// Reads it; `None` if it is not well formed: such a one is ignored.
pub(crate) fn parse(text: &str) -> Option<TraceParent<'_>> {
    let (version, rest) = text.split_once('-')?;
    let (trace, rest) = rest.split_once('-')?;
    let (parent, rest) = rest.split_once('-')?;
    // Versions to come may add to the end.
    let (flags, more) = rest
        .split_once('-')
        .map_or((rest, None), |(flags, more)| (flags, Some(more)));
    let is_id = |id: &str, length| is_hex(id, length) && id.bytes().any(|digit| digit != b'0');
    let well_formed = is_hex(version, 2)
        && version != "ff"
        && is_id(trace, 32)
        && is_id(parent, 16)
        && is_hex(flags, 2)
        && (more.is_none() || version != "00");
    well_formed.then(|| TraceParent {
        trace,
        parent,
        is_sampled: u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1),
    })
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The span a command runs in, if its request is a part of a trace.
pub(crate) fn span(traceparent: Option<&str>, kind: &str, id: &str, command: &str) -> Option<Span> {
    let TraceParent {
        trace,
        parent,
        is_sampled,
    } = parse(traceparent?.trim())?;
    Some(tracing::info_span!(
        "command",
        trace_id = trace,
        parent_id = parent,
        sampled = is_sampled,
        kind,
        id,
        command
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    #[test]
    fn a_traceparent_names_the_trace_and_the_caller() {
        let sampled = format!("00-{TRACE}-{PARENT}-01");
        let expected = TraceParent {
            trace: TRACE,
            parent: PARENT,
            is_sampled: true,
        };
        assert_eq!(parse(&sampled), Some(expected));
        assert!(!parse(&format!("00-{TRACE}-{PARENT}-02")).unwrap().is_sampled);
        assert_eq!(
            parse(&format!("cc-{TRACE}-{PARENT}-01-what-comes-later")),
            Some(expected)
        );
    }

    #[test]
    fn one_that_is_not_well_formed_is_ignored() {
        let zeros = "0".repeat(32);
        for wrong in [
            "".into(),
            "00".into(),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{PARENT}-{TRACE}-01"),
            format!("0-{TRACE}-{PARENT}-01"),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }
}
