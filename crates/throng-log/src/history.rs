//! The log's index of its own history: writers, segments, and the places of recent commits.

use crate::{
    header::{Header, file_name},
    scan,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use throng_journal::{CommitNo, Inventory, PartEntry, Position, Taken, WriterEntry, WriterId};

/// The most finished segments whose directory is kept.
const DIRECTORIES_MAX: usize = 64;

/// The stream of a writer: one epoch of one node.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// Its last commit that can be read; final once it is sealed.
    pub last: CommitNo,
    /// True once nothing more can be appended.
    pub sealed: bool,
    /// True if a seal reserved it and no node has opened it.
    pub reserved: bool,
    pub node: String,
}

/// A segment that has been begun.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub number: u64,
    pub writer: WriterId,
    /// The number of its first commit.
    pub first: CommitNo,
    /// Distinguishes its beginning from any other's.
    pub fingerprint: u32,
    /// The time of its beginning.
    pub at_micros: i64,
}

/// The place of a commit.
#[derive(Clone, Debug)]
pub(crate) struct CommitPlace {
    pub segment: Segment,
    /// The last known commit in this segment.
    pub segment_last: CommitNo,
    /// Its offset in bytes, where the directory is in memory.
    pub offset: Option<u64>,
}

/// Writers in the order of history, segments in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub streams: BTreeMap<WriterId, Stream>,
    pub segments: Vec<Segment>,
    /// The sectors at which the commits of the current segment begin.
    active: Vec<u32>,
    /// The same of finished segments, latest used last.
    directories: VecDeque<(u64, Arc<Vec<u32>>)>,
}

impl History {
    /// Adds a new segment, and its writer if it is that one's first.
    pub(crate) fn begin(&mut self, header: &Header) {
        if let Some(finished) = self.segments.last().map(|segment| segment.number) {
            let directory = std::mem::take(&mut self.active);
            if !directory.is_empty() {
                self.keep_directory(finished, Arc::new(directory));
            }
        }
        if let Some(previous) = header.previous
            && let Some(stream) = self.streams.get_mut(&previous.writer)
        {
            stream.last = previous.commit;
            stream.sealed = true;
        }
        self.streams.entry(header.writer).or_insert_with(|| Stream {
            last: CommitNo(0),
            sealed: false,
            reserved: header.reserved,
            node: header.node.clone(),
        });
        self.segments.push(Segment {
            number: header.segment,
            writer: header.writer,
            first: header.first,
            fingerprint: header.fingerprint(),
            at_micros: header.at_micros,
        });
    }

    /// Returns the newest writers and segments, at most `limit` of each, without the segments' bytes.
    pub(crate) fn inventory(&self, limit: usize) -> Inventory {
        let writers = self.streams.iter().filter(|(_, stream)| !stream.reserved);
        let listed = writers.clone().rev().take(limit).map(|(writer, stream)| {
            let begin = self.segments.partition_point(|segment| segment.writer < *writer);
            let end = self.segments.partition_point(|segment| segment.writer <= *writer);
            WriterEntry {
                writer: *writer,
                node: stream.node.clone(),
                last: stream.last,
                is_open: !stream.sealed,
                begun_micros: self.segments.get(begin).map(|segment| segment.at_micros),
                ended_micros: None,
                segments: Some((end - begin) as u64),
            }
        });
        let parts = self.segments.iter().rev().take(limit).map(|segment| PartEntry {
            name: file_name(segment.number),
            first: Some(Position::new(segment.writer, segment.first)),
            begun_micros: Some(segment.at_micros),
            rows: None,
            bytes: 0,
        });
        Inventory {
            writers: listed.collect(),
            writers_total: writers.count() as u64,
            parts: parts.collect(),
            parts_total: self.segments.len() as u64,
        }
    }

    /// Adds a commit that was written to the current segment.
    pub(crate) fn wrote(&mut self, offset: u64, stands_for: u32) {
        let places = std::iter::repeat_n(scan::sectors(offset), 1 + stands_for as usize);
        self.active.extend(places);
    }

    /// The directory of the last segment, found by recovery.
    pub(crate) fn set_active(&mut self, sectors: Vec<u32>) {
        self.active = sectors;
    }

    pub(crate) fn keep_directory(&mut self, segment: u64, directory: Arc<Vec<u32>>) {
        self.directories.retain(|(number, _)| *number != segment);
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.pop_front();
        }
        self.directories.push_back((segment, directory));
    }

    /// Drops the directory of a rewritten segment, so that it is read again.
    pub(crate) fn drop_directory(&mut self, segment: u64) {
        self.directories.retain(|(number, _)| *number != segment);
    }

    /// Drops the directories of the segments that end at or below a position.
    pub(crate) fn forget(&mut self, upto: Position) {
        let covered: Vec<u64> = self
            .segments
            .windows(2)
            .filter(|pair| {
                let next = (pair[1].writer, pair[1].first);
                next.0 <= upto.writer && (next.0 < upto.writer || next.1 <= upto.commit.next())
            })
            .map(|pair| pair[0].number)
            .collect();
        self.directories
            .retain(|(number, _)| covered.binary_search(number).is_err());
    }

    /// Returns the place of a commit; `None` if there is no such commit.
    pub(crate) fn locate(&self, position: Position) -> Option<CommitPlace> {
        let stream = self.streams.get(&position.writer)?;
        if position.commit.0 == 0 || position.commit > stream.last {
            return None;
        }
        let key = (position.writer, position.commit);
        let after = self
            .segments
            .partition_point(|segment| (segment.writer, segment.first) <= key);
        let segment = self.segments[..after].last().filter(|found| found.writer == key.0)?;
        let next = self.segments.get(after).filter(|next| next.writer == key.0);
        let segment_last = next.map_or(stream.last, |next| CommitNo(next.first.0 - 1));
        let index = usize::try_from(position.commit.0 - segment.first.0).ok()?;
        let sectors = if after == self.segments.len() {
            self.active.get(index)
        } else {
            self.directories
                .iter()
                .rfind(|(number, _)| *number == segment.number)
                .and_then(|(_, directory)| directory.get(index))
        };
        Some(CommitPlace {
            segment: segment.clone(),
            segment_last,
            offset: sectors.map(|sectors| scan::bytes_of(*sectors)),
        })
    }

    /// Returns the newest commit at or before a position; `0.0` if there is none.
    pub(crate) fn newest_upto(&self, upto: Position) -> Position {
        let stream = self.streams.range(..=upto.writer).next_back();
        stream.map_or_else(Position::default, |(writer, stream)| {
            Position::new(
                *writer,
                if *writer == upto.writer {
                    stream.last.min(upto.commit)
                } else {
                    stream.last
                },
            )
        })
    }

    /// Returns the sealed streams before a writer, in the order of history.
    pub(crate) fn sealed_before(&self, writer: WriterId) -> Vec<Taken> {
        self.streams
            .range(..writer)
            .filter(|(_, stream)| stream.sealed && !(stream.reserved && stream.last.0 == 0))
            .map(|(writer, stream)| Taken {
                writer: *writer,
                last: stream.last,
                shards: None,
            })
            .collect()
    }

    /// Returns a stream's first segment, whose fingerprint stands for the position before the first commit.
    pub(crate) fn beginning(&self, writer: WriterId) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.writer == writer)
    }
}
