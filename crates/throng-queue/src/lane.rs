//! A batch that its sender fills while receivers already take from it.
//!
//! The lane's one sender fills its places from the front, without a lock. They are emptied from the front under the lane's lock:
//!
//! ```text
//!   0 ........ taken ........ published ........ items_max
//!   moved out   | whoever's   | the sender's, to be
//!               | lock it is  | filled without it
//! ```
//!
//! A full batch is moved with its buffer. Items are copied only if receivers took some before it was full.
//!
//! The gain: an uncontended lock for every item costs about 10 ns, filling a place here half a nanosecond. The crate's README has the
//! figures (`cargo run --release -p queues --example one -- "throng adaptive"`).
#![allow(unsafe_code)]

use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, Padded, lock};
use std::{
    mem,
    sync::{Arc, atomic::AtomicPtr},
};

/// The open batch that a sender shares with the receivers.
pub(crate) struct Lane<T> {
    /// The number of places filled so far, including those moved out. Only the sender stores it, with `Release` after the item, at the
    /// latest when it [holds](Filling::hold) the lane.
    published: Padded<AtomicUsize>,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    /// Always has length 0: the items are in its spare capacity. Only the sender replaces it.
    buffer: Vec<T>,
    /// The number of places whose items were moved out. Written under the lane's lock.
    taken: usize,
}

impl<T> Held<T> {
    /// Moves the oldest published items into a batch until it has `items_max`.
    fn move_into(&mut self, published: usize, batch: &mut Vec<T>, items_max: usize) {
        let first = self.buffer.as_ptr();
        let count = (published - self.taken).min(items_max.saturating_sub(batch.len()));
        batch.reserve(count);
        let places = self.taken..self.taken + count;
        self.taken += count;
        batch.extend(places.map(|place| {
            // The items were written before `published` was stored, and the sender does not touch them since. `taken` is raised before
            // they are read.
            // SAFETY: places from `taken` up to `published` hold items, and each is moved out once.
            unsafe { first.wrapping_add(place).read() }
        }));
    }
}

impl<T> Lane<T> {
    /// Returns the number of items present.
    pub(crate) fn len(&self) -> usize {
        let held = lock(&self.held);
        self.published.load(Ordering::Acquire) - held.taken
    }

    /// Moves the oldest items into a batch until it has `items_max`.
    pub(crate) fn move_into(&self, batch: &mut Vec<T>, items_max: usize) {
        let mut held = lock(&self.held);
        let published = self.published.load(Ordering::Acquire);
        held.move_into(published, batch, items_max);
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        let mut left = Vec::new();
        self.move_into(&mut left, usize::MAX);
    }
}

/// The sender's side of its lane.
pub(crate) struct Filling<T> {
    lane: Arc<Lane<T>>,
    /// The first place of the lane's buffer. Atomic only so that it is `Send` and `Sync` if the items are; only the sender writes it.
    first: AtomicPtr<T>,
    /// The value that the sender last stored, or is about to store, in `published`.
    used: usize,
    /// The last place that may be filled before the next [`allow`](Self::allow). It is within the buffer.
    last: usize,
    /// Places before this one need no check: it is `last`, or 0 if receivers look into the lane.
    quiet: usize,
    /// True if the batch before was full, so that this one will probably be, too.
    is_in_flow: bool,
    /// True if receivers look into the lane.
    is_seen: bool,
    items_max: usize,
    stop_items: usize,
}

impl<T> Filling<T> {
    /// Returns a filling for at least one item. It stops after each `stop_items`, and at the end.
    pub(crate) fn new(mut buffer: Vec<T>, items_max: usize, stop_items: usize, is_seen: bool) -> Self {
        assert!(
            buffer.is_empty() && buffer.capacity() >= items_max && items_max > 0 && stop_items > 0,
            "a buffer is empty and large enough"
        );
        Self {
            first: AtomicPtr::new(buffer.as_mut_ptr()),
            lane: Arc::new(Lane {
                published: Padded(AtomicUsize::new(0)),
                held: Mutex::new(Held { buffer, taken: 0 }),
            }),
            used: 0,
            last: 0,
            quiet: 0,
            is_in_flow: false,
            is_seen,
            items_max,
            stop_items,
        }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane<T>> {
        &self.lane
    }

    /// Returns the number of places filled, including those whose items were moved out.
    #[inline(always)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// True if the sender has to stop at the next place: to have it [allowed](Self::allow), and to check for receivers after filling it.
    #[inline(always)]
    pub(crate) fn is_stop(&self) -> bool {
        self.used >= self.last
    }

    /// Allows the places up to the next stop to be filled.
    pub(crate) fn allow(&mut self) {
        let stop = (self.used / self.stop_items + 1).saturating_mul(self.stop_items);
        self.last = stop.min(self.items_max) - 1;
        self.quiet = if self.is_seen { 0 } else { self.last };
        if self.used == 0 && mem::take(&mut self.is_in_flow) {
            self.fetch();
        }
    }

    /// Writes all places of a buffer that was used before. Its cache lines are on the receiver's core. If the cores are far apart, fetching
    /// them one by one costs several times as much as all at once.
    fn fetch(&mut self) {
        let first = *self.first.get_mut();
        // SAFETY: the buffer has this many places, and none is published yet, so all belong to the sender alone.
        unsafe { first.write_bytes(0, self.items_max) };
    }

    /// True if the next place needs no check before or after it is filled, because no receiver looks into the lane.
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.used < self.quiet
    }

    /// Writes an item into the next place, which [is quiet](Self::is_quiet).
    ///
    /// # Panics
    /// The next place is not quiet.
    #[inline(always)]
    pub(crate) fn push_quietly(&mut self, item: T) {
        let used = self.used;
        self.write(used, self.quiet, item);
        self.used = used + 1;
    }

    /// Writes an item into the next place, publishes it, and then calls `look`.
    ///
    /// # Panics
    /// The place is not allowed.
    #[inline(always)]
    pub(crate) fn push<R>(&mut self, item: T, look: impl FnOnce() -> R) -> R {
        let used = self.used;
        self.write(used, self.last, item);
        self.lane.published.store(used + 1, Ordering::Release);
        let seen = look();
        self.used = used + 1;
        seen
    }

    /// Writes an item into a place that is not published and may be filled.
    #[inline(always)]
    fn write(&mut self, place: usize, last: usize, item: T) {
        assert!(place <= last, "there is room");
        // SAFETY: the buffer has the place (`last`). It is not published, so it belongs to the one sender alone (`&mut self`).
        unsafe { self.first.get_mut().wrapping_add(place).write(item) };
    }

    /// Writes up to `items_max` items into the places up to the next stop, and then publishes them together, also if the iterator panics.
    pub(crate) fn extend(&mut self, items: &mut impl Iterator<Item = T>, items_max: usize) {
        struct Written<'a, T>(&'a mut Filling<T>, usize);

        impl<T> Drop for Written<'_, T> {
            fn drop(&mut self) {
                self.0.used = self.1;
                self.0.lane.published.store(self.1, Ordering::Release);
            }
        }

        let used = self.used;
        let last = self.last.min(used.saturating_add(items_max - 1));
        if used > last {
            return;
        }
        let mut written = Written(self, used);
        items.take(last + 1 - used).for_each(|item| {
            written.0.write(written.1, last, item);
            written.1 += 1;
        });
    }

    /// Returns the number of items present.
    pub(crate) fn len(&self) -> usize {
        let held = lock(&self.lane.held);
        self.used - held.taken
    }

    /// Keeps receivers out, to take the items away.
    pub(crate) fn hold(&mut self) -> Holding<'_, T> {
        let held = lock(&self.lane.held);
        self.lane.published.store(self.used, Ordering::Release);
        Holding {
            used: &mut self.used,
            held,
            published: &self.lane.published,
            first: self.first.get_mut(),
            last: &mut self.last,
            quiet: &mut self.quiet,
            is_in_flow: &mut self.is_in_flow,
            items_max: self.items_max,
        }
    }
}

/// A sender's batch while receivers are kept out.
pub(crate) struct Holding<'a, T> {
    used: &'a mut usize,
    held: MutexGuard<'a, Held<T>>,
    published: &'a AtomicUsize,
    first: &'a mut *mut T,
    last: &'a mut usize,
    quiet: &'a mut usize,
    is_in_flow: &'a mut bool,
    items_max: usize,
}

impl<T> Holding<'_, T> {
    /// Returns the number of items present.
    pub(crate) fn len(&self) -> usize {
        *self.used - self.held.taken
    }

    /// Moves the items into a batch, and begins a new one for the sender.
    pub(crate) fn move_into(mut self, batch: &mut Vec<T>) {
        self.held.move_into(*self.used, batch, usize::MAX);
        self.begin_anew();
    }

    /// Takes the items, with their buffer if none was moved out; `None` if there are none. Begins a new batch for the sender.
    pub(crate) fn take(mut self, spare: impl FnOnce() -> Vec<T>) -> Option<Vec<T>> {
        let items = match self.held.taken {
            taken if taken == *self.used => None,
            0 => {
                let mut spare = spare();
                assert!(
                    spare.is_empty() && spare.capacity() >= self.items_max,
                    "a spare buffer is empty and large enough"
                );
                *self.first = spare.as_mut_ptr();
                let mut items = mem::replace(&mut self.held.buffer, spare);
                // SAFETY: the first `used` places hold items, and none was moved out.
                unsafe { items.set_len(*self.used) };
                Some(items)
            }
            _ => {
                let mut items = spare();
                self.held.move_into(*self.used, &mut items, usize::MAX);
                Some(items)
            }
        };
        *self.is_in_flow = *self.used == self.items_max;
        self.begin_anew();
        items
    }

    fn begin_anew(&mut self) {
        self.held.taken = 0;
        *self.last = 0;
        *self.quiet = 0;
        *self.used = 0;
        self.published.store(0, Ordering::Release);
    }
}
