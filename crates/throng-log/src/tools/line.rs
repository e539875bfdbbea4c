//! A line of an export: JSON, one record a line.
//!
//! ```text
//! {"throng_export":2,"sum":"…"}
//! {"writer":1,"node":"local","sum":"…"}
//! {"commit":1,"at_micros":1700000000000000,"record":"event","shard":3,"kind":"section","id":"C S 142-1","seq":1,
//!  "name":"Opened","version":1,"body":{"capacity":30},"sum":"…"}
//! {"commit":2,"at_micros":1700000000000001,"sum":"…"}
//! {"end":{"writers":1,"commits":2,"records":1},"sum":"…"}
//! ```
//! (The third line is broken here to fit.) Records of one commit are consecutive; a commit without records has a line of its own. If
//! retention or an erasure has removed records from a commit, one `removed` record stands for all of them. Its `seq` and `version`, which a
//! commit without records also has, encode the commit that [replaces](throng_journal::Record::replaced_by) them. A body that is JSON is
//! written as it is; any other in `base64`. The sum is the CRC32C, in eight hexadecimal digits, of all bytes before the comma in front of
//! it, from the export's first byte on, without earlier sums and line ends. So it confirms that its line and all lines before it are
//! unchanged.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use throng_journal::RecordKind;

pub(super) const EXPORT_VERSION: u32 = 2;
/// The version without sums and without an end.
pub(super) const EXPORT_VERSION_UNCHECKED: u32 = 1;

/// The bytes before and after a sum.
const SUM: (&str, &str) = (",\"sum\":\"", "\"}");
const SUM_DIGITS: usize = 8;

/// The sum of the lines so far.
#[derive(Debug, Default)]
pub(super) struct Sum(u32);

impl Sum {
    /// Adds the sum to a line of JSON.
    pub(super) fn seal(&mut self, line: &mut Vec<u8>) {
        line.pop();
        self.0 = crc32c::crc32c_append(self.0, line);
        line.extend_from_slice(format!("{}{:0SUM_DIGITS$x}{}", SUM.0, self.0, SUM.1).as_bytes());
    }

    /// Checks that a line is the next one of its export.
    pub(super) fn check(&mut self, line: &str) -> Result<(), &'static str> {
        let found = line.trim_end().strip_suffix(SUM.1).and_then(|line| {
            let (rest, digits) = line.split_at_checked(line.len().checked_sub(SUM_DIGITS)?)?;
            Some((rest.strip_suffix(SUM.0)?, u32::from_str_radix(digits, 16).ok()?))
        });
        let (rest, sum) = found.ok_or("it carries no sum")?;
        self.0 = crc32c::crc32c_append(self.0, rest.as_bytes());
        if self.0 == sum {
            Ok(())
        } else {
            Err("its sum does not fit: it was altered, or lines before it are missing, doubled or moved")
        }
    }
}

/// Any line. Its fields determine what it is.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExportLine<'a> {
    /// The version of the export's format, on the first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throng_export: Option<u32>,
    /// A writer's stream begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    /// A record of this commit, or a commit without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_micros: Option<i64>,
    /// The number of commits before it that this one stands for, because none of their records are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u16>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<Cow<'a, str>>,
    /// The totals, on the last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The [`Sum`], which is checked before the line is parsed.
    #[serde(skip_serializing)]
    pub sum: Option<Cow<'a, str>>,
}

/// The counts at the end of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub writers: u64,
    pub commits: u64,
    pub records: u64,
}

/// Returns the record kind of a [`RecordKind::word`].
pub(super) fn kind_of(word: &str) -> Option<RecordKind> {
    RecordKind::ALL.into_iter().find(|kind| kind.word() == word)
}
