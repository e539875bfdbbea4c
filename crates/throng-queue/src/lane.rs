//! A batch that its sender fills while receivers already take from it.
//!
//! Its places are filled from the front by the one sender, without a lock, and taken from the front by whoever holds the
//! queue's lock:
//!
//! ```text
//!   0 ........ taken ........ published ........ items_max
//!   moved out   | here, receivers' | the sender's
//! ```
//!
//! What it buys, measured on two cores with `cargo run --release -p queues --example one -- "throng adaptive"`: with a lock around
//! the batch 49 to 73 million items a second at 21 to 26 ns of CPU each, without it 58 to 88 million at 16 to 31 ns; with `once`
//! (one `send_all` for all items) 154 to 217 million. Where the lock-free one is not clearly better, the lock is enough.
#![allow(unsafe_code)]

use crate::sync::{AtomicUsize, Ordering, Padded};
use std::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    sync::Arc,
};

/// What sender and receivers share.
pub(crate) struct Lane<T> {
    /// Items the sender has written, from the front. Only the sender stores; `Release`, after the item.
    published: Padded<AtomicUsize>,
    /// Items moved out, from the front. Stored under the queue's lock.
    taken: Padded<AtomicUsize>,
    /// Looked at under the queue's lock; changed under it, by the sender only.
    buffer: UnsafeCell<Buffer<T>>,
}

/// A `Vec<T>` taken apart, so that two threads can use different parts of it.
struct Buffer<T> {
    start: NonNull<T>,
    capacity: usize,
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<T> {}

impl<T> Buffer<T> {
    /// Takes an empty vector apart.
    fn of(vec: Vec<T>, items_max: usize) -> Self {
        assert!(
            vec.is_empty() && vec.capacity() >= items_max,
            "a buffer is empty and large enough"
        );
        let mut vec = ManuallyDrop::new(vec);
        let capacity = vec.capacity();
        let start = NonNull::new(vec.as_mut_ptr()).expect("a vector's pointer is never null");
        Self { start, capacity }
    }
}

// SAFETY: items go from the sender's thread to a receiver's; everything else is atomics, or under the queue's lock.
unsafe impl<T: Send> Send for Lane<T> {}
// SAFETY: as above; no reference to an item is ever given out.
unsafe impl<T: Send> Sync for Lane<T> {}

impl<T> Lane<T> {
    /// Items that are here.
    pub(crate) fn len(&self) -> usize {
        // In this order, so that a receiver that takes in between cannot make it negative.
        let taken = self.taken.load(Ordering::Acquire);
        self.published.load(Ordering::Acquire).saturating_sub(taken)
    }

    /// Moves the oldest items into a batch until it has `items_max`.
    ///
    /// # Safety
    /// The caller holds the queue's lock.
    pub(crate) unsafe fn move_into(&self, batch: &mut Vec<T>, items_max: usize) {
        let taken = self.taken.load(Ordering::Relaxed);
        let there = self.published.load(Ordering::Acquire) - taken;
        let count = there.min(items_max.saturating_sub(batch.len()));
        batch.reserve(count);
        // SAFETY: under the queue's lock nobody changes the buffer.
        let start = unsafe { (*self.buffer.get()).start };
        // SAFETY: `taken` is at most the buffer's capacity.
        let from = unsafe { start.add(taken) };
        let to = batch.spare_capacity_mut().as_mut_ptr().cast::<T>();
        // SAFETY: the places from `taken` up to `published` hold items, written before `published` was stored and left
        // alone by the sender since; `to` has room for `count`, reserved above, in an allocation of its own.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, count) };
        // SAFETY: so many items have just been moved in; `taken` makes sure that they are never looked at here again.
        unsafe { batch.set_len(batch.len() + count) };
        self.taken.store(taken + count, Ordering::Release);
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        let (taken, published) = (
            self.taken.load(Ordering::Relaxed),
            self.published.load(Ordering::Relaxed),
        );
        // SAFETY: dropped by the last who had it: nobody else looks.
        let buffer = unsafe { *self.buffer.get() };
        // SAFETY: the buffer is a vector taken apart; the items are where `whole` expects them.
        drop(unsafe { whole(buffer, taken, published) });
    }
}

/// A vector again, with the items that had not been moved out.
///
/// # Safety
/// The buffer is nobody else's any more, and its places from `taken` up to `published` hold items.
unsafe fn whole<T>(buffer: Buffer<T>, taken: usize, published: usize) -> Vec<T> {
    let start = buffer.start.as_ptr();
    let left = published - taken;
    if taken > 0 && left > 0 {
        // SAFETY: `taken` is within the buffer.
        let from = unsafe { start.add(taken) };
        // SAFETY: moves the items to the front of the same buffer; the places may overlap.
        unsafe { ptr::copy(from, start, left) };
    }
    // SAFETY: pointer and capacity are those of a vector, whose first `left` places hold items.
    unsafe { Vec::from_raw_parts(start, left, buffer.capacity) }
}

/// The sender's hold on its lane.
pub(crate) struct Filling<T> {
    lane: Arc<Lane<T>>,
    /// The lane's buffer, known without the lock.
    start: NonNull<T>,
    /// What the lane's `published` says: places used, also by items that have been taken.
    used: usize,
    items_max: usize,
}

// SAFETY: the pointer is the lane's buffer's, which moves between threads with its items.
unsafe impl<T: Send> Send for Filling<T> {}
// SAFETY: a shared reference only reads the lane's counters.
unsafe impl<T: Send> Sync for Filling<T> {}

impl<T> Filling<T> {
    pub(crate) fn new(buffer: Vec<T>, items_max: usize) -> Self {
        let buffer = Buffer::of(buffer, items_max);
        Self {
            lane: Arc::new(Lane {
                published: Padded(AtomicUsize::new(0)),
                taken: Padded(AtomicUsize::new(0)),
                buffer: UnsafeCell::new(buffer),
            }),
            start: buffer.start,
            used: 0,
            items_max,
        }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane<T>> {
        &self.lane
    }

    /// Places used, also by items that have been taken; from here to `items_max` there is room.
    #[inline(always)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Writes an item into the next place, which there must be, and lets receivers see it.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        let used = self.used;
        assert!(used < self.items_max, "there is room");
        // SAFETY: `used` is below the buffer's capacity.
        let place = unsafe { self.start.add(used) };
        // SAFETY: places from `published` on are the sender's alone, and there is but this one sender (`&mut self`).
        unsafe { place.write(item) };
        self.used = used + 1;
        self.lane.published.store(used + 1, Ordering::Release);
    }

    /// Writes over all free places at once.
    pub(crate) fn fetch(&mut self) {
        // SAFETY: `used` is at most the buffer's capacity.
        let free = unsafe { self.start.add(self.used) };
        // SAFETY: from `published` to `items_max` the places are within the buffer, hold no items, and are the sender's alone.
        unsafe { free.write_bytes(0, self.items_max - self.used) };
    }

    /// Takes what is left with its buffer and leaves another one; nothing is left: the lane begins at its front again, and
    /// `None`.
    ///
    /// # Safety
    /// The caller holds the queue's lock.
    pub(crate) unsafe fn replace(&mut self, other: impl FnOnce() -> Vec<T>) -> Option<Vec<T>> {
        let (taken, published) = (self.lane.taken.load(Ordering::Relaxed), self.used());
        let left = (taken < published).then(|| {
            let buffer = Buffer::of(other(), self.items_max);
            self.start = buffer.start;
            // SAFETY: under the queue's lock nobody else looks at the buffer.
            let before = unsafe { self.lane.buffer.get().replace(buffer) };
            // SAFETY: the old buffer is out of everybody's reach; the sender, `&mut self`, writes nothing meanwhile.
            unsafe { whole(before, taken, published) }
        });
        // Receivers look under the lock only, so they never see one of the two alone; `len` may, and says at most 0.
        self.used = 0;
        self.lane.published.store(0, Ordering::Release);
        self.lane.taken.store(0, Ordering::Release);
        left
    }
}
