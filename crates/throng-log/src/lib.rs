//! The embedded journal and store: a directory of log segments and one database file, nothing to install.
//!
//! [`Log`] is the [`Journal`](throng_journal::Journal): one buffer, one write, one sync a commit. [`EmbeddedStore`] is the
//! [`Store`](throng_journal::Store): states and an index of where events stand in the log, rebuilt from it when lost.
//! [`EmbeddedViews`] are the [`Views`](throng_journal::Views): read models in a database file of their own.
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
//! All numbers are little-endian. A sector is 512 bytes: what a disk is taken to write whole or not at all. Every commit
//! begins at a sector, so that no later write touches a sector that was synced.
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
//! Of the two copies one is enough. One of zeros was not written when the power went, which [`tools::verify`] notes; one that is
//! anything else and cannot be read is damage. A header of zeros is a segment made ready ahead. A writer's stream goes on in the next segment when one is full; all
//! before it is synced first (at [`Fsync`](throng_journal::Durability::Fsync)). A **seal** is the header of the next
//! writer's first segment, synced: from then on every recovery agrees on where the stream before ends.
//!
//! A commit of 64 KiB or more is padded with zeros, within its own length, so that it ends at a multiple of 4,096. Its whole blocks
//! go to the disk past the page cache (`O_DIRECT`), from the memory they were built in, where file system and disk take that;
//! and while commits are that large the next segment is reserved rather than filled with zeros, which would cost as much of the
//! disk's bandwidth as they do.
//!
//! # What recovery does
//!
//! It reads the headers, and follows the last writer's commits from the last position a header calls synced. History ends
//! before the first commit that cannot be read. If any whole commit or header after it calls that commit synced, it is
//! damage, and the log is not opened; else the end was unfinished, nothing of it was acknowledged, and it is left out with
//! a warning. What was read of the end is written and synced again before the next writer begins: the page cache may show
//! what a failed sync has never brought to the disk. Older history is checked as it is read; [`tools::verify`] reads all.
//!
//! # History that ends
//!
//! [`prune`](throng_journal::Journal::prune) works on segments that are finished. Each is written anew beside itself (`….log.new`) without
//! the records that are over, and then renamed: what is left stands where it stood, so no index changes; what went is a hole in the file,
//! which takes no room. Commits of which nothing is left become one that stands for all of them and is as long as they were together (4 MiB at
//! most); at the end of a segment it is 56 bytes, and the file ends with it. A segment of which nothing is left is 1.5 KiB, and stays.
//!
//! # A full disk
//!
//! Room is reserved a segment ahead, by halves where there is not so much, and what a reservation that failed has taken is given
//! back. Who finds nothing left gives up the file `reserve`: with its room the stream is sealed, the store makes its checkpoint,
//! and the next start begins. [`has_room`](throng_journal::Journal::has_room) is false from then on, and an engine takes no
//! commands, until the file can be made again, which is tried four times a second.
//!
//! # A copy
//!
//! The file `place` names its own inode and the machine; a restore and a backup write into it what the directory is a copy of. [`Place`]
//! tells a program whether it stands on a copy.
//!
//! # Syncs
//!
//! While a sync takes less than about 200 µs (moving average) an append syncs inline. Above, it is synced by a thread beside
//! the caller, two in flight, above 1 ms eight while that does not make each take longer; back at half of each. Each thread
//! opens the segment by itself, because Linux reports a failed write-back once for each open file. After a failed write or
//! sync the writer is over and its segment left for good; what was in doubt is decided by the seal: not landed.

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
