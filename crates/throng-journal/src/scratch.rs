//! Buffers that are used again and again: empty between two uses, and never large then.

/// A buffer that has grown beyond so many bytes gives its memory back.
pub const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// Empties a buffer. A large one gives its memory back: otherwise the largest use would be paid for by each buffer for ever.
#[inline]
pub fn empty<T>(buffer: &mut Vec<T>) {
    match buffer.capacity().saturating_mul(size_of::<T>()) <= SCRATCH_BYTES_MAX {
        true => buffer.clear(),
        false => *buffer = Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffer_keeps_its_memory_and_large_one_does_not() {
        let (mut small, mut large) = (vec![7_u64; 100], vec![7_u64; SCRATCH_BYTES_MAX]);
        let place = small.as_ptr();
        empty(&mut small);
        empty(&mut large);
        assert!(small.is_empty() && small.as_ptr() == place);
        assert_eq!((large.len(), large.capacity()), (0, 0));
    }
}
