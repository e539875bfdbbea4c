//! A bare `pwrite` + `fdatasync` loop: the upper bound for a journal that syncs every block on this disk.
//!
//! There is one file. Each round writes and syncs one block and takes the time. The file is made in the measured directory and removed at the end,
//! also after an error. [`Mode`] chooses one of the two ways in which a journal may lay out its segments.

use clap::{Args, ValueEnum};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;
/// The most blocks of one measurement.
pub const BLOCKS_MAX: usize = 1_000_000;
/// The largest file, in bytes. A growing file that would exceed it is refused. A pre-zeroed one is written again from its start.
pub const FILE_BYTES_MAX: u64 = 4 << 30;
/// The bytes that are zeroed before the first block of [`Mode::PreZeroed`], unless a single block is larger.
const SEGMENT_BYTES: u64 = 256 << 20;

/// The layout of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Zeros were written and synced before. Blocks then change only bytes, never the file's length or its extents.
    PreZeroed,
    /// Each block extends the file, so that each sync also commits its metadata.
    Growing,
}

/// The figures of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskFigures {
    /// The bytes of a block.
    pub block_bytes: usize,
    /// The number of written and synced blocks.
    pub blocks: usize,
    /// The median time of one write and sync, in µs.
    pub p50_us: f64,
    /// The 99th percentile of one write and sync, in µs.
    pub p99_us: f64,
    /// The bytes of all blocks divided by the time of the whole loop, in bytes a second.
    pub bytes_per_s: f64,
}

impl DiskFigures {
    /// Returns the rate in MB a second (10⁶ bytes).
    pub fn megabytes_per_s(&self) -> f64 {
        self.bytes_per_s / 1e6
    }
}

/// The reason why the disk could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The block's length is out of range.
    #[error("cannot write blocks of {block_bytes} bytes: choose 1 to {BLOCK_BYTES_MAX}")]
    BlockBytes {
        /// The requested length.
        block_bytes: usize,
    },
    /// The number of blocks is out of range.
    #[error("cannot write {blocks} blocks: choose 1 to {BLOCKS_MAX}")]
    Blocks {
        /// The requested number.
        blocks: usize,
    },
    /// A growing file would exceed [`FILE_BYTES_MAX`].
    #[error(
        "a growing file would reach {bytes} bytes, above the limit of {FILE_BYTES_MAX}: write fewer or smaller blocks"
    )]
    TooLarge {
        /// The length that the file would reach.
        bytes: u64,
    },
    /// The file system refused an operation.
    #[error("could not {step} a file in {directory}: {source}")]
    File {
        /// The measured directory.
        directory: PathBuf,
        /// The refused operation, as it completes "could not … a file".
        step: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// Writes and syncs `blocks` blocks of `block_bytes` bytes each to a new file in `directory`.
///
/// # Errors
/// A number is out of its range, or the file system refuses to create, write or sync the file.
pub fn measure(directory: &Path, block_bytes: usize, blocks: usize, mode: Mode) -> Result<DiskFigures, DiskError> {
    let layout = Layout::of(block_bytes, blocks, mode)?;
    let failed = |step| {
        move |source| DiskError::File {
            directory: directory.to_path_buf(),
            step,
            source,
        }
    };

    let file = tempfile::Builder::new()
        .prefix("yardstick-")
        .suffix(".disk")
        .tempfile_in(directory)
        .map_err(failed("create"))?;
    if mode == Mode::PreZeroed {
        write_zeros(file.as_file(), layout.file_bytes).map_err(failed("zero"))?;
    }
    file.as_file().sync_all().map_err(failed("sync"))?;

    let mut block = noise(block_bytes);
    let mut times = Vec::with_capacity(blocks);
    let begin = Instant::now();
    for number in 0..blocks {
        stamp(&mut block, number);
        let start = Instant::now();
        file.as_file()
            .write_all_at(&block, layout.place(number))
            .map_err(failed("write"))?;
        file.as_file().sync_data().map_err(failed("sync"))?;
        times.push(start.elapsed());
    }
    let elapsed = begin.elapsed();

    times.sort_unstable();
    Ok(DiskFigures {
        block_bytes,
        blocks,
        p50_us: microseconds(percentile(&times, 50)),
        p99_us: microseconds(percentile(&times, 99)),
        bytes_per_s: (block_bytes as f64 * blocks as f64) / elapsed.as_secs_f64(),
    })
}

/// The positions of blocks.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    block_bytes: u64,
    file_bytes: u64,
}

impl Layout {
    fn of(block_bytes: usize, blocks: usize, mode: Mode) -> Result<Self, DiskError> {
        if !(1..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(DiskError::BlockBytes { block_bytes });
        }
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            return Err(DiskError::Blocks { blocks });
        }
        let block_bytes = block_bytes as u64;
        let bytes = block_bytes * blocks as u64;
        match mode {
            Mode::Growing if bytes > FILE_BYTES_MAX => Err(DiskError::TooLarge { bytes }),
            Mode::Growing => Ok(Self {
                block_bytes,
                file_bytes: bytes,
            }),
            Mode::PreZeroed => {
                let whole_blocks = (SEGMENT_BYTES / block_bytes).clamp(1, blocks as u64);
                Ok(Self {
                    block_bytes,
                    file_bytes: whole_blocks * block_bytes,
                })
            }
        }
    }

    /// Returns the offset of a block. Blocks follow each other, from the start again when the file is full.
    fn place(&self, number: usize) -> u64 {
        (number as u64 * self.block_bytes) % self.file_bytes
    }
}

fn write_zeros(file: &File, bytes: u64) -> std::io::Result<()> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let zeros = vec![0_u8; CHUNK_BYTES as usize];
    let mut offset = 0;
    while offset < bytes {
        let length = CHUNK_BYTES.min(bytes - offset);
        file.write_all_at(&zeros[..length as usize], offset)?;
        offset += length;
    }
    Ok(())
}

/// Returns bytes that no file system can compress or deduplicate (xorshift64).
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut block = Vec::with_capacity(bytes + 8);
    while block.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block.truncate(bytes);
    block
}

/// Makes each block differ from the one before it.
fn stamp(block: &mut [u8], number: usize) {
    for (byte, stamp) in block.iter_mut().zip(number.to_le_bytes()) {
        *byte ^= stamp;
    }
}

/// Returns the nearest-rank percentile of sorted, non-empty times.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The arguments of the measurement.
#[derive(Args, Debug)]
pub struct DiskArguments {
    /// The directory on the disk to measure.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Bytes a block.
    #[arg(long, default_value_t = 4096)]
    pub block_bytes: usize,
    /// Blocks to write and sync.
    #[arg(long, default_value_t = 2000)]
    pub blocks: usize,
    /// The layout of the file.
    #[arg(long, value_enum, default_value = "pre-zeroed")]
    pub mode: Mode,
}

impl DiskArguments {
    /// Measures and prints one line of figures.
    ///
    /// # Errors
    /// The same as those of [`measure`].
    pub fn run(&self) -> Result<(), DiskError> {
        let figures = measure(&self.dir, self.block_bytes, self.blocks, self.mode)?;
        println!(
            "{} blocks of {} bytes, {:?}: p50 {:.1} µs, p99 {:.1} µs, {:.1} MB/s",
            figures.blocks,
            figures.block_bytes,
            self.mode,
            figures.p50_us,
            figures.p99_us,
            figures.megabytes_per_s()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        times.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let times = milliseconds(1..=200);
        assert_eq!(percentile(&times, 50), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99), Duration::from_millis(198));
        assert_eq!(percentile(&times[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&times[..3], 50), Duration::from_millis(2));
    }

    #[test]
    fn both_modes_write_all_their_blocks_and_leave_no_file_behind() {
        for mode in [Mode::PreZeroed, Mode::Growing] {
            let directory = tempfile::tempdir().unwrap();
            let figures = measure(directory.path(), 512, 20, mode).unwrap();
            assert_eq!((figures.blocks, figures.block_bytes), (20, 512));
            assert!(0.0 < figures.p50_us && figures.p50_us <= figures.p99_us, "{figures:?}");
            assert!(figures.bytes_per_s > 0.0);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{mode:?}");
        }
    }

    #[test]
    fn a_zeroed_segment_has_whole_blocks_and_wraps_to_its_start() {
        let layout = Layout::of(100 << 20 >> 1, 7, Mode::PreZeroed).unwrap();
        assert_eq!(layout.file_bytes, 5 * (50 << 20));
        assert_eq!(layout.place(4), 4 * (50 << 20));
        assert_eq!(layout.place(5), 0);
        assert_eq!(Layout::of(4096, 3, Mode::PreZeroed).unwrap().file_bytes, 3 * 4096);
    }

    #[test]
    fn a_growing_file_never_writes_a_place_twice() {
        let layout = Layout::of(4096, 1000, Mode::Growing).unwrap();
        assert_eq!(layout.place(999), 999 * 4096);
    }

    #[test]
    fn a_block_differs_from_the_one_before_it() {
        let mut block = noise(4096);
        assert!(block.iter().any(|&byte| byte != 0));
        stamp(&mut block, 1);
        let first = block.clone();
        stamp(&mut block, 2);
        assert_ne!(first, block);
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_the_range() {
        let refused = |block_bytes, blocks, mode| Layout::of(block_bytes, blocks, mode).unwrap_err().to_string();
        assert_eq!(
            refused(0, 1, Mode::Growing),
            "cannot write blocks of 0 bytes: choose 1 to 67108864"
        );
        assert_eq!(
            refused(1, 0, Mode::Growing),
            "cannot write 0 blocks: choose 1 to 1000000"
        );
        let too_large = refused(BLOCK_BYTES_MAX, 65, Mode::Growing);
        assert!(
            too_large.contains("4362076160") && too_large.contains("write fewer or smaller blocks"),
            "{too_large}"
        );
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = measure(Path::new("no/such/directory"), 512, 1, Mode::Growing)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("could not create a file in no/such/directory: "),
            "{error}"
        );
    }
}
