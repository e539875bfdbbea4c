//! One line of an export: JSON, one record a line.
//!
//! ```text
//! {"throng_export":1}
//! {"writer":1,"node":"local"}
//! {"commit":1,"at_micros":1700000000000000,"record":"event","shard":3,"kind":"section","id":"C S 142-1","seq":1,
//!  "name":"Opened","version":1,"body":{"capacity":30}}
//! {"commit":2,"at_micros":1700000000000001}
//! ```
//! (The third line is broken here to fit.) Records of one commit follow one another; a commit without records has a line
//! of its own. A body that is JSON stands as it is; any other is in `base64`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use throng_journal::RecordKind;

pub(super) const EXPORT_VERSION: u32 = 1;

/// Any line: what it is shows in the fields it has.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Line<'a> {
    /// The first line: the version of the export's form.
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
}

/// The record kind a word of [`RecordKind::word`] stands for.
pub(super) fn kind_of(word: &str) -> Option<RecordKind> {
    use RecordKind::{Event, Family, Key, Loss, Released, Sent, Taken, TimerCleared, TimerSet};
    [Event, Sent, Taken, Key, TimerSet, TimerCleared, Family, Released, Loss]
        .into_iter()
        .find(|kind| kind.word() == word)
}
