//! The embedded journal and store: a directory of log segments and one database file, without any installation.
//!
//! [`Log`] is the [`Journal`](throng_journal::Journal): one buffer, one write, one sync a commit. [`EmbeddedStore`] is the
//! [`Store`](throng_journal::Store): states and an index of the places of events in the log, rebuilt from it when lost. [`EmbeddedViews`]
//! are the [`Views`](throng_journal::Views): read models in a separate database file.
//!
//! ```
//! use throng_journal::{Address, CommitBuilder, CommitNo, Journal, RecordKind, ShardId, Stamp, conformance::block_on};
//! use throng_log::{Options, open_embedded};
//!
//! let dir = tempfile::tempdir()?;
//! let (log, store) = open_embedded(dir.path(), Options::default())?;
//! let writer = block_on(log.open("local"))?.writer;
//!
//! let mut open = CommitBuilder::default();
//! open.push(RecordKind::Event, ShardId(3), &Address::new("section", "C S 142-1"), 1, "Opened", 1, br#"{"capacity":30}"#);
//! let commit = open.finish(Stamp::new(writer, CommitNo(1), 0));
//! block_on(log.append(commit).landed()).result?; // It survives power loss from here on.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The directory
//!
//! ```text
//! lock           held (flock), like the directory itself, by the one process that may use it; its id inside, for people
//! 00000001.log   segments, numbered from 1
//! 00000002.log   …
//! reserve        holds nothing: room for the end, given up when the disk is full
//! unfinished     an import, a first backup or a restore is filling the directory: it is no journal yet
//! store.redb     the store (can be removed while nothing runs: it is rebuilt)
//! store.redb.new a compaction writes the store anew; removed at the next start if it was cut off
//! views.redb     read models (can be removed while nothing runs: projections rebuild them)
//! ```
//!
//! # A segment, byte by byte
//!
//! All numbers are little-endian. A sector is 512 bytes, which a disk is assumed to write completely or not at all. Every commit begins at
//! a sector, so that no later write touches a sector that was synced.
//!
//! ```text
//!   offset  size  header
//!        0     8  magic "THRNGLOG"
//!        8     4  format version, 1
//!       12     4  CRC32C of bytes 0..12 and 16..512
//!       16     8  number of the segment, as in its name
//!       24     8  writer
//!       32     8  number of the first commit
//!       40     8  newest commit of this writer known to be synced when the segment was begun
//!       48     8  the writer before, or 0
//!       56     8  the last commit of the writer before: nothing after it counts
//!       64     8  when, microseconds since 1970-01-01 UTC
//!       72     1  1: the writer's id was set aside by a seal, nobody has opened it yet
//!       73     1  0
//!       74     2  length of the node's name
//!       76   256  the node's name
//!      332   180  zeros
//!
//!      512   512  a copy of the header
//!
//!     1024     …  commits (see throng_journal::commit), each at a multiple of 512, zeros between them.
//!                 Seed of a commit's checksum: number of the segment (8), offset in the file (8).
//!
//!        …     …  zeros, or bytes of an earlier use: their checksums do not fit here
//! ```
//!
//! Either of the two copies suffices. A copy of zeros was not written when the power failed, which [`tools::verify`] notes; any other
//! unreadable copy is damage. A header of zeros is a segment that was prepared ahead. A writer's stream continues in the next segment when
//! one is full; everything before it is synced first (at [`Fsync`](throng_journal::Durability::Fsync)). A **seal** is the synced header of
//! the next writer's first segment: from then on every recovery agrees on the end of the stream before.
//!
//! A commit of 64 KiB or more is padded with zeros, within its own length, so that it ends at a multiple of 4,096. Its whole blocks go to
//! the disk past the page cache (`O_DIRECT`), from the memory in which they were built, if file system and disk support that. While commits
//! are that large, the next segment is reserved and not filled with zeros, which would take as much of the disk's bandwidth as the commits.
//!
//! # What recovery does
//!
//! Recovery reads the headers, and follows the last writer's commits from the last position that a header calls synced. History ends before the
//! first commit that cannot be read. If any complete commit or header after it calls that commit synced, it is damage, and the log is not
//! opened. Otherwise the end was unfinished, none of it was acknowledged, and it is left out with a warning. The part of the end that was
//! read is written and synced again before the next writer begins, because the page cache may show what a failed sync never brought to the
//! disk. Older history is checked when it is read; [`tools::verify`] reads all of it.
//!
//! # History that ends
//!
//! [`prune`](throng_journal::Journal::prune) works on finished segments. Each is written to a new file (`….log.new`) without the expired
//! records, which then replaces it by a rename. What is left stays at its offset, so no index changes. What was removed is a hole in the
//! file, which takes no room. Commits without any record left become one that stands for all of them and has their total length (4 MiB at
//! most). At the end of a segment it has 56 bytes, and the file ends with it. A segment without any record left has 1.5 KiB, and stays.
//!
//! # A full disk
//!
//! Room is reserved a segment ahead, or half of it and so on if there is less, and room that a failed reservation has taken is given back.
//! If nothing is left, the file `reserve` is deleted. Its room suffices to seal the stream, for the store's checkpoint, and for the next
//! start. From then on [`has_room`](throng_journal::Journal::has_room) is false, and an engine takes no commands, until the file can be
//! created again, which is tried four times a second.
//!
//! # A copy
//!
//! The file `place` names its own inode and the machine. A restore and a backup write into it what the directory is a copy of. [`Place`]
//! tells a program whether its directory is a copy.
//!
//! # Syncs
//!
//! While a sync takes less than about 200 µs (moving average), an append syncs inline. Above that, another thread syncs, with two in
//! flight; above 1 ms eight, as long as that does not make each take longer. It returns to the former at half of each. Each thread opens
//! the segment itself, because Linux reports a failed write-back once for each open file. After a failed write or sync the writer has ended
//! and its segment is not written again. The seal decides that what was in doubt has not landed.

mod directory;
pub mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod history;
mod log;
mod options;
mod pace;
mod place;
mod recovery;
mod reserve;
mod rewrite;
mod scan;
mod store;
pub mod tools;
mod unfinished;
mod views;
mod worker;

pub use log::Log;
pub use options::Options;
pub use place::Place;
pub use store::{EmbeddedStore, open_embedded};
pub use views::EmbeddedViews;
