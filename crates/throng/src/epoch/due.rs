//! Rows and cuts of the index that wait for the next checkpoint.

use throng_journal::Cut;

/// The rows and cuts that the next checkpoint takes along.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) cuts: Vec<Cut>,
    pub(crate) rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Due {
    pub(crate) fn is_empty(&self) -> bool {
        self.cuts.is_empty() && self.rows.is_empty()
    }

    /// The checkpoint that took this was not made: it comes before what has become due since.
    pub(crate) fn put_back(&mut self, mut taken: Self) {
        taken.cuts.append(&mut self.cuts);
        taken.rows.append(&mut self.rows);
        *self = taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checkpoint_gives_its_removals_to_the_next_one() {
        let due = |name: &[u8]| Due {
            cuts: Vec::new(),
            rows: vec![(name.to_vec(), None)],
        };
        let mut waiting = due(b"older");
        let taken = std::mem::take(&mut waiting);
        waiting.rows.extend(due(b"newer").rows);
        waiting.put_back(taken);
        let names: Vec<_> = waiting.rows.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [&b"older"[..], b"newer"], "the last row of a name counts");
    }
}
