//! Regular expressions in JavaScript's syntax, run by an engine that takes linear time.

use std::error::Error;
use std::fmt;

/// The largest compiled regular expression, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// The longest source of a regular expression, in bytes.
const SOURCE_BYTES_MAX: usize = 10_000;
/// The deepest nesting of groups.
const NESTING_MAX: u32 = 50;

/// A regular expression: `re#source#flags`.
#[derive(Debug)]
pub struct Regex {
    source: String,
    compiled: regex::Regex,
    is_global: bool,
    ignores_case: bool,
}

/// The error for a text that is no usable regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexError(String);

impl fmt::Display for RegexError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for RegexError {}

impl Regex {
    /// Compiles a regular expression. Only the flags `g` and `i` have a meaning.
    ///
    /// # Errors
    ///
    /// [`RegexError`]: the source is invalid or too large, or has back-references or look-around, which no linear-time engine supports.
    pub fn new(source: &str, flags: &str) -> Result<Regex, RegexError> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(RegexError(format!(
                "the regular expression is {} bytes long, more than {SOURCE_BYTES_MAX}",
                source.len()
            )));
        }
        let pattern = translate(source)?;
        let compiled = regex::RegexBuilder::new(&pattern)
            .case_insensitive(flags.contains('i'))
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .nest_limit(NESTING_MAX)
            .build()
            .map_err(|error| RegexError(describe(source, &error)))?;
        Ok(Regex {
            source: source.to_owned(),
            compiled,
            is_global: flags.contains('g'),
            ignores_case: flags.contains('i'),
        })
    }

    /// True if it matches all places in a text, not only the first (flag `g`).
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.is_global
    }

    pub(crate) fn engine(&self) -> &regex::Regex {
        &self.compiled
    }
}

fn describe(source: &str, error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            format!(
                "the regular expression re#{source}# is too large once compiled: more than {COMPILED_BYTES_MAX} bytes"
            )
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default();
            format!(
                "re#{source}# is no regular expression: {}",
                reason.trim_start_matches("error: ")
            )
        }
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let global = if self.is_global { "g" } else { "" };
        let case = if self.ignores_case { "i" } else { "" };
        write!(formatter, "re#{}#{global}{case}", self.source)
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.source == other.source && self.is_global == other.is_global && self.ignores_case == other.ignores_case
    }
}

/// Translates JavaScript's syntax to the engine's.
fn translate(source: &str) -> Result<String, RegexError> {
    let mut pattern = String::with_capacity(source.len() + 16);
    let mut characters = source.chars().peekable();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let Some(escaped) = characters.next() else {
                    return Err(RegexError(format!("re#{source}# ends within an escape")));
                };
                escape(escaped, in_class, source, &mut pattern)?;
            }
            '[' if in_class => pattern.push_str("\\["),
            '[' => {
                in_class = true;
                pattern.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    pattern.push('^');
                }
                if characters.next_if_eq(&']').is_some() {
                    // `[]` matches nothing and `[^]` matches anything. The engine has neither.
                    in_class = false;
                    let is_negated = pattern.ends_with('^');
                    pattern.truncate(pattern.len() - if is_negated { 2 } else { 1 });
                    pattern.push_str(if is_negated { r"[\s\S]" } else { r"[^\s\S]" });
                }
            }
            ']' if in_class => {
                in_class = false;
                pattern.push(']');
            }
            // `&&` and `~~` are set operations to the engine, but two equal characters to JavaScript.
            '&' | '~' if in_class => {
                pattern.push('\\');
                pattern.push(character);
            }
            '-' if in_class && characters.peek() == Some(&'-') => pattern.push_str("\\-"),
            '.' if !in_class => pattern.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            '{' if !in_class && !is_repetition(characters.clone()) => pattern.push_str("\\{"),
            '}' if !in_class && !closes_repetition(&pattern) => pattern.push_str("\\}"),
            '(' if !in_class && looks_around(characters.clone()) => {
                return Err(RegexError(format!(
                    "re#{source}# looks ahead or behind, which takes more than linear time and is not supported"
                )));
            }
            other => pattern.push(other),
        }
    }
    Ok(pattern)
}

fn escape(escaped: char, in_class: bool, source: &str, pattern: &mut String) -> Result<(), RegexError> {
    match escaped {
        'd' if in_class => pattern.push_str("0-9"),
        'd' => pattern.push_str("[0-9]"),
        'D' => pattern.push_str("[^0-9]"),
        'w' if in_class => pattern.push_str("0-9A-Za-z_"),
        'w' => pattern.push_str("[0-9A-Za-z_]"),
        'W' => pattern.push_str("[^0-9A-Za-z_]"),
        'b' if in_class => pattern.push_str(r"\x08"),
        'b' => pattern.push_str(r"(?-u:\b)"),
        'B' => pattern.push_str(r"(?-u:\B)"),
        '0' => pattern.push_str(r"\x00"),
        '1'..='9' => {
            return Err(RegexError(format!(
                "re#{source}# refers back to a group (\\{escaped}), which takes more than linear time and is not supported"
            )));
        }
        's' | 'S' | 't' | 'n' | 'r' | 'v' | 'f' | 'x' | 'u' => {
            pattern.push('\\');
            pattern.push(escaped);
        }
        other if other.is_ascii_punctuation() && !matches!(other, '<' | '>') => {
            pattern.push('\\');
            pattern.push(other);
        }
        other => pattern.push(other),
    }
    Ok(())
}

/// True if the characters after `{` form a repetition: `3}`, `3,}`, `3,5}`.
fn is_repetition(characters: impl Iterator<Item = char>) -> bool {
    let inner: String = characters
        .take_while(|character| matches!(character, '0'..='9' | ',' | '}'))
        .take(24)
        .collect();
    inner.split_once('}').is_some_and(|(counts, _)| {
        let (least, most) = counts.split_once(',').unwrap_or((counts, ""));
        !least.is_empty() && !most.contains(',')
    })
}

fn closes_repetition(pattern: &str) -> bool {
    pattern.rfind('{').is_some_and(|at| {
        let inner = &pattern[at + 1..];
        let is_literal = pattern[..at].ends_with('\\');
        !is_literal && !inner.is_empty() && inner.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b','))
    })
}

fn looks_around(characters: impl Iterator<Item = char>) -> bool {
    let ahead: String = characters.take(3).collect();
    ahead.starts_with("?=") || ahead.starts_with("?!") || ahead.starts_with("?<=") || ahead.starts_with("?<!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(source: &str, text: &str) -> bool {
        Regex::new(source, "").unwrap().engine().is_match(text)
    }

    #[test]
    fn javascript_syntax_means_the_same() {
        assert!(matches(r"^\d+\/\w$", "12/a"));
        assert!(!matches(r"^\d$", "٣"), "digits are ASCII");
        assert!(matches("[[]", "["));
        assert!(matches("[a&&b]", "&"));
        assert!(matches("a{", "a{"));
        assert!(matches("^a{2}$", "aa"));
        assert!(matches("[^]", "\n"));
        assert!(!matches("[]", "a"));
        assert!(!matches(".", "\u{2028}"));
        assert!(
            matches(r"\bé", "aé"),
            "a word is ASCII, so there is a boundary before é"
        );
        assert!(matches(r"\u0041\x42", "AB"));
        assert!(matches(r"\<a\>", "<a>"));
        assert!(matches(r"(?<year>\d{4})", "2026"));
    }

    #[test]
    fn superlinear_patterns_are_refused_by_name() {
        assert!(
            Regex::new(r"(a)\1", "")
                .unwrap_err()
                .to_string()
                .contains("refers back")
        );
        assert!(Regex::new("(?=a)", "").unwrap_err().to_string().contains("looks ahead"));
        assert!(
            Regex::new("(?<!a)", "")
                .unwrap_err()
                .to_string()
                .contains("looks ahead or behind")
        );
        assert!(
            Regex::new("(a{500}){500}", "")
                .unwrap_err()
                .to_string()
                .contains("too large")
        );
        assert!(
            Regex::new("(", "")
                .unwrap_err()
                .to_string()
                .contains("no regular expression")
        );
        assert!(Regex::new(&"(".repeat(5_000), "").is_err());
    }

    #[test]
    fn a_pattern_that_makes_backtrackers_hang_ends_at_once() {
        assert!(!matches("^(a+)+$", &format!("{}b", "a".repeat(100_000))));
    }
}
