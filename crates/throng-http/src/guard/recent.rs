//! Credentials that a loop has recently checked, so that they need not be checked for every request.

use crate::{caller::Caller, problem::Problem};
use ring::digest::{SHA256, digest};
use std::{collections::HashMap, time::Instant};

/// The most remembered credentials, after which all are forgotten; the same number of refused ones.
const KEPT_MAX: usize = 1_024;
/// The most bytes of credentials that are remembered.
const BYTES_MAX: usize = 4 << 10;

#[derive(Default)]
pub(crate) struct Recent {
    /// The version of the files when the entries were made.
    version: u64,
    known: HashMap<Box<[u8]>, (Caller, Option<i64>)>,
    /// Tokens that cannot be accepted until the files change, by their hashes. Checking them again would cost a verification.
    refused: HashMap<Hash, Refused>,
}

/// The reason, and until when it holds at most.
struct Refused {
    problem: Box<Problem>,
    until: Option<Instant>,
}

/// SHA-256.
type Hash = [u8; 32];

fn hash(shown: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, shown).as_ref());
    hash
}

impl Recent {
    /// Returns the caller of these credentials, and when they expire, if they are remembered. A new version of the files forgets all
    /// entries.
    pub(crate) fn find(&mut self, version: u64, shown: &[u8]) -> Option<(Caller, Option<i64>)> {
        if self.version != version {
            self.version = version;
            self.known.clear();
            self.refused.clear();
        }
        self.known.get(shown).cloned()
    }

    /// Returns the reason why these credentials were recently refused, if they were.
    pub(crate) fn find_refused(&self, shown: &[u8]) -> Option<Box<Problem>> {
        let refused = self.refused.get(&hash(shown))?;
        let holds = refused.until.is_none_or(|until| until > Instant::now());
        holds.then(|| refused.problem.clone())
    }

    /// Remembers a refusal, until then at most.
    pub(crate) fn keep_refused(&mut self, shown: &[u8], problem: &Problem, until: Option<Instant>) {
        if self.refused.len() >= KEPT_MAX {
            self.refused.clear();
        }
        let problem = problem.clone().boxed();
        self.refused.insert(hash(shown), Refused { problem, until });
    }

    pub(crate) fn keep(&mut self, shown: &[u8], found: &(Caller, Option<i64>)) {
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
    use crate::caller::Means;

    #[test]
    fn recent_tokens_are_known_up_to_a_bound_until_a_reload() {
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

    #[test]
    fn refused_tokens_are_kept_apart_until_files_change() {
        let mut recent = Recent::default();
        let found = (Caller::new("ann", Means::Jwt, serde_json::Map::new()), None);
        recent.keep(b"good", &found);
        let problem = Problem::unauthorized("The token's signature is wrong.");
        for number in 0..KEPT_MAX {
            recent.keep_refused(number.to_string().as_bytes(), &problem, None);
        }
        assert!(recent.find(0, b"good").is_some() && recent.find_refused(b"7").is_some());
        recent.keep_refused(b"one more", &problem, None);
        assert_eq!(recent.refused.len(), 1);
        assert!(recent.find(1, b"good").is_none() && recent.find_refused(b"one more").is_none());
    }
}
