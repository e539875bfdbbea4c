//! Reused buffers: empty between two uses, and then never large.

/// The size above which a buffer's memory is freed.
pub const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// Empties a buffer, and frees the memory of a large one. Otherwise each buffer would keep its largest size for ever.
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
