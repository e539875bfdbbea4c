//! Repairs what a broker sends, before the client library reads it.
//!
//! A broker forwards a message's properties unchanged. The library closes the connection over properties it cannot read. The broker then
//! delivers the message again, so one message would block its queue for ever. [`Repaired`] sits between the two and reads the frames. It
//! replaces each byte that is not UTF-8 by [`SUBSTITUTE`], and removes headers that do not fit a frame. Properties that cannot be read at
//! all are replaced by an id that is a [`SUBSTITUTE`].

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Replaces a byte that is not UTF-8: the ASCII character of this name. An id or routing key that contains it is not unique.
pub(crate) const SUBSTITUTE: char = '\u{1a}';

const METHOD: u8 = 1;
const HEADER: u8 = 2;
/// Bytes around a frame's payload: type, channel and length before it, one byte after it.
const HEAD: usize = 7;
const END: usize = 1;
/// Bytes before the properties: class, weight, body size and flags.
const PROPERTIES: usize = 14;
/// The longest frame that is inspected, since it is held in memory until it is complete.
const HELD_BYTES_MAX: usize = 16 << 20;
/// The deepest nesting of headers: the library reads them recursively, and its stack is limited.
const DEPTH_MAX: usize = 32;
const READ_BYTES: usize = 64 << 10;

const CONNECTION_TUNE: [u8; 4] = [0, 10, 0, 30];
const BASIC_RETURN: [u8; 4] = [0, 60, 0, 50];
const BASIC_DELIVER: [u8; 4] = [0, 60, 0, 60];
const BASIC_GET_OK: [u8; 4] = [0, 60, 0, 71];

/// A stream from a broker with frames repaired for the library.
pub(crate) struct Repaired<S> {
    stream: S,
    bytes: Vec<u8>,
    /// Bytes up to here were returned to the reader.
    given: usize,
    /// Bytes up to here may be returned.
    passed: usize,
    /// Remaining bytes of the frame at `passed` that need no inspection.
    unseen: usize,
    frame_bytes_max: usize,
}

impl<S> Repaired<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            given: 0,
            passed: 0,
            unseen: 0,
            frame_bytes_max: HELD_BYTES_MAX,
        }
    }

    /// Inspects the frames in the buffer.
    fn look(&mut self) -> io::Result<()> {
        while self.passed < self.bytes.len() {
            let ahead = &self.bytes[self.passed..];
            if self.unseen > 0 {
                let some = self.unseen.min(ahead.len());
                (self.unseen, self.passed) = (self.unseen - some, self.passed + some);
                continue;
            }
            let Some(head) = ahead.first_chunk::<HEAD>() else { break };
            let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
            let whole = HEAD + length + END;
            if !matches!(head[0], METHOD | HEADER) {
                self.unseen = whole;
                continue;
            }
            if whole > HELD_BYTES_MAX {
                return Err(io::Error::other(format!("the broker sends a frame of {whole} bytes")));
            }
            if ahead.len() < whole {
                break;
            }
            let is_header = head[0] == HEADER;
            let payload = self.passed + HEAD..self.passed + HEAD + length;
            let left = match is_header {
                true => repair_header(&mut self.bytes[payload.clone()], self.frame_bytes_max - HEAD - END),
                false => {
                    self.repair_method(payload.clone());
                    length
                }
            };
            if left < length {
                self.bytes.drain(payload.start + left..payload.end);
                let left = u32::try_from(left).unwrap_or(u32::MAX);
                self.bytes[payload.start - 4..payload.start].copy_from_slice(&left.to_be_bytes());
            }
            self.passed += HEAD + left + END;
        }
        Ok(())
    }

    fn repair_method(&mut self, payload: std::ops::Range<usize>) {
        let mut method = Fields::new(&mut self.bytes[payload]);
        // A truncated method is left to the library: no broker sends one.
        let _ = match method.take(4).as_deref() {
            Some(id) if *id == CONNECTION_TUNE => {
                method.at += 2;
                let max = method.length();
                self.frame_bytes_max = max.filter(|max| *max > 0).unwrap_or(HELD_BYTES_MAX);
                max.map(drop)
            }
            Some(id) if *id == BASIC_DELIVER => method.texts(1, 9).and_then(|()| method.texts(2, 0)),
            Some(id) if *id == BASIC_GET_OK => method.texts(0, 9).and_then(|()| method.texts(2, 0)),
            Some(id) if *id == BASIC_RETURN => method.texts(0, 2).and_then(|()| method.texts(3, 0)),
            _ => Some(()),
        };
    }
}

/// Repairs the payload of a header frame in place, and returns its new length.
fn repair_header(payload: &mut [u8], bytes_max: usize) -> usize {
    let Some((fixed, properties)) = payload.split_first_chunk_mut::<PROPERTIES>() else {
        return payload.len();
    };
    let flags = u16::from_be_bytes([fixed[12], fixed[13]]);
    let mut fields = Fields::new(properties);
    match read_properties(&mut fields, flags) {
        Some(headers) => {
            let is_too_long = payload.len() > bytes_max;
            if !is_too_long || headers.is_empty() {
                return payload.len();
            }
            let headers = headers.start + PROPERTIES..headers.end + PROPERTIES;
            let behind = payload.len() - headers.end;
            payload.copy_within(headers.end.., headers.start);
            payload[12..PROPERTIES].copy_from_slice(&(flags & !HEADERS).to_be_bytes());
            headers.start + behind
        }
        None if payload.len() >= PROPERTIES + 2 => {
            payload[12..PROPERTIES].copy_from_slice(&MESSAGE_ID.to_be_bytes());
            payload[PROPERTIES..PROPERTIES + 2].copy_from_slice(&[1, SUBSTITUTE as u8]);
            PROPERTIES + 2
        }
        None => {
            payload[12..PROPERTIES].copy_from_slice(&[0, 0]);
            PROPERTIES
        }
    }
}

const HEADERS: u16 = 1 << 13;
const MESSAGE_ID: u16 = 1 << 7;

/// Returns the range of the headers among the properties, or `None` if the properties cannot be read.
fn read_properties(fields: &mut Fields<'_>, flags: u16) -> Option<std::ops::Range<usize>> {
    let mut headers = 0..0;
    if flags & 0b11 != 0 {
        return None;
    }
    for bit in (2..16).rev() {
        if flags & (1 << bit) == 0 {
            continue;
        }
        match bit {
            13 => {
                let start = fields.at;
                let length = fields.length()?;
                fields.table(length, DEPTH_MAX)?;
                headers = start..fields.at;
            }
            11 | 12 => drop(fields.take(1)?),
            6 => drop(fields.take(8)?),
            _ => fields.texts(1, 0)?,
        }
    }
    (fields.at == fields.bytes.len()).then_some(headers)
}

/// Reads the fields of a frame one after the other.
struct Fields<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Option<&mut [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get_mut(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// Reads a length of four bytes.
    fn length(&mut self) -> Option<usize> {
        let bytes = self.take(4)?;
        Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    /// Reads and repairs `count` short texts, and skips the `behind` bytes after the last one.
    fn texts(&mut self, count: usize, behind: usize) -> Option<()> {
        for _ in 0..count {
            let length = usize::from(self.take(1)?[0]);
            substitute(self.take(length)?);
        }
        self.take(behind).map(drop)
    }

    fn table(&mut self, length: usize, depth: usize) -> Option<()> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        while self.at < end {
            self.texts(1, 0)?;
            self.value(depth)?;
        }
        (self.at == end).then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let fixed = match self.take(1)?[0] {
            b'V' => 0,
            b't' | b'b' | b'B' => 1,
            b's' | b'U' | b'u' => 2,
            b'I' | b'i' | b'f' => 4,
            b'D' => 5,
            b'L' | b'l' | b'd' | b'T' => 8,
            b'S' | b'x' => self.length()?,
            b'F' => {
                let length = self.length()?;
                return self.table(length, depth.checked_sub(1)?);
            }
            b'A' => {
                let length = self.length()?;
                let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
                let depth = depth.checked_sub(1)?;
                while self.at < end {
                    self.value(depth)?;
                }
                return (self.at == end).then_some(());
            }
            _ => return None,
        };
        self.take(fixed).map(drop)
    }
}

/// Replaces each byte that is not UTF-8.
fn substitute(mut text: &mut [u8]) {
    while let Err(error) = std::str::from_utf8(text) {
        let from = error.valid_up_to();
        let to = error.error_len().map_or(text.len(), |length| from + length);
        text[from..to].fill(SUBSTITUTE as u8);
        text = &mut text[to..];
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Repaired<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.given == this.passed {
            this.bytes.drain(..this.given);
            (this.given, this.passed) = (0, 0);
            let held = this.bytes.len();
            this.bytes.resize(held + READ_BYTES, 0);
            let mut more = ReadBuf::new(&mut this.bytes[held..]);
            let read = Pin::new(&mut this.stream).poll_read(context, &mut more);
            let count = more.filled().len();
            this.bytes.truncate(held + count);
            ready!(read)?;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            this.look()?;
        }
        let count = into.remaining().min(this.passed - this.given);
        into.put_slice(&this.bytes[this.given..this.given + count]);
        this.given += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Repaired<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind, 0, 1];
        frame.extend((payload.len() as u32).to_be_bytes());
        frame.extend(payload);
        frame.push(0xce);
        frame
    }

    fn header(flags: u16, properties: &[u8]) -> Vec<u8> {
        let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
        payload.extend(flags.to_be_bytes());
        payload.extend(properties);
        frame(HEADER, &payload)
    }

    /// `key` with a value of this type and content.
    fn entry(kind: u8, content: &[u8]) -> Vec<u8> {
        [b"\x03key", &[kind][..], content].concat()
    }

    fn long(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32).to_be_bytes(), content].concat()
    }

    /// Passes these bytes on, in parts of this length.
    fn repaired_by(sent: &[u8], part: usize) -> Vec<u8> {
        let mut repaired = Repaired::new(());
        for part in sent.chunks(part) {
            repaired.bytes.extend(part);
            repaired.look().unwrap();
        }
        assert_eq!(repaired.passed, repaired.bytes.len(), "nothing is held back");
        repaired.bytes
    }

    fn repaired(sent: &[u8]) -> Vec<u8> {
        repaired_by(sent, usize::MAX)
    }

    /// Tells whether the library can read a frame.
    fn reads(frame: &[u8]) -> bool {
        use lapin::protocol::{basic::parse_properties, parse_class};
        let payload = &frame[HEAD..frame.len() - END];
        let rest = match frame[0] {
            METHOD => parse_class(payload).map(|(rest, _)| rest),
            _ => parse_properties(&payload[12..]).map(|(rest, _)| rest),
        };
        rest.is_ok_and(<[u8]>::is_empty)
    }

    #[test]
    fn bytes_that_are_not_utf8_are_substituted() {
        let sent = header(MESSAGE_ID, b"\x04a\xff\xfeb");
        assert!(!reads(&sent), "there is nothing to repair");
        let read = repaired(&sent);
        assert!(reads(&read));
        assert_eq!(read, header(MESSAGE_ID, b"\x04a\x1a\x1ab"));
        let delivery = [&BASIC_DELIVER[..], b"\x01t", &[0; 8], &[0], b"\x00", b"\x02\xe9k"].concat();
        assert!(!reads(&frame(METHOD, &delivery)));
        assert!(reads(&repaired(&frame(METHOD, &delivery))));
    }

    #[test]
    fn unreadable_properties_leave_an_id_that_says_so() {
        let nested = (0..DEPTH_MAX + 1).fold(Vec::new(), |inner, _| entry(b'F', &long(&inner)));
        let unknown = entry(b'?', b"");
        for table in [&nested, &unknown, &b"\x03ke".to_vec()] {
            let sent = header(HEADERS | MESSAGE_ID, &[&long(table)[..], b"\x01a"].concat());
            assert_eq!(repaired(&sent), header(MESSAGE_ID, b"\x01\x1a"));
        }
    }

    #[test]
    fn headers_beyond_the_frame_limit_are_left_out() {
        let tune = frame(
            METHOD,
            &[&CONNECTION_TUNE[..], &[0, 0], &4_096_u32.to_be_bytes(), &[0, 0]].concat(),
        );
        let with = |headers: &[u8]| header(HEADERS | MESSAGE_ID, &[&long(headers)[..], b"\x01a"].concat());
        let (fits, large) = (
            with(&entry(b'S', &long(&[7; 4_000]))),
            with(&entry(b'S', &long(&[7; 4_096]))),
        );
        let read = repaired(&[&tune[..], &fits, &large].concat());
        assert_eq!(read, [&tune[..], &fits, &header(MESSAGE_ID, b"\x01a")].concat());
    }

    proptest! {
        #[test]
        fn every_header_frame_can_be_read_however_it_comes(
            flags in any::<u16>(),
            properties in prop::collection::vec(any::<u8>(), 0..80),
            body in prop::collection::vec(any::<u8>(), 0..80),
            part in 1_usize..50,
        ) {
            let behind = frame(3, &body);
            let sent = [header(flags, &properties), behind.clone()].concat();
            let read = repaired_by(&sent, part);
            let (header, rest) = read.split_at(read.len() - behind.len());
            prop_assert!(reads(header), "{:?}", header);
            prop_assert_eq!(rest, &behind[..], "what follows is as it was");
        }
    }
}
