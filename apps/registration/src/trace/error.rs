//! Errors of a trace's files, each a sentence for the person who gave them.

use std::{io, path::PathBuf};

use super::{DateTime, FILE_BYTES_MAX};

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system did not let the file be read.
    #[error("cannot read the trace file {}: {source}; check the path and that you may read it", path.display())]
    Unreadable {
        /// The path that was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system did not let the file be written.
    #[error("cannot write the trace file {}: {source}; check that the folder exists and that you may write to it", path.display())]
    Unwritable {
        /// The path that was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is larger than [`FILE_BYTES_MAX`].
    #[error(
        "{file} holds more than {FILE_BYTES_MAX} bytes, the most a trace file may hold; check that it is a trace file"
    )]
    TooLarge {
        /// The file, as it was named.
        file: String,
    },
    /// The file holds bytes that are not UTF-8.
    #[error("{file}, line {line}: found bytes that are not UTF-8 text; save the file as UTF-8")]
    NotText {
        /// The file, as it was named.
        file: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// The file holds no line with something in it.
    #[error("{file} is empty; at least one line `{layout}` is needed")]
    Empty {
        /// The file, as it was named.
        file: String,
        /// The fields of a line.
        layout: &'static str,
    },
    /// A line does not have the fields it must have.
    #[error(
        "{file}, line {line}: expected {expected} fields as in `{layout}`, found {found}; correct the line `{text}`"
    )]
    FieldCount {
        /// The file, as it was named.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The fields of a line.
        layout: &'static str,
        /// The number of fields in that layout.
        expected: usize,
        /// The number of fields found.
        found: usize,
        /// The beginning of the line.
        text: String,
    },
    /// A field does not hold what it must hold.
    #[error("{file}, line {line}, {field}: found `{found}`, expected {expected}; correct the field")]
    Field {
        /// The file, as it was named.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The field: student, section, seats, date, time or operation.
        field: &'static str,
        /// The beginning of what was found.
        found: String,
        /// The values that the field may have.
        expected: &'static str,
    },
    /// A request stands after a later one.
    #[error(
        "{file}, line {line}: {at} is before {previous}, the request above it; put the requests in the order they were made"
    )]
    OutOfOrder {
        /// The file, as it was named.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// When this request was made.
        at: DateTime,
        /// When the one above it was made.
        previous: DateTime,
    },
}
