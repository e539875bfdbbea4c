//! Properties that hold for any bytes in place of a segment. Used by `throng-fuzz`.

use crate::{
    files::File,
    header::{Copies, DATA_AT, Fault, Header, SECTOR_BYTES, align, seed},
    scan::{self, Stray, Window, bytes_of},
};
use std::io;
use throng_journal::{CommitNo, HEADER_BYTES, WriterId, commit::stands_for};

const SEGMENT: u64 = 7;
const WRITER: WriterId = WriterId(1);
/// Offsets of a commit's length, writer, number, count of commits it stands for, and checksum.
const LENGTH_AT: usize = 4;
const WRITER_AT: usize = 8;
const NUMBER_AT: usize = 16;
const STANDS_FOR_AT: usize = 48;
const CRC_AT: usize = 52;
/// The most commits that one stands for here.
const STANDS_FOR_MAX: u32 = 255;

/// Reads a segment of these bytes: as they are, and split into pieces with correct checksums in place of commits.
pub fn segment(bytes: &[u8]) {
    look(&Bytes(bytes.to_vec()));
    look(&Bytes(fitted(bytes)));
}

/// Builds a segment of pieces, each of which begins with a byte for its length.
fn fitted(mut bytes: &[u8]) -> Vec<u8> {
    let header = Header {
        segment: SEGMENT,
        writer: WRITER,
        first: CommitNo(1),
        synced: CommitNo(0),
        previous: None,
        reserved: false,
        node: "fuzz".into(),
        at_micros: 0,
    };
    let (mut file, mut due) = (header.encode(), 1);
    while let [length, rest @ ..] = bytes {
        let (piece, left) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = left;
        let mut piece = piece.to_vec();
        due = fit(&mut piece, file.len() as u64, due);
        file.extend_from_slice(&piece);
        file.resize(file.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    }
    file
}

/// Gives a piece the magic, length and checksum of a commit and, if its bytes are zero there, the writer and the number that is due.
/// Returns the number that is due after it.
fn fit(piece: &mut [u8], offset: u64, due: u64) -> u64 {
    if piece.len() < HEADER_BYTES {
        return due;
    }
    piece[..LENGTH_AT].copy_from_slice(b"THC1");
    let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
    piece[LENGTH_AT..WRITER_AT].copy_from_slice(&length.to_le_bytes());
    if piece[WRITER_AT] == 0 {
        piece[WRITER_AT..NUMBER_AT].copy_from_slice(&WRITER.0.to_le_bytes());
    }
    let stands_for = stands_for(piece) & STANDS_FOR_MAX;
    piece[STANDS_FOR_AT..CRC_AT].copy_from_slice(&stands_for.to_le_bytes());
    let number = due + u64::from(stands_for);
    if piece[NUMBER_AT] == 0 {
        piece[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&seed(SEGMENT, offset)), &piece[..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &piece[HEADER_BYTES..]);
    piece[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    number + 1
}

fn look(file: &Bytes) {
    let head = &file.0[..file.0.len().min(DATA_AT as usize)];
    let (writer, first) = match Header::decode(head, SEGMENT) {
        Ok((header, _)) => {
            let again = Header::decode(&header.encode(), SEGMENT);
            assert_eq!(
                again,
                Ok((header.clone(), Copies::Both)),
                "a header is written as it was read"
            );
            let _ = header.fingerprint();
            (header.writer, header.first)
        }
        Err(Fault::Empty | Fault::OtherVersion(_) | Fault::Unreadable(_)) => (WRITER, CommitNo(1)),
    };
    let looked = walk(file, writer, first);
    assert!(looked.is_ok(), "memory can be read: {looked:?}");
}

fn walk(file: &Bytes, writer: WriterId, first: CommitNo) -> io::Result<()> {
    let mut window = Window::with_piece(file, SECTOR_BYTES as usize)?;
    let run = scan::follow(&mut window, SEGMENT, writer, first, DATA_AT)?;
    assert_eq!(run.end % SECTOR_BYTES, 0);
    assert!(
        run.end <= align(window.length()).max(DATA_AT),
        "commits are within the file"
    );
    assert!(!run.stop.is_empty(), "something stands where no commit does");
    assert!(run.sectors.is_sorted() && run.sectors.iter().all(|at| bytes_of(*at) < run.end));
    assert_eq!(
        run.next.0 - first.0,
        run.sectors.len() as u64,
        "each commit has its place"
    );
    for sector in &run.sectors {
        let commit = scan::commit_at(&mut window, SEGMENT, bytes_of(*sector))?;
        assert!(commit.is_ok(), "what was followed can be read again");
    }
    if !run.sectors.is_empty() {
        let last = CommitNo(run.next.0 - 1);
        let (places, missing) = scan::directory(file, writer, first, last)?;
        assert_eq!(
            (places, missing),
            (run.sectors.clone(), None),
            "headers alone say the same"
        );
        assert_ne!(scan::stray(&mut window, SEGMENT)?, Stray::Nothing);
    }
    let proof = scan::proof(&mut window, SEGMENT, writer, run.next, run.end)?;
    assert!(proof.is_none_or(|synced| synced >= run.next));
    Ok(())
}

/// A file in memory that is only read.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl File for Bytes {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_or(self.0.len(), |from| from.min(self.0.len()));
        let count = into.len().min(self.0.len() - from);
        into[..count].copy_from_slice(&self.0[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
