//! The errors of a trace's files. Each is a sentence for the user who gave the files.

use std::{io, path::PathBuf};

use super::{DateTime, FILE_BYTES_MAX};

/// The reason why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused to read the file.
    #[error("cannot read the trace file {}: {source}; check the path and that you may read it", path.display())]
    Unreadable {
        /// The path that was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused to write the file.
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
        /// The file's name.
        file: String,
    },
    /// The file holds bytes that are not UTF-8.
    #[error("{file}, line {line}: found bytes that are not UTF-8 text; save the file as UTF-8")]
    NotText {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// The file has only empty lines.
    #[error("{file} is empty; at least one line `{layout}` is needed")]
    Empty {
        /// The file's name.
        file: String,
        /// The expected fields of a line.
        layout: &'static str,
    },
    /// A line has the wrong number of fields.
    #[error(
        "{file}, line {line}: expected {expected} fields as in `{layout}`, found {found}; correct the line `{text}`"
    )]
    FieldCount {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The expected fields of a line.
        layout: &'static str,
        /// The expected number of fields.
        expected: usize,
        /// The number of fields found.
        found: usize,
        /// The beginning of the line.
        text: String,
    },
    /// A field has an invalid value.
    #[error("{file}, line {line}, {field}: found `{found}`, expected {expected}; correct the field")]
    Field {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The field: student, section, seats, date, time or operation.
        field: &'static str,
        /// The beginning of the value found.
        found: String,
        /// The values that the field may have.
        expected: &'static str,
    },
    /// A request is earlier than the one above it.
    #[error(
        "{file}, line {line}: {at} is before {previous}, the request above it; put the requests in the order they were made"
    )]
    OutOfOrder {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The time of this request.
        at: DateTime,
        /// The time of the request above it.
        previous: DateTime,
    },
}
