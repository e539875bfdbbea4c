//! Credentials a loop has looked at lately, so that those of every request need not be looked at anew.

use super::Caller;
use std::collections::HashMap;

/// Credentials remembered at most; then all are forgotten.
const KEPT_MAX: usize = 1_024;
/// Longer ones are not remembered.
const BYTES_MAX: usize = 4 << 10;

#[derive(Default)]
pub(crate) struct Recent {
    /// Of the files when they were looked at.
    version: u64,
    known: HashMap<Box<[u8]>, (Caller, Option<i64>)>,
}

impl Recent {
    /// Whose these are, and until when, if that is known of this version.
    pub(super) fn find(&mut self, version: u64, shown: &[u8]) -> Option<(Caller, Option<i64>)> {
        if self.version != version {
            self.version = version;
            self.known.clear();
        }
        self.known.get(shown).cloned()
    }

    pub(super) fn keep(&mut self, shown: &[u8], found: &(Caller, Option<i64>)) {
        if shown.len() > BYTES_MAX {
            return;
        }
        if self.known.len() >= KEPT_MAX {
            self.known.clear();
        }
        self.known.insert(shown.into(), found.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Means;

    #[test]
    fn what_was_looked_at_is_known_until_something_was_read_again_and_only_so_many_are() {
        let mut recent = Recent::default();
        let found = (Caller::new("ann", Means::Token, serde_json::Map::new()), None);
        recent.keep(b"one", &found);
        assert!(recent.find(0, b"one").is_some() && recent.find(0, b"two").is_none());
        assert!(recent.find(1, b"one").is_none() && recent.find(0, b"one").is_none());
        recent.keep(&[b'x'; BYTES_MAX + 1], &found);
        assert!(recent.known.is_empty());
        for number in 0..=KEPT_MAX {
            recent.keep(number.to_string().as_bytes(), &found);
        }
        assert_eq!(recent.known.len(), 1);
    }
}
