//! The window: the last commits, decoded. A contiguous, bounded part of history, without I/O.
//!
//! Streams of several nodes have no common order except within a shard. A window holds their commits in the order in which this node
//! read them; another node's window may have another order. So a follower's position is what it has [got](Positions) of each stream. Its
//! [spot](Spot) in this window only spares it another look at what it has seen here.

use super::{
    cursor::Cursor,
    decode::{Decoded, EntityEvent},
};
use std::{collections::VecDeque, sync::Arc};
use throng_journal::{Position, Positions, Stream};

/// The most bytes of payloads on one page, after its first event.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The bounds of a page, which always holds at least one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimit {
    pub(crate) events: usize,
    /// Bytes of payloads; the source of a page has its own bound, too.
    pub(crate) bytes: usize,
}

impl PageLimit {
    /// A bound on events, with as many bytes as the source allows.
    pub(crate) fn of(events: usize) -> Self {
        let bytes = usize::MAX;
        Self { events, bytes }
    }
}

/// A page of events of a kind's entities.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Durable events in the order of the log.
    pub events: Vec<Arc<EntityEvent>>,
    /// The place where the next page begins.
    pub next: Cursor,
    /// True if there is more of the log to read, with or without an event of this kind.
    pub more: bool,
}

/// The bounds of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes_max: usize,
    pub(super) commits_max: usize,
}

/// The events that a follower sees: those of a kind, or of one entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) kind: usize,
    /// The id of the entity; `None`: all of the kind.
    pub(crate) entity: Option<Box<str>>,
}

/// The decoded commits that are part of `end` but not of `begin`.
#[derive(Debug)]
pub(super) struct Window {
    /// Distinguishes this window from earlier and later ones.
    id: u64,
    begin: Positions,
    end: Positions,
    /// The commits, in an order in which they may be delivered. None between `begin` and `end` is missing.
    commits: VecDeque<Decoded>,
    /// The place of the first of them.
    first: i64,
    /// The streams from `begin`'s first on, as last read.
    pub(super) streams: Vec<Stream>,
    /// Bytes of all `commits`, at most `bounds.bytes_max`.
    bytes: usize,
    bounds: Bounds,
}

/// A position between two commits of a window. Its holder had reached the beginning of the window, and has got every commit before this
/// spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    window: u64,
    at: i64,
}

impl Window {
    /// Makes an empty window, whose first commit is the next one after `begin`.
    pub(super) fn new(id: u64, begin: Positions, bounds: Bounds) -> Self {
        Self {
            id,
            end: begin.clone(),
            begin,
            commits: VecDeque::new(),
            first: 0,
            streams: Vec::new(),
            bytes: 0,
            bounds,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn begin(&self) -> &Positions {
        &self.begin
    }

    pub(super) fn end(&self) -> &Positions {
        &self.end
    }

    /// Returns the spot before the next commit.
    pub(super) fn end_spot(&self) -> Spot {
        Spot {
            window: self.id,
            at: self.first + i64::try_from(self.commits.len()).unwrap_or(i64::MAX),
        }
    }

    /// True if the window holds everything from the cursor to its own end.
    pub(super) fn covers(&self, from: &Cursor, spot: Option<Spot>) -> bool {
        self.place_of(spot).is_some() || from.told.includes(&self.begin)
    }

    /// True if all decoded commits are before the cursor.
    pub(super) fn is_before(&self, from: &Cursor, spot: Option<Spot>) -> bool {
        spot == Some(self.end_spot()) || from.told.includes(&self.end)
    }

    fn place_of(&self, spot: Option<Spot>) -> Option<usize> {
        let spot = spot.filter(|spot| spot.window == self.id)?;
        usize::try_from(spot.at - self.first).ok()
    }

    /// Adds the next commit. The oldest ones make room.
    pub(super) fn push(&mut self, commit: Decoded) {
        self.end.tell(commit.position, &self.streams);
        self.bytes += commit.bytes;
        self.commits.push_back(commit);
        while self.bytes > self.bounds.bytes_max || self.commits.len() > self.bounds.commits_max {
            let Some(oldest) = self.commits.pop_front() else { return };
            self.bytes -= oldest.bytes;
            self.first += 1;
            self.begin.tell(oldest.position, &self.streams);
        }
    }

    /// Adds consecutive commits of one stream in front, as far as there is room. They are added only if they adjoin the window, given that
    /// everything in `before` was delivered.
    pub(super) fn extend_back(&mut self, before: &Positions, commits: Vec<Decoded>, streams: &[Stream]) {
        let Some(last) = commits.last() else { return };
        let mut after = before.clone();
        after.tell(last.position, streams);
        let mut begin = self.begin.clone();
        begin.drop_ended(streams);
        if !begin.includes(before) || !after.includes(&begin) {
            return;
        }
        let mut commits = commits;
        commits.retain(|commit| self.begin.has(commit.position));
        let mut begins = before.clone();
        while let Some(commit) = commits.pop() {
            let bytes = self.bytes + commit.bytes;
            if bytes > self.bounds.bytes_max || self.commits.len() >= self.bounds.commits_max {
                begins.tell(commit.position, streams);
                break;
            }
            self.bytes = bytes;
            self.first -= 1;
            self.commits.push_front(commit);
        }
        self.begin = begins;
        if let Some(first) = self.streams.first().map(|first| first.writer) {
            let before = streams.iter().filter(|stream| stream.writer < first).cloned();
            self.streams = before.chain(self.streams.drain(..)).collect();
        }
    }

    /// Returns the events from a cursor to the window's end, at most a page, and the spot after them.
    pub(super) fn page(
        &self,
        interest: &Interest,
        from: &Cursor,
        spot: Option<Spot>,
        limit: PageLimit,
    ) -> (Feed, Spot) {
        let first = self.place_of(spot).unwrap_or(0).min(self.commits.len());
        let (mut feed, seen) = page(self.commits.range(first..), interest, from, limit, &self.streams);
        if !feed.more {
            feed.next.join(&self.end);
            return (feed, self.end_spot());
        }
        let at = self.first + i64::try_from(first + seen).unwrap_or(i64::MAX);
        (feed, Spot { window: self.id, at })
    }
}

/// Returns the events of these commits from a cursor on, at most a page, and the number of commits that were read completely. `more`: the
/// page was cut.
pub(super) fn page<'a>(
    commits: impl Iterator<Item = &'a Decoded>,
    interest: &Interest,
    from: &Cursor,
    limit: PageLimit,
    streams: &[Stream],
) -> (Feed, usize) {
    let bytes_max = limit.bytes.min(PAGE_BYTES_MAX);
    let mut feed = Feed {
        events: Vec::new(),
        next: from.clone(),
        more: false,
    };
    let (mut bytes, mut seen) = (0, 0);
    // The last commit of each stream that was read completely, and how much was read of the commit in which the page is cut.
    let (mut through, mut cut): (Vec<Position>, Option<(Position, u32)>) = (Vec::new(), None);
    'page: for commit in commits {
        let position = commit.position;
        if from.told.has(position) {
            seen += 1;
            continue;
        }
        let mut told = from.records(position);
        for (event, number) in commit.events(interest.kind, from) {
            if interest.entity.as_ref().is_some_and(|id| *id != event.id) {
                continue;
            }
            bytes += event.event.payload.len();
            if feed.events.len() == limit.events || bytes > bytes_max && !feed.events.is_empty() {
                cut = Some((position, told));
                break 'page;
            }
            told = number;
            feed.events.push(event.clone());
        }
        seen += 1;
        match through.iter_mut().find(|at| at.writer == position.writer) {
            Some(at) => *at = position,
            None => through.push(position),
        }
    }
    through.iter().for_each(|upto| feed.next.tell(*upto, streams));
    if let Some((position, records)) = cut {
        feed.more = true;
        if records > 0 {
            feed.next.begin(position, records, streams);
        }
    }
    (feed, seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{Address, Commit, CommitBuilder, CommitNo, RecordKind, ShardId, Stamp, WriterId};

    const KINDS: [&str; 2] = ["till", "shelf"];

    fn at(writer: u64, commit: u64) -> Position {
        Position::new(WriterId(writer), CommitNo(commit))
    }

    fn commit(position: Position, events: &[(&str, &str, u64)]) -> Commit {
        let mut open = CommitBuilder::default();
        for (kind, id, seq) in events {
            let address = Address::new(*kind, *id);
            open.push(RecordKind::Sent, ShardId(0), &address, *seq, "note", 0, b"");
            open.push(RecordKind::Event, ShardId(0), &address, *seq, "moved", 1, b"{}");
        }
        open.finish(Stamp::new(position.writer, position.commit, 7))
    }

    fn decoded(position: Position, events: &[(&str, &str, u64)]) -> Decoded {
        Decoded::new(&commit(position, events), &KINDS)
    }

    fn stream(writer: u64, last: u64, is_sealed: bool) -> Stream {
        Stream {
            writer: WriterId(writer),
            shards: Some([ShardId(u16::try_from(writer).unwrap())].into_iter().collect()),
            last: CommitNo(last),
            is_sealed,
        }
    }

    /// Returns a window over the streams of two nodes, neither of which has ended.
    fn window(begin: &str, bytes_max: usize) -> Window {
        let commits_max = 5;
        let begin: Positions = begin.parse().unwrap();
        let mut window = Window::new(1, begin, Bounds { bytes_max, commits_max });
        window.streams = vec![stream(1, 30, false), stream(2, 30, false)];
        window
    }

    fn cursor(text: &str) -> Cursor {
        text.parse().unwrap()
    }

    fn looked_through(window: &Window, of: &Interest, from: &Cursor, limit: usize) -> Feed {
        window.page(of, from, None, PageLimit::of(limit)).0
    }

    fn all(kind: usize) -> Interest {
        Interest { kind, entity: None }
    }

    fn told(feed: &Feed) -> Vec<(&str, u64)> {
        let events = feed.events.iter();
        events.map(|event| (&*event.id, event.event.seq)).collect()
    }

    #[test]
    fn next_page_begins_behind_the_last_event_of_a_page() {
        let mut window = window("1.4", usize::MAX);
        window.push(decoded(
            at(1, 5),
            &[("till", "a", 1), ("shelf", "s", 1), ("till", "b", 1)],
        ));
        window.push(decoded(at(1, 6), &[("shelf", "s", 2)]));
        window.push(decoded(at(2, 1), &[("till", "c", 1)]));
        for with_spot in [true, false] {
            let (mut from, mut spot, mut seen, mut cursors) = (cursor("1.5"), None, Vec::new(), Vec::new());
            for _ in 0..3 {
                let (page, behind) = window.page(&all(0), &from, spot, PageLimit::of(1));
                seen.extend(told(&page).into_iter().map(|(id, seq)| (id.to_owned(), seq)));
                (from, spot) = (page.next, with_spot.then_some(behind));
                cursors.push(from.to_string());
            }
            assert_eq!(seen, [("a".into(), 1), ("b".into(), 1), ("c".into(), 1)]);
            assert_eq!(cursors, ["1.5+2", "1.7", "1.7,2.2"]);
            assert!(window.is_before(&from, spot) && looked_through(&window, &all(0), &from, 1).events.is_empty());
        }
        let one = Interest {
            kind: 0,
            entity: Some("a".into()),
        };
        let page = looked_through(&window, &one, &cursor("1.5"), 9);
        assert_eq!((told(&page), page.more), (vec![("a", 1)], false));
        assert_eq!(page.next, cursor("1.7,2.2"));
        assert_eq!(told(&looked_through(&window, &all(1), &cursor("1.6"), 9)), [("s", 2)]);
    }

    #[test]
    fn follower_told_in_another_order_hears_the_rest_once() {
        let mut window = window("1.4", usize::MAX);
        window.push(decoded(at(1, 5), &[("till", "a", 1)]));
        window.push(decoded(at(2, 1), &[("till", "c", 1), ("till", "d", 1)]));
        window.push(decoded(at(1, 6), &[("till", "a", 2)]));
        // Another node's window had the second stream first.
        let page = looked_through(&window, &all(0), &cursor("1.5,2.1+2"), 9);
        assert_eq!(told(&page), [("a", 1), ("d", 1), ("a", 2)]);
        assert_eq!(page.next.to_string(), "1.7,2.2");
        let beyond = looked_through(&window, &all(0), &cursor("1.6,2.9"), 9);
        assert_eq!(told(&beyond), [("a", 2)]);
        assert_eq!(beyond.next.to_string(), "1.7,2.9");
        // The first stream was read to its end, as another node's cursor says.
        assert!(looked_through(&window, &all(0), &cursor("2.2"), 9).events.is_empty());
        assert!(!window.covers(&cursor("1.4,2.2"), None));
    }

    #[test]
    fn oldest_commits_go_first_and_gaps_are_not_covered() {
        let one = decoded(at(1, 1), &[("till", "a", 1)]).bytes;
        let mut window = window("1.0", 3 * one);
        let covers = |window: &Window, from: &str| window.covers(&cursor(from), None);
        for number in 1..=7 {
            window.push(decoded(at(1, number), &[("till", "a", number)]));
            assert!(
                window.bytes <= 3 * one
                    && window.bytes == window.commits.iter().map(|commit| commit.bytes).sum::<usize>()
            );
        }
        assert_eq!(
            (window.begin.to_string(), window.end().to_string()),
            ("1.4".into(), "1.7".into())
        );
        assert!(!covers(&window, "1.4") && covers(&window, "1.5"));
        let spot = window.end_spot();
        // The number of entries is limited, too.
        for number in 8..20 {
            window.push(decoded(at(1, number), &[]));
        }
        assert_eq!(window.commits.len(), 5);
        assert!(!window.covers(&cursor("1.8"), Some(spot)), "what followed it is gone");
        // A commit that is too large is not kept, so the window does not cover it.
        let many: Vec<(&str, &str, u64)> = (0..9).map(|seq| ("till", "a", seq)).collect();
        window.push(decoded(at(1, 20), &many));
        assert!(window.commits.is_empty() && window.bytes == 0);
        assert!(!covers(&window, "1.20") && covers(&window, "1.21"));
    }

    #[test]
    fn earlier_reads_are_added_while_room_and_no_gap() {
        let commit = |number| decoded(at(1, number), &[("till", "a", number)]);
        let mut window = window("1.7", 4 * commit(1).bytes);
        let streams = [stream(1, 30, false), stream(2, 30, false)];
        let told_before = |text: &str| text.parse::<Positions>().unwrap();
        window.push(commit(8));
        window.extend_back(&told_before("1.2"), (3..=6).map(commit).collect(), &streams);
        assert_eq!(window.begin.to_string(), "1.7", "commit 7 is missing between");
        window.extend_back(&told_before("1.3,2.4"), (4..=9).map(commit).collect(), &streams);
        assert_eq!(window.begin.to_string(), "1.7", "it was told more of the other stream");
        window.extend_back(&told_before("1.3"), (4..=9).map(commit).collect(), &streams);
        assert_eq!(
            (window.begin.to_string(), window.end().to_string()),
            ("1.4".into(), "1.8".into())
        );
        let page = looked_through(&window, &all(0), &cursor("1.5"), 9);
        let seqs: Vec<u64> = page.events.iter().map(|event| event.event.seq).collect();
        assert_eq!(seqs, [5, 6, 7, 8]);
        window.extend_back(&told_before("2.3"), vec![decoded(at(2, 4), &[])], &streams);
        assert_eq!(window.begin.to_string(), "1.4", "of another stream");
    }
}
