//! The place of a piece of work in a distributed trace: W3C Trace Context.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, fmt, str::FromStr};

/// The position in a trace that a `traceparent` names (W3C Trace Context §3.2), as received or passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace's id; not zero. Two halves keep the alignment, and so the size, small.
    trace: [u64; 2],
    /// The span's id; not zero.
    pub span: u64,
    /// The trace is recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Returns the context of a span; `None` if an id is zero, which means none.
    #[must_use]
    pub fn new(trace: u128, span: u64, is_sampled: bool) -> Option<Self> {
        let halves = [(trace >> 64) as u64, trace as u64];
        (trace != 0 && span != 0).then_some(Self {
            trace: halves,
            span,
            is_sampled,
        })
    }

    /// Returns the trace's id.
    #[must_use]
    pub fn trace(&self) -> u128 {
        u128::from(self.trace[0]) << 64 | u128::from(self.trace[1])
    }

    /// Returns the context of another span of this trace.
    #[must_use]
    pub fn with_span(self, span: u64) -> Self {
        let span = span.max(1);
        Self { span, ..self }
    }
}

/// A text is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no traceparent of the form 00-TRACE-PARENT-FLAGS")]
pub struct NoTraceContext;

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    fn from_str(text: &str) -> Result<Self, NoTraceContext> {
        let mut parts = text.splitn(5, '-');
        let mut part = |length| {
            let part = parts.next().filter(|part| is_hex(part, length));
            part.ok_or(NoTraceContext)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may add parts at the end.
        if version == "ff" || version == "00" && parts.next().is_some() {
            return Err(NoTraceContext);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| NoTraceContext)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| NoTraceContext)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| NoTraceContext)?;
        Self::new(trace, span, flags & 1 == 1).ok_or(NoTraceContext)
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(formatter, "00-{:032x}-{:016x}-{flags:02x}", self.trace(), self.span)
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a recorded context. A malformed text counts as no context, so that no message is lost because of its trace.
pub(crate) fn if_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<TraceContext>>, D::Error> {
    let text: Option<Cow<'de, str>> = Option::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()).map(Box::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    #[test]
    fn traceparent_names_trace_parent_and_sampling() {
        let sampled = format!("00-{TRACE}-{PARENT}-01");
        let expected = TraceContext::new(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, true);
        assert_eq!(sampled.parse().ok(), expected);
        assert_eq!(expected.unwrap().to_string(), sampled);
        let unsampled: TraceContext = format!("00-{TRACE}-{PARENT}-02").parse().unwrap();
        assert!(!unsampled.is_sampled);
        let later = format!("cc-{TRACE}-{PARENT}-01-what-comes-later");
        assert_eq!(later.parse().ok(), expected);
    }

    #[test]
    fn malformed_traceparent_is_refused() {
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
            assert_eq!(wrong.parse::<TraceContext>(), Err(NoTraceContext), "{wrong}");
        }
    }
}
