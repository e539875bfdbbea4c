//! Numbers for people.

use std::time::Duration;

/// A count in groups of three digits.
pub(crate) fn count(number: u64) -> String {
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

/// Nanoseconds as milliseconds.
pub(crate) fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// `250us`, `2ms`, `1.5s`; a bare number is seconds. For the command line.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        _ => return Err(format!("`{unit}` is no unit of time; use us, ms or s")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * scale).ok())
        .ok_or_else(|| "write a duration as 250us, 2ms or 1.5s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert!(duration("soon").is_err() && duration("3 days").is_err() && duration("-1s").is_err());
    }
}
