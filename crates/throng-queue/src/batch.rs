//! The batches that a receiver gets.

use crate::shared::Shared;
use std::{
    collections::VecDeque,
    fmt, mem,
    ops::{Deref, DerefMut},
    slice,
    sync::Arc,
    vec,
};

/// Items of one or several senders, at least one. Those of each sender are in the order they were sent.
///
/// A batch reads and writes like a slice. Its buffer goes back to the queue when it is dropped, so that a queue in a steady state allocates
/// nothing; use [`drain`](Self::drain) or `for item in batch` to move the items out.
pub struct Batch<T> {
    items: Vec<T>,
    shared: Arc<Shared<T>>,
}

impl<T> Batch<T> {
    pub(crate) fn new(items: Vec<T>, shared: Arc<Shared<T>>) -> Self {
        Self { items, shared }
    }

    /// Moves all items out, in order. The buffer goes back to the queue when the batch is dropped.
    pub fn drain(&mut self) -> vec::Drain<'_, T> {
        self.items.drain(..)
    }

    /// The items with their buffer, which the queue does not get back.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<T> {
        mem::take(&mut self.items)
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        let items = mem::take(&mut self.items);
        if items.capacity() > 0 {
            self.shared.recycle(items);
        }
    }
}

impl<T> Deref for Batch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for Batch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T: fmt::Debug> fmt::Debug for Batch<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(out)
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Batch<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}

impl<T> IntoIterator for Batch<T> {
    type Item = T;
    type IntoIter = Items<T>;

    fn into_iter(mut self) -> Items<T> {
        Items {
            items: mem::take(&mut self.items).into(),
            batch: self,
        }
    }
}

/// The items of a batch, one by one; the buffer goes back to the queue at the end.
#[derive(Debug)]
pub struct Items<T> {
    /// The items of `batch`, whose buffer this holds.
    items: VecDeque<T>,
    batch: Batch<T>,
}

impl<T> Iterator for Items<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.items.len(), Some(self.items.len()))
    }
}

impl<T> ExactSizeIterator for Items<T> {}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        self.items.clear();
        self.batch.items = mem::take(&mut self.items).into();
    }
}
