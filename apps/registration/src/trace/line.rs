//! A line of a trace file: its fields, and the errors that name its place.

use super::{NAME_BYTES_MAX, TraceError};

pub(super) const NAME: &str = "a name of 1 to 256 bytes without comma or control character";

/// The most characters of a wrong line or field that an error quotes.
const QUOTED_CHARACTERS_MAX: usize = 80;

/// A line that is not empty, and its place.
pub(super) struct TraceLine<'text> {
    file: &'text str,
    /// The line's number, from 1.
    pub(super) number: usize,
    text: &'text str,
}

/// Returns the lines that are not empty, without line ends and byte order mark.
pub(super) fn lines<'text>(file: &'text str, text: &'text str) -> impl Iterator<Item = TraceLine<'text>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    (1..)
        .zip(text.lines())
        .map(move |(number, text)| TraceLine { file, number, text })
        .filter(|line| !line.text.is_empty())
}

impl<'text> TraceLine<'text> {
    /// Returns the fields between the separators. Fails unless there are exactly `COUNT`.
    pub(super) fn fields<const COUNT: usize>(
        &self,
        separator: char,
        layout: &'static str,
    ) -> Result<[&'text str; COUNT], TraceError> {
        let mut fields = [""; COUNT];
        let mut found = 0;
        for field in self.text.split(separator) {
            if let Some(place) = fields.get_mut(found) {
                *place = field;
            }
            found += 1;
        }
        if found == COUNT {
            return Ok(fields);
        }
        Err(TraceError::FieldCount {
            file: self.file.to_owned(),
            line: self.number,
            layout,
            expected: COUNT,
            found,
            text: quoted(self.text),
        })
    }

    /// Returns the field if it is a valid name of a student or a section.
    pub(super) fn name(&self, field: &'static str, found: &'text str) -> Result<&'text str, TraceError> {
        if is_name(found) {
            Ok(found)
        } else {
            Err(self.wrong(field, found, NAME))
        }
    }

    /// Returns the error for an invalid field of this line.
    pub(super) fn wrong(&self, field: &'static str, found: &str, expected: &'static str) -> TraceError {
        wrong_field(self.file, self.number, field, found, expected)
    }
}

/// Returns the error for an invalid field.
pub(super) fn wrong_field(
    file: &str,
    line: usize,
    field: &'static str,
    found: &str,
    expected: &'static str,
) -> TraceError {
    TraceError::Field {
        file: file.to_owned(),
        line,
        field,
        found: quoted(found),
        expected,
    }
}

/// True for a valid name of a student or a section.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && !text.contains(|character: char| character == ',' || character.is_control())
}

/// Returns the beginning of `text`, fit for a sentence.
fn quoted(text: &str) -> String {
    let mut characters = text.chars();
    let mut quoted: String = characters
        .by_ref()
        .take(QUOTED_CHARACTERS_MAX)
        .flat_map(printable)
        .collect();
    if characters.next().is_some() {
        quoted.push('…');
    }
    quoted
}

/// Returns the character, or its escape (`\t`, `\u{7}`) if it would disturb a terminal.
fn printable(character: char) -> impl Iterator<Item = char> {
    let escape = character.is_control().then(|| character.escape_default());
    let itself = escape.is_none().then_some(character);
    itself.into_iter().chain(escape.into_iter().flatten())
}

/// Returns the text if it consists only of digits.
pub(super) fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}
