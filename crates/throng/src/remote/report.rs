//! The report of a retention pass, as nodes exchange it.

use std::fmt;

/// The results of a pass: what it removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PruneReport {
    /// True if nothing was removed: the report is about what would be.
    pub is_dry: bool,
    /// The number of entities whose history was shortened.
    pub entities: u64,
    /// The number of entities that had ended and were removed.
    pub gone: u64,
    /// Records that went.
    pub records: u64,
    /// The number of commits of which nothing is left.
    pub commits: u64,
    /// The number of bytes that were given back.
    pub bytes: u64,
    /// The last commit that was examined, written `writer.commit`; in a cluster that of each node, separated by commas.
    pub upto: Option<String>,
    /// The time when it was made, microseconds since 1970-01-01 UTC.
    pub upto_micros: i64,
    /// The projections that have not read far enough for more to go.
    pub held_by: Vec<String>,
    /// True if there is more to remove.
    pub is_cut_short: bool,
}

impl PruneReport {
    /// Adds the report of another node.
    pub(crate) fn add_beside(&mut self, other: Self) {
        let upto: Vec<String> = self.upto.take().into_iter().chain(other.upto).collect();
        self.held_by.extend(other.held_by);
        self.held_by.sort_unstable();
        self.held_by.dedup();
        *self = Self {
            is_dry: other.is_dry,
            entities: self.entities + other.entities,
            gone: self.gone + other.gone,
            records: self.records + other.records,
            commits: self.commits + other.commits,
            bytes: self.bytes + other.bytes,
            upto: (!upto.is_empty()).then(|| upto.join(",")),
            upto_micros: self.upto_micros.max(other.upto_micros),
            held_by: std::mem::take(&mut self.held_by),
            is_cut_short: self.is_cut_short || other.is_cut_short,
        };
    }

    /// Adds the report of a later pass.
    pub fn add(&mut self, other: Self) {
        *self = Self {
            entities: self.entities + other.entities,
            gone: self.gone + other.gone,
            records: self.records + other.records,
            commits: self.commits + other.commits,
            bytes: self.bytes + other.bytes,
            ..other
        };
    }
}

impl fmt::Display for PruneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_dry { "would remove" } else { "removed" };
        write!(
            f,
            "{verb} {} records ({} whole commits, {} bytes); {} entities keep less history, nothing is kept of {}",
            self.records, self.commits, self.bytes, self.entities, self.gone
        )?;
        if let Some(upto) = &self.upto {
            write!(f, "; looked at up to commit {upto}")?;
        }
        for name in &self.held_by {
            write!(f, "\nthe projection {name} has not read more yet")?;
        }
        Ok(())
    }
}
