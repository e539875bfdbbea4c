//! Tokens of a service's own, in a file that holds their hashes.
//!
//! A line is `NAME HASH`, with the SHA-256 of the token in hexadecimal, and optionally the time until which it is valid (RFC 3339). Tokens
//! are random numbers of 256 bits, so that a hash without salt or stretching reveals nothing. Empty lines, and those that begin with `#`,
//! are ignored. In a file of tokens for administration, a role precedes each line: `ROLE NAME HASH`.

use crate::caller::{Caller, Means, Role};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use serde_json::Map;
use std::collections::HashMap;

/// The beginning of every token, so that a token found anywhere is recognised.
const PREFIX: &str = "throng_";
/// Bytes of a caller's name.
const NAME_BYTES_MAX: usize = 256;

type Hash = [u8; 32];

/// The tokens that are taken, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<Hash, Token>);

#[derive(Debug)]
struct Token {
    caller: Caller,
    /// In seconds since 1970.
    until: Option<i64>,
    /// The role in administration; `None` in a file of the service's callers.
    role: Option<Role>,
}

/// Makes a token for a caller of this name. Returns the token, which is shown once, and its line for the file.
///
/// # Errors
/// A sentence: the name is not valid in the file, or the system has no random numbers.
pub fn make_token(name: &str, until: Option<jiff::Timestamp>) -> Result<(String, String), String> {
    check_name(name)?;
    let mut random = [0; 32];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| "the system gives no random numbers")?;
    let token = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
    let hash = hex(&hash(token.as_bytes()));
    let until = until.map_or_else(String::new, |until| format!(" {until}"));
    Ok((token, format!("{name} {hash}{until}")))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name
        .chars()
        .all(|letter| !letter.is_whitespace() && !letter.is_control());
    if is_plain && !name.starts_with('#') && (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name: 1 to {NAME_BYTES_MAX} bytes without spaces, not beginning with #"
    ))
}

impl Tokens {
    /// Reads the text of a file of callers' tokens.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_by(text, parse_line)
    }

    /// Reads the text of a file of tokens for administration.
    pub(crate) fn parse_administration(text: &str) -> Result<Self, String> {
        Self::parse_by(text, |line| {
            let (role, line) = line
                .split_once(char::is_whitespace)
                .ok_or("expected ROLE NAME HASH, and perhaps UNTIL")?;
            let role = Some(role.parse::<Role>()?);
            let (hash, token) = parse_line(line)?;
            Ok((hash, Token { role, ..token }))
        })
    }

    fn parse_by(text: &str, parse: impl Fn(&str) -> Result<(Hash, Token), String>) -> Result<Self, String> {
        let mut tokens = HashMap::new();
        // A byte order mark, which some editors write, would become part of the first name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (hash, token) = parse(line).map_err(|why| format!("line {}: {why}", at + 1))?;
            if tokens.insert(hash, token).is_some() {
                return Err(format!("line {}: this token stands in the file twice", at + 1));
            }
        }
        Ok(Self(tokens))
    }

    /// Returns the name and the role of a token for administration that is valid at this time, in seconds since 1970.
    pub(crate) fn administrator(&self, token: &[u8], now: i64) -> Option<(String, Role)> {
        let Token { caller, until, role } = self.0.get(&hash(token))?;
        let holds = until.is_none_or(|until| now < until);
        let role = role.filter(|_| holds)?;
        Some((caller.name().to_owned(), role))
    }

    /// Returns the token's caller, and when it expires, in seconds since 1970.
    pub(crate) fn find(&self, token: &[u8]) -> Option<(Caller, Option<i64>)> {
        // Looked up by a hash, which an attacker cannot steer, so the time it takes reveals nothing.
        let token = self.0.get(&hash(token))?;
        Some((token.caller.clone(), token.until))
    }
}

fn parse_line(line: &str) -> Result<(Hash, Token), String> {
    let mut parts = line.split_whitespace();
    let (Some(name), Some(hash), until, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("expected NAME HASH, and perhaps UNTIL".into());
    };
    check_name(name)?;
    let hash = unhex(hash).ok_or_else(|| format!("{hash:?} is no SHA-256 of 64 hexadecimal digits"))?;
    let until = until
        .map(|until| until.parse::<jiff::Timestamp>())
        .transpose()
        .map_err(|_| "the time is none: write a date, a time and a zone, as 2030-01-31T00:00:00Z")?;
    let token = Token {
        caller: Caller::new(name, Means::Token, Map::new()),
        until: until.map(jiff::Timestamp::as_second),
        role: None,
    };
    Ok((hash, token))
}

fn hash(token: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_itself_and_nothing_else() {
        let (ann, ann_line) = make_token("ann", None).unwrap();
        let (bob, bob_line) = make_token("bob", "2030-01-01T00:00:00Z".parse().ok()).unwrap();
        assert_ne!(ann, bob);
        assert!(!ann_line.contains(&ann), "the file has no token");
        let tokens = Tokens::parse(&format!("# callers\n\n{ann_line}\n  {bob_line}\n")).unwrap();
        let found = |token: &str| {
            let (caller, until) = tokens.find(token.as_bytes())?;
            Some((caller.name().to_owned(), until))
        };
        assert_eq!(found(&ann), Some(("ann".into(), None)));
        assert_eq!(found(&bob), Some(("bob".into(), Some(1_893_456_000))));
        let marked = Tokens::parse(&format!("\u{feff}{ann_line}\r\n")).unwrap();
        assert_eq!(marked.find(ann.as_bytes()).unwrap().0.name(), "ann");
        for wrong in ["", "throng_", &ann[1..], &ann.to_uppercase(), &format!("{ann}x")] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn token_for_administration_has_a_role_until_its_end() {
        let (ann, ann_line) = make_token("ann", None).unwrap();
        let (scraper, scraper_line) = make_token("prometheus", "2030-01-01T00:00:00Z".parse().ok()).unwrap();
        let text = format!("# roles\noperator {ann_line}\nmetrics\t{scraper_line}\n");
        let tokens = Tokens::parse_administration(&text).unwrap();
        let found = |token: &str, now| tokens.administrator(token.as_bytes(), now);
        assert_eq!(found(&ann, i64::MAX), Some(("ann".into(), Role::Operator)));
        let end = 1_893_456_000;
        assert_eq!(found(&scraper, end - 1), Some(("prometheus".into(), Role::Metrics)));
        assert_eq!(found(&scraper, end), None);
        assert_eq!(found("throng_", 0), None);
        for (text, why) in [
            (
                ann_line,
                "line 1: \"ann\" is no role: write metrics, viewer, operator or owner",
            ),
            ("owner".into(), "line 1: expected ROLE NAME HASH"),
            ("owner ann".into(), "line 1: expected NAME HASH"),
        ] {
            let found = Tokens::parse_administration(&text).unwrap_err();
            assert!(found.starts_with(why), "{found}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_says_where() {
        let (_, line) = make_token("ann", None).unwrap();
        for (text, why) in [
            ("ann".to_owned(), "line 1: expected NAME HASH"),
            ("\nann abc".to_owned(), "line 2: \"abc\" is no SHA-256"),
            (
                format!("{line} soon"),
                "line 1: the time is none: write a date, a time and a zone, as 2030",
            ),
            (
                format!("{line} 2030-01-31"),
                "line 1: the time is none: write a date, a time and a zone, as 2030",
            ),
            (format!("{line} 2030-01-01T00:00:00Z x"), "line 1: expected NAME HASH"),
            (format!("{line}\n{line}"), "line 2: this token stands in the file twice"),
        ] {
            let found = Tokens::parse(&text).unwrap_err();
            assert!(found.starts_with(why), "{found}");
        }
        for name in ["", "a b", "#a", "a\n", &"x".repeat(257)] {
            assert!(make_token(name, None).is_err(), "{name}");
        }
    }
}
