//! Values of arguments, read from their text.

use std::{net::SocketAddr, time::Duration};

/// An address and a port; what is nearly one is answered with what was meant.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.rsplit_once(':') {
        Some(("" | "localhost" | "*", port)) if port.parse::<u16>().is_ok() => format!(
            "write an address and a port: 127.0.0.1:{port} for this machine's programs, 0.0.0.0:{port} for everybody"
        ),
        None if text.parse::<u16>().is_ok() => format!("write an address before the port: 127.0.0.1:{text}"),
        _ => "write an address and a port, as 127.0.0.1:8080 or [::1]:8080; names are not looked up".into(),
    })
}

/// `300ms` or `2s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = |number: &str, unit: fn(u64) -> Duration| number.parse().map(unit).ok();
    let found = match text.strip_suffix("ms") {
        Some(number) => read(number, Duration::from_millis),
        None => text
            .strip_suffix('s')
            .and_then(|number| read(number, Duration::from_secs)),
    };
    found.ok_or_else(|| "write for example 300ms or 2s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_is_none_is_answered_with_an_example() {
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for (wrong, right) in [
            ("localhost:8081", "127.0.0.1:8081"),
            (":8081", "127.0.0.1:8081"),
            ("8081", "127.0.0.1:8081"),
            ("shop.test:80", "names are not looked up"),
            ("127.0.0.1", "as 127.0.0.1:8080"),
        ] {
            let told = address(wrong).unwrap_err();
            assert!(told.contains(right), "{wrong}: {told}");
        }
    }
}
