//! Buffers for reading requests and writing answers. They belong to the loop, not to a connection.
//!
//! A waiting connection has no buffer, so that an idle one costs none. A busy connection uses the buffer that another one has just used,
//! which is still in the processor's cache.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

/// The capacity of a new buffer.
pub(crate) const BUFFER_BYTES: usize = 4 << 10;
/// A buffer that has grown beyond this is not kept.
pub(crate) const KEPT_BYTES: usize = 16 << 10;
/// The most unused buffers. A loop needs more than a few only while requests arrive in pieces or commands wait.
const KEPT_MAX: usize = 16;

/// A loop's unused buffers.
#[derive(Default)]
pub(crate) struct Buffers(RefCell<Vec<Vec<u8>>>);

impl Buffers {
    /// Gives the connection an empty buffer with room, if it has none.
    pub(crate) fn lend(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            let kept = self.0.borrow_mut().pop();
            *buffer = kept.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES));
        }
    }

    /// Takes a buffer back and empties it.
    pub(crate) fn take_back(&self, buffer: &mut Vec<u8>) {
        let mut buffer = std::mem::take(buffer);
        let mut kept = self.0.borrow_mut();
        if (1..=KEPT_BYTES).contains(&buffer.capacity()) && kept.len() < KEPT_MAX {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// The received bytes of a connection that were not consumed yet.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes at the front that are consumed.
    done: usize,
}

impl Input {
    pub(crate) fn advance(&mut self, count: usize) {
        self.done = (self.done + count).min(self.bytes.len());
        if self.done == self.bytes.len() {
            self.bytes.clear();
            self.done = 0;
        }
    }

    /// Makes room for this many more bytes.
    pub(crate) fn reserve(&mut self, count: usize) {
        if self.bytes.capacity() - self.bytes.len() < count {
            self.bytes.drain(..std::mem::take(&mut self.done));
            self.bytes.reserve(count);
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        self.bytes.drain(..self.done);
        self.bytes
    }
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.done..]
    }
}

impl DerefMut for Input {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.done..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumed_bytes_make_room_and_the_rest_stays() {
        let mut input = Input::default();
        input.reserve(8);
        input.bytes.extend_from_slice(b"abcdefgh");
        input.advance(3);
        assert_eq!(&*input, b"defgh");
        input.reserve(100);
        assert_eq!(&*input, b"defgh");
        assert!(input.bytes.capacity() - input.bytes.len() >= 100);
        input.advance(4);
        assert_eq!(&*input, b"h");
        assert_eq!(input.into_vec(), b"h");
    }

    #[test]
    fn a_buffer_is_lent_again_unless_it_has_grown_too_large() {
        let buffers = Buffers::default();
        let mut one = Vec::new();
        buffers.lend(&mut one);
        one.extend_from_slice(b"used");
        let place = one.as_ptr();
        buffers.take_back(&mut one);
        assert_eq!(one.capacity(), 0);
        buffers.lend(&mut one);
        assert!(one.is_empty() && one.as_ptr() == place);
        one.reserve(KEPT_BYTES * 2);
        buffers.take_back(&mut one);
        buffers.lend(&mut one);
        assert!(one.capacity() <= KEPT_BYTES);
    }

    #[test]
    fn only_so_many_are_kept() {
        let buffers = Buffers::default();
        let mut lent = vec![Vec::new(); KEPT_MAX * 2];
        lent.iter_mut().for_each(|buffer| buffers.lend(buffer));
        lent.iter_mut().for_each(|buffer| buffers.take_back(buffer));
        assert_eq!(buffers.0.borrow().len(), KEPT_MAX);
    }
}
