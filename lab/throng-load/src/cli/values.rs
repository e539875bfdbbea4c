//! Parsers for the values of options.

use std::time::Duration;

/// Parses `250us`, `20ms`, `1.5s`, `2m` or `1h`. A bare number is in seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no duration: write for example 20ms, 60s or 5m"))?;
    let seconds = match unit.trim() {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        other => {
            return Err(format!(
                "`{text}` is no duration: `{other}` is no unit of time, use us, ms, s, m or h"
            ));
        }
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`{text}` is too long"))
}

/// Returns true if a body looks like JSON.
pub(crate) fn is_json(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// Returns true for the header that names the type of a body.
pub(crate) fn is_content_type(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type")
}

/// Parses a duration greater than zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("`{text}` is no time at all: give more than 0")),
        time => Ok(time),
    }
}

/// Returns a list of the known names, for an error about an unknown one.
pub(crate) fn known<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.is_empty() {
        true => "there are none".into(),
        false => format!("there are: {}", names.join(", ")),
    }
}

/// Parses a header field, `Name: value`.
pub fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}` is no header: write `Name: value`"))?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) || value.bytes().any(|byte| byte == b'\r' || byte == b'\n') {
        return Err(format!("`{text}` is no header: write `Name: value`"));
    }
    Ok((name.to_string(), value.trim().to_string()))
}

/// Parses a positive rate.
pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err(format!("`{text}` is no rate: give requests a second, above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("soon").is_err() && duration("3 days").unwrap_err().contains("`3 days`"));
        assert!(time("0s").is_err() && time("1us").is_ok());
    }

    #[test]
    fn headers_cannot_smuggle_lines() {
        assert_eq!(header("A-b: c d"), Ok(("A-b".into(), "c d".into())));
        assert!(header("no colon").is_err() && header("a b: c").is_err() && header("a: b\r\nc: d").is_err());
    }
}
