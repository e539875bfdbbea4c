//! The last commits, decoded: a contiguous part of history, bounded, without I/O.

use super::{Cursor, Feed, FeedEvent, decode::Decoded};
use std::collections::VecDeque;
use throng_journal::{CommitNo, Position};

/// Bytes of payloads one page holds, after its first event.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// What a window may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes_max: usize,
    pub(super) commits_max: usize,
}

/// Whose events a follower sees: a kind's, or one entity's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) kind: usize,
    /// One entity's; `None`: all of the kind.
    pub(super) entity: Option<Box<str>>,
}

/// All commits from `begin` to `end`, decoded.
#[derive(Debug)]
pub(super) struct Window {
    begin: Position,
    /// The last commit that was decoded; what stands before `begin` while there is none.
    end: Position,
    /// In the order of history; none missing between `begin` and `end`.
    commits: VecDeque<Decoded>,
    /// Of all of them. At most `bounds.bytes_max`.
    bytes: usize,
    bounds: Bounds,
}

impl Window {
    /// Nothing yet, but what stands from here on is to come.
    pub(super) fn new(begin: Position, bounds: Bounds) -> Self {
        let end = Position {
            commit: CommitNo(begin.commit.0.saturating_sub(1)),
            ..begin
        };
        Self {
            begin,
            end,
            commits: VecDeque::new(),
            bytes: 0,
            bounds,
        }
    }

    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// Nothing between the cursor and the window's end is missing.
    pub(super) fn covers(&self, from: Cursor) -> bool {
        from.commit >= self.begin
    }

    /// All that was decoded is before the cursor.
    pub(super) fn is_before(&self, from: Cursor) -> bool {
        from.commit > self.end
    }

    /// Adds the commit that follows the last one; the oldest make room.
    pub(super) fn push(&mut self, commit: Decoded) {
        self.end = commit.position;
        self.bytes += commit.bytes;
        self.commits.push_back(commit);
        while self.bytes > self.bounds.bytes_max || self.commits.len() > self.bounds.commits_max {
            let Some(oldest) = self.commits.pop_front() else { return };
            self.bytes -= oldest.bytes;
            self.begin = Position {
                commit: oldest.position.commit.next(),
                ..oldest.position
            };
        }
    }

    /// Adds commits of one stream that follow each other in front, as far as there is room, if they reach the window.
    pub(super) fn extend_back(&mut self, commits: Vec<Decoded>) {
        let reaches = |last: &Decoded| {
            last.position.writer == self.begin.writer && last.position.commit.next() >= self.begin.commit
        };
        if !commits.last().is_some_and(reaches) {
            return;
        }
        let begin = self.begin;
        for commit in commits.into_iter().rev().skip_while(|commit| commit.position >= begin) {
            let bytes = self.bytes + commit.bytes;
            if bytes > self.bounds.bytes_max || self.commits.len() >= self.bounds.commits_max {
                return;
            }
            self.bytes = bytes;
            self.begin = commit.position;
            self.commits.push_front(commit);
        }
    }

    /// The events from a cursor on, to the window's end or as many as one page holds.
    pub(super) fn page(&self, interest: &Interest, from: Cursor, limit: usize) -> Feed {
        let first = self.commits.partition_point(|commit| commit.position < from.commit);
        page(self.commits.range(first..), interest, from, limit)
    }
}

/// The events of these commits from a cursor on, as many as one page holds; `more`: it was cut.
pub(super) fn page<'a>(
    commits: impl Iterator<Item = &'a Decoded>,
    interest: &Interest,
    from: Cursor,
    limit: usize,
) -> Feed {
    let mut feed = Feed {
        events: Vec::new(),
        next: from,
        more: false,
    };
    let mut bytes = 0;
    for commit in commits {
        for (event, next) in commit.events(interest.kind, from) {
            if interest.entity.as_ref().is_some_and(|id| *id != event.id) {
                continue;
            }
            bytes += event.event.payload.len();
            if feed.events.len() == limit || bytes > PAGE_BYTES_MAX && !feed.events.is_empty() {
                feed.more = true;
                // Behind the last event that is told, which may stand in an earlier commit.
                feed.next = feed.events.last().map_or(from, |last| last.next);
                return feed;
            }
            let event = event.clone();
            feed.events.push(FeedEvent { event, next });
        }
        feed.next = Cursor::after(commit.position);
    }
    feed
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{Address, Commit, CommitBuilder, RecordKind, ShardId, Stamp, WriterId};

    const KINDS: [&str; 2] = ["till", "shelf"];

    fn at(writer: u64, commit: u64) -> Position {
        Position {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        }
    }

    fn commit(position: Position, events: &[(&str, &str, u64)]) -> Commit {
        let mut open = CommitBuilder::default();
        for (kind, id, seq) in events {
            let address = Address::new(*kind, *id);
            open.push(RecordKind::Sent, ShardId(0), &address, *seq, "note", 0, b"");
            open.push(RecordKind::Event, ShardId(0), &address, *seq, "moved", 1, b"{}");
        }
        open.finish(Stamp {
            writer: position.writer,
            number: position.commit,
            synced: CommitNo(0),
            at_micros: 7,
        })
    }

    fn decoded(position: Position, events: &[(&str, &str, u64)]) -> Decoded {
        Decoded::new(&commit(position, events), &KINDS)
    }

    fn window(begin: Position, bytes_max: usize) -> Window {
        let commits_max = 5;
        Window::new(begin, Bounds { bytes_max, commits_max })
    }

    fn before(position: Position) -> Cursor {
        Cursor {
            commit: position,
            records: 0,
        }
    }

    fn all(kind: usize) -> Interest {
        Interest { kind, entity: None }
    }

    fn told(feed: &Feed) -> Vec<(&str, u64)> {
        let events = feed.events.iter().map(|event| &event.event);
        events.map(|event| (&*event.id, event.event.seq)).collect()
    }

    #[test]
    fn a_page_ends_behind_its_last_event_and_the_next_one_goes_on_there() {
        let mut window = window(at(1, 5), usize::MAX);
        window.push(decoded(
            at(1, 5),
            &[("till", "a", 1), ("shelf", "s", 1), ("till", "b", 1)],
        ));
        window.push(decoded(at(1, 6), &[("shelf", "s", 2)]));
        window.push(decoded(at(2, 1), &[("till", "a", 2)]));
        let (mut from, mut seen) = (before(at(1, 5)), Vec::new());
        for _ in 0..3 {
            let page = window.page(&all(0), from, 1);
            seen.extend(told(&page).into_iter().map(|(id, seq)| (id.to_owned(), seq)));
            from = page.next;
        }
        assert_eq!(seen, [("a".into(), 1), ("b".into(), 1), ("a".into(), 2)]);
        assert!(window.is_before(from) && window.page(&all(0), from, 1).events.is_empty());
        let one = Interest {
            kind: 0,
            entity: Some("a".into()),
        };
        let page = window.page(&one, before(at(1, 5)), 9);
        assert_eq!((told(&page), page.more), (vec![("a", 1), ("a", 2)], false));
        assert_eq!(page.next, Cursor::after(at(2, 1)));
        assert_eq!(told(&window.page(&all(1), before(at(1, 6)), 9)), [("s", 2)]);
    }

    #[test]
    fn the_oldest_commits_go_first_and_what_is_missing_is_not_covered() {
        let one = decoded(at(1, 1), &[("till", "a", 1)]).bytes;
        let mut window = window(at(1, 1), 3 * one);
        for number in 1..=7 {
            window.push(decoded(at(1, number), &[("till", "a", number)]));
            assert!(
                window.bytes <= 3 * one
                    && window.bytes == window.commits.iter().map(|commit| commit.bytes).sum::<usize>()
            );
        }
        assert_eq!((window.begin, window.end()), (at(1, 5), at(1, 7)));
        assert!(!window.covers(before(at(1, 4))) && window.covers(before(at(1, 5))));
        // Also by their number.
        for number in 8..20 {
            window.push(decoded(at(1, number), &[]));
        }
        assert_eq!(window.commits.len(), 5);
        // One that is too large is not kept, and covered by nobody.
        let many: Vec<(&str, &str, u64)> = (0..9).map(|seq| ("till", "a", seq)).collect();
        window.push(decoded(at(1, 20), &many));
        assert!(window.commits.is_empty() && window.bytes == 0);
        assert!(!window.covers(before(at(1, 20))) && window.covers(before(at(1, 21))));
    }

    #[test]
    fn what_was_read_before_it_is_added_while_there_is_room_if_nothing_is_missing_between() {
        let commit = |number| decoded(at(1, number), &[("till", "a", number)]);
        let mut window = window(at(1, 8), 4 * commit(1).bytes);
        window.push(commit(8));
        window.extend_back((3..=6).map(commit).collect());
        assert_eq!(window.begin, at(1, 8), "commit 7 is missing between");
        window.extend_back((4..=9).map(commit).collect());
        assert_eq!((window.begin, window.end()), (at(1, 5), at(1, 8)));
        let seqs: Vec<u64> = window
            .page(&all(0), before(at(1, 5)), 9)
            .events
            .iter()
            .map(|e| e.event.event.seq)
            .collect();
        assert_eq!(seqs, [5, 6, 7, 8]);
        window.extend_back(vec![decoded(at(2, 4), &[])]);
        assert_eq!(window.begin, at(1, 5), "of another stream");
    }
}
