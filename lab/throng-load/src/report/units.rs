//! Numbers for people.

/// Returns a time with three significant digits and its unit.
pub fn nanos(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    match value {
        value if value < 9.995 => format!("{value:.2} {unit}"),
        value if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// Returns `1 request was`, `2 requests were`.
pub(crate) fn requests(number: u64) -> String {
    match number {
        1 => "1 request was".into(),
        _ => format!("{} requests were", count(number)),
    }
}

/// Returns a count in groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns a number of bytes in decimal units.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.2} GB", bytes / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown: Vec<String> = [999, 1_000, 45_678, 999_000, 1_234_567, 99_960_000, 61_000_000_000]
            .map(nanos)
            .to_vec();
        assert_eq!(
            shown,
            ["999 ns", "1.00 µs", "45.7 µs", "999 µs", "1.23 ms", "100 ms", "61.0 s"]
        );
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count).to_vec(),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
