//! The query string of the gateway's own lists.

use crate::{
    limits::{PAGE_DEFAULT, PAGE_MAX},
    problem::Problem,
};
use serde::{Deserialize, de::DeserializeOwned};

/// Which part of a history.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// After this sequence number.
    #[serde(default)]
    pub(crate) after: u64,
    /// At most so many.
    #[serde(default = "page")]
    pub(crate) limit: usize,
}

/// The stream of events that a ticket is for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TicketQuery {
    /// The stream's path, without a query.
    pub(crate) path: String,
}

/// Which part of the entities of a kind.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntitiesQuery {
    /// After this id.
    pub(crate) after: Option<String>,
    /// At most so many.
    #[serde(default = "page")]
    pub(crate) limit: usize,
}

/// Which dead messages.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadQuery {
    /// The receivers' kind.
    pub(crate) kind: Option<String>,
    /// The receiver's id within the kind.
    pub(crate) id: Option<String>,
    /// Only messages that died of this.
    pub(crate) cause: Option<String>,
    /// After where the last page ended.
    pub(crate) after: Option<String>,
    /// At most so many.
    #[serde(default = "page")]
    pub(crate) limit: usize,
}

/// Dead messages to be exported.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadExportQuery {
    /// The receivers' kind.
    pub(crate) kind: Option<String>,
    /// The receiver's id within the kind.
    pub(crate) id: Option<String>,
    /// Only messages that died of this.
    pub(crate) cause: Option<String>,
}

/// Dead messages to try again: one of an entity's, all of them, or all of a kind or a cause.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryQuery {
    /// The receivers' kind.
    pub(crate) kind: Option<String>,
    /// The receiver's id within the kind.
    pub(crate) id: Option<String>,
    /// Only messages that died of this.
    pub(crate) cause: Option<String>,
    /// Only this one.
    pub(crate) number: Option<String>,
    /// After where the last page ended.
    pub(crate) after: Option<String>,
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    pub(crate) _reason: String,
}

/// Dead messages to drop, one or all of an entity, a kind or a cause, and why.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct DropQuery {
    /// The receivers' kind.
    pub(crate) kind: Option<String>,
    /// The receiver's id within the kind.
    pub(crate) id: Option<String>,
    /// Only messages that died of this.
    pub(crate) cause: Option<String>,
    /// The message's number in the list of dead messages, such as `17.3`.
    pub(crate) number: Option<String>,
    /// In a person's words.
    pub(crate) reason: String,
}

/// Which timer to cancel, and why.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelQuery {
    /// The entity's kind.
    pub(crate) kind: String,
    /// The entity's id.
    pub(crate) id: String,
    /// The name that the entity gave the timer.
    pub(crate) name: String,
    /// In a person's words.
    pub(crate) reason: String,
}

/// Which projection or sink is rebuilt or resumed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectionQuery {
    pub(crate) name: String,
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    pub(crate) _reason: String,
}

/// Which event a projection or sink goes past, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipQuery {
    pub(crate) name: String,
    /// The event's position as `/admin/journal` shows it, such as `3.1071.0`.
    pub(crate) event: String,
    pub(crate) reason: String,
}

/// Options of a removal of history.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PruneQuery {
    /// Only says what would go.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    pub(crate) _reason: String,
}

/// Which entity to quarantine, or whose messages to drop, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    pub(crate) kind: String,
    pub(crate) id: String,
    /// In a person's words.
    pub(crate) reason: String,
}

/// Which entity to release, and perhaps why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseQuery {
    pub(crate) kind: String,
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) reason: String,
}

/// Which entity to erase.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EraseQuery {
    pub(crate) kind: String,
    pub(crate) id: String,
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    pub(crate) _reason: String,
}

/// Why the store is compacted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompactQuery {
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    pub(crate) _reason: String,
}

fn page() -> usize {
    PAGE_DEFAULT
}

/// Reads a query string.
pub(crate) fn read<T: DeserializeOwned>(query: Option<&str>) -> Result<T, Box<Problem>> {
    serde_urlencoded::from_str(query.unwrap_or("")).map_err(|why| {
        Problem::malformed(format!(
            "The query string cannot be read: {why}. /docs lists what it takes."
        ))
        .boxed()
    })
}

/// A page's size, within its limits.
pub(crate) fn limit(limit: usize) -> Result<usize, Box<Problem>> {
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(
        Problem::malformed(format!("limit is {limit}; it may be 1 to {PAGE_MAX}."))
            .at_field("limit")
            .boxed(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_default_size_and_a_largest() {
        assert_eq!(
            read(None).ok(),
            Some(HistoryQuery {
                after: 0,
                limit: PAGE_DEFAULT
            })
        );
        assert_eq!(
            read(Some("after=7&limit=2")).ok(),
            Some(HistoryQuery { after: 7, limit: 2 })
        );
        assert_eq!(
            read(Some("after=S+1")).ok(),
            Some(EntitiesQuery {
                after: Some("S 1".into()),
                limit: PAGE_DEFAULT
            })
        );
        assert!(limit(0).is_err() && limit(PAGE_MAX + 1).is_err());
        assert_eq!(limit(PAGE_MAX).ok(), Some(PAGE_MAX));
        for wrong in ["after=x", "limit=-1", "page=2", "after=1&after=2"] {
            assert!(read::<HistoryQuery>(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
