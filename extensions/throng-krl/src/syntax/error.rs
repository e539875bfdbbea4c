use std::error::Error;
use std::fmt;

/// A place in a source. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// An error of a source that is no ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The place of the first character that is wrong.
    pub location: Location,
    /// The text at that place.
    pub found: String,
    /// The text that could stand there instead, or the fault of the text found.
    pub expected: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { line, column } = self.location;
        write!(formatter, "line {line}, column {column}: {}", self.expected)?;
        match self.found.as_str() {
            "" => Ok(()),
            found => write!(formatter, ", found {found}"),
        }
    }
}

impl Error for ParseError {}
