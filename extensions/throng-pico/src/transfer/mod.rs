//! Picos that go elsewhere: a pico with all below it as lines of JSON, and back.
//!
//! ```text
//! {"throng_picos":1,"top":"00000000000000aa","sum":"…"}
//! {"pico":{"id":"00000000000000aa",…},"sum":"…"}
//! {"ruleset":{"url":"https://example.com/section.krl","source":"…",…},"sum":"…"}
//! {"change":{"ruleset":{"rid":"section",…}},"sum":"…"}
//! {"change":{"put":{"rid":"section","name":"roster","value":{}}},"sum":"…"}
//! {"end":{"picos":1,"lines":5},"sum":"…"}
//! ```
//! A pico's line stands before those of what it is, and its descendants after them, so that neither side ever holds more than one pico and one page
//! of children a level. What a pico is, is said in the changes that make it so; a map that is long is made entry by entry. Which children a pico
//! has, its children say. The sum is the CRC32C, in eight hexadecimal digits, of all bytes before the comma in front of it, from the first byte on, without earlier sums and ends of
//! lines.

mod import;
mod line;
mod read;
mod rename;
mod write;

pub(crate) use import::Failed;
pub(crate) use read::Source;

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 8 << 20;
