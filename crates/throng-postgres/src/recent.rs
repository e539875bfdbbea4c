//! The contents of the last commits, needed if the database should lose them.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};
use throng_journal::{Commit, Position, RecordKind};

/// The time a commit is remembered.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Bytes of commits that are remembered.
const BYTES_MAX: usize = 64 << 20;

/// The last commits sent, of at most a minute and 64 MiB.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    commits: VecDeque<Sent>,
    bytes: usize,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    position: Position,
    bytes: Vec<u8>,
}

/// The contents of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostCommit {
    pub(crate) position: Position,
    /// The time of the commit, microseconds since 1970-01-01 UTC.
    pub(crate) at_micros: i64,
    /// Entities of which it holds records, as `kind/id`.
    pub(crate) entities: Vec<String>,
    /// Idempotency keys of its commands.
    pub(crate) keys: Vec<String>,
}

impl Recent {
    pub(crate) fn push(&mut self, commit: &Commit, now: Instant) {
        let bytes = commit.bytes().to_vec();
        self.bytes += bytes.len();
        self.commits.push_back(Sent {
            at: now,
            position: commit.position(),
            bytes,
        });
        while let Some(first) = self.commits.front()
            && (self.bytes > BYTES_MAX || now.duration_since(first.at) > AGE_MAX)
        {
            self.bytes -= first.bytes.len();
            self.commits.pop_front();
        }
    }

    /// Returns the commits of a writer after one of them, up to another one.
    pub(crate) fn between(&self, after: Position, upto: Position) -> Vec<LostCommit> {
        let is_lost = |sent: &&Sent| {
            let Position { writer, commit } = sent.position;
            writer == upto.writer && commit > after.commit && commit <= upto.commit
        };
        let lost = self.commits.iter().filter(is_lost);
        lost.map(|sent| LostCommit::of(&sent.bytes)).collect()
    }
}

impl LostCommit {
    fn of(bytes: &[u8]) -> Self {
        // It was sealed before it was sent, so this cannot fail.
        let Ok(commit) = Commit::parse(bytes.to_vec(), &[]) else {
            return Self::default();
        };
        let records = || commit.records().flatten();
        let entities: BTreeSet<String> = records()
            .filter(|record| !record.kind.is_empty())
            .map(|record| format!("{}/{}", record.kind, record.id))
            .collect();
        let keys: BTreeSet<String> = records()
            .filter(|record| record.record == RecordKind::Key)
            .map(|record| record.name.to_owned())
            .collect();
        Self {
            position: commit.position(),
            at_micros: commit.stamp().at_micros,
            entities: entities.into_iter().collect(),
            keys: keys.into_iter().collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use throng_journal::{Address, CommitBuilder, CommitNo, ShardId, Stamp, WriterId};

    fn commit(number: u64, body: &[u8]) -> Commit {
        let mut open = CommitBuilder::default();
        let address = Address::new("account", format!("a{number}"));
        open.push(RecordKind::Event, ShardId(1), &address, 1, "Paid", 1, body);
        open.push(RecordKind::Key, ShardId(1), &address, 0, &format!("k{number}"), 0, b"");
        let mut commit = open.finish(Stamp::new(WriterId(3), CommitNo(number), 7));
        commit.seal(&[]);
        commit
    }

    fn known(recent: &Recent) -> Vec<u64> {
        let at = |commit| Position::new(WriterId(3), CommitNo(commit));
        let lost = recent.between(at(1), at(100));
        lost.iter().map(|lost| lost.position.commit.0).collect()
    }

    #[test]
    fn commits_are_known_for_a_minute_with_entities_and_keys() {
        let (mut recent, begun) = (Recent::default(), Instant::now());
        recent.push(&commit(1, b"{}"), begun);
        recent.push(&commit(2, b"{}"), begun);
        recent.push(&commit(3, b"{}"), begun + AGE_MAX);
        assert_eq!(known(&recent), [2, 3]);
        let two = &recent.between("3.1".parse::<Position>().unwrap(), "3.2".parse::<Position>().unwrap())[0];
        assert_eq!(
            (two.at_micros, &*two.entities, &*two.keys),
            (7, &["account/a2".to_owned()][..], &["k2".to_owned()][..])
        );
        recent.push(&commit(4, b"{}"), begun + AGE_MAX + Duration::from_micros(1));
        assert_eq!(known(&recent), [3, 4]);
    }

    #[test]
    fn commits_beyond_64_mebibytes_are_forgotten() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let third = vec![0; BYTES_MAX / 3];
        for number in 2..=5 {
            recent.push(&commit(number, &third), now);
        }
        assert_eq!(known(&recent), [4, 5]);
        assert!(recent.bytes <= BYTES_MAX);
    }
}
