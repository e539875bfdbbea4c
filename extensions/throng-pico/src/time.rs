//! Times in the form of rulesets.

/// Returns milliseconds since 1970 as JavaScript writes a time: `2026-11-23T05:10:42.000Z`.
pub(crate) fn text(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_milliseconds() {
        assert_eq!(super::text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(super::text(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
    }
}
