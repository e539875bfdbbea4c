//! The bytes a commit is built in.

use std::ops::{Deref, DerefMut};

/// The alignment of a large buffer's memory, which lets a disk take the bytes without a copy.
const ALIGNMENT: usize = 4096;
/// The size from which a buffer is aligned: smaller commits go through the page cache anyway.
const ALIGNED_FROM: usize = 32 << 10;

/// A growing buffer. Once it is large it begins at a page of memory, so that a backend can hand it to the disk without copying it.
#[derive(Default)]
pub struct Buffer {
    /// `lead` bytes of no meaning, then the content.
    bytes: Vec<u8>,
    lead: usize,
}

impl Buffer {
    /// Returns the bytes it can hold before it grows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() - self.lead
    }

    /// Makes it empty; it keeps its memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Drops all but the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(self.lead + length);
    }

    /// Makes it `length` bytes long, new ones being zeros.
    pub fn resize(&mut self, length: usize) {
        self.reserve(length.saturating_sub(self.len()));
        self.bytes.resize(self.lead + length, 0);
    }

    /// Appends these bytes, after making room for them.
    #[inline]
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.bytes.extend_from_slice(more);
    }

    #[inline]
    fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            self.grow(self.len() + more);
        }
    }

    /// Moves the bytes to memory with room for `least` more, and at least twice as large.
    #[cold]
    fn grow(&mut self, least: usize) {
        let capacity = least.max(self.len() * 2);
        if capacity < ALIGNED_FROM && self.lead == 0 {
            self.bytes.reserve(capacity - self.bytes.len());
            return;
        }
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + ALIGNMENT);
        // An interpreter such as Miri may not answer (`usize::MAX`). The buffer is then not aligned.
        let lead = bytes.as_ptr().align_offset(ALIGNMENT) % ALIGNMENT;
        bytes.resize(lead, 0);
        bytes.extend_from_slice(self);
        *self = Self { bytes, lead };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.lead..]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.lead..]
    }
}

impl From<Vec<u8>> for Buffer {
    /// Takes over the bytes without moving them.
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, lead: 0 }
    }
}

impl From<Buffer> for Vec<u8> {
    fn from(mut buffer: Buffer) -> Self {
        buffer.bytes.drain(..buffer.lead);
        buffer.bytes
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.extend_from_slice(self);
        clone
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buffer {}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_equals_a_vector_and_is_aligned_once_large() {
        let (mut buffer, mut expected) = (Buffer::default(), Vec::new());
        for step in 0..200_usize {
            match step % 7 {
                0 => {
                    let length = expected.len() * 9 / 10;
                    buffer.truncate(length);
                    expected.truncate(length);
                }
                1 => {
                    let length = expected.len() + step * 3;
                    buffer.resize(length);
                    expected.resize(length, 0);
                }
                _ => {
                    let more = vec![step as u8; step * 13];
                    buffer.extend_from_slice(&more);
                    expected.extend_from_slice(&more);
                }
            }
            assert_eq!(&*buffer, &*expected, "step {step}");
            assert!(buffer.len() < ALIGNED_FROM || buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
        }
        assert!(expected.len() > 2 * ALIGNED_FROM);
        let capacity = buffer.capacity();
        assert_eq!(Vec::from(buffer.clone()), expected);
        buffer.clear();
        assert_eq!((buffer.len(), buffer.capacity()), (0, capacity));
        buffer.resize(capacity);
        assert!(
            buffer.iter().all(|byte| *byte == 0),
            "no bytes of an earlier use come back"
        );
        assert_eq!(buffer.capacity(), capacity);
    }

    #[test]
    fn a_vector_becomes_a_buffer_without_moving() {
        let bytes = vec![7; 100_000];
        let at = bytes.as_ptr();
        let buffer = Buffer::from(bytes);
        assert_eq!(buffer.as_ptr(), at);
        let bytes = Vec::from(buffer);
        assert_eq!(bytes.as_ptr(), at);
    }
}
