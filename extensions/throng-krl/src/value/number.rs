/// Returns a number as JavaScript prints it: `5`, `0.1`, `1e+21`, `1.5e-7`.
#[must_use]
pub fn format_number(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return (number as i64).to_string();
    }
    // The shortest digits that parse to the same number, and the exponent of the first digit.
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", place_point(&digits, exponent))
}

fn place_point(digits: &str, exponent: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    if (count - 1..21).contains(&exponent) {
        return format!("{digits}{}", zeros(exponent + 1 - count));
    }
    if (0..21).contains(&exponent) {
        let (whole, fraction) = digits.split_at(usize::try_from(exponent + 1).unwrap_or(0));
        return format!("{whole}.{fraction}");
    }
    if (-6..0).contains(&exponent) {
        return format!("0.{}{digits}", zeros(-exponent - 1));
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{}", exponent.abs())
}

/// Parses a number as JavaScript converts a text. Surrounding blanks are ignored, an empty text is 0, and `0x`, `0o` and `0b` are prefixes.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    if text.is_empty() {
        return Some(0.0);
    }
    for (prefixes, radix) in [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)] {
        if let Some(digits) = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)) {
            return parse_digits(digits, radix);
        }
    }
    // Rust also parses `inf`, `nan` and the like.
    let is_decimal = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse()
        .ok()
        .filter(|number: &f64| is_decimal && number.is_finite())
}

/// Parses one or more digits of this radix.
pub(super) fn parse_digits(digits: &str, radix: u32) -> Option<f64> {
    if digits.is_empty() {
        return None;
    }
    digits.chars().try_fold(0.0, |sum, digit| {
        let digit = digit.to_digit(radix)?;
        Some(sum * f64::from(radix) + f64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_javascript_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (5.0, "5"),
            (-5.5, "-5.5"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (0.000_001, "0.000001"),
            (123_456_789.125, "123456789.125"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ] {
            assert_eq!(format_number(number), text);
        }
    }

    #[test]
    fn text_is_read_as_javascript_reads_it() {
        for (text, number) in [
            ("", Some(0.0)),
            (" 12 ", Some(12.0)),
            ("1e3", Some(1000.0)),
            (".5", Some(0.5)),
            ("0x1f", Some(31.0)),
            ("0b101", Some(5.0)),
            ("inf", None),
            ("nan", None),
            ("12a", None),
            ("0x", None),
        ] {
            assert_eq!(parse_number(text), number, "{text:?}");
        }
    }
}
