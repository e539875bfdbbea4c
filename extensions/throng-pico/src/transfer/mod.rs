//! The transfer of picos: a pico and all picos below it as lines of JSON, and back.
//!
//! ```text
//! {"throng_picos":1,"top":"00000000000000aa","sum":"…"}
//! {"pico":{"id":"00000000000000aa",…},"sum":"…"}
//! {"ruleset":{"url":"https://example.com/section.krl","source":"…",…},"sum":"…"}
//! {"change":{"ruleset":{"rid":"section",…}},"sum":"…"}
//! {"change":{"put":{"rid":"section","name":"roster","value":{}}},"sum":"…"}
//! {"end":{"picos":1,"lines":5},"sum":"…"}
//! ```
//!
//! The line of a pico stands before the lines of its contents, and its descendants follow. So each side holds at most one pico, and one page of
//! children per level. The contents are the changes that rebuild the pico. A long map is rebuilt entry by entry. The children are not listed: each
//! names its parent.
//!
//! The sum is a CRC32C in eight hexadecimal digits. It covers all bytes of the file before its own comma, without earlier sums and line ends.

mod import;
mod line;
mod read;
mod rename;
mod write;

pub(crate) use import::Failed;
pub(crate) use read::Source;

/// The most bytes of a line.
const LINE_BYTES_MAX: usize = 8 << 20;
