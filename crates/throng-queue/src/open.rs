//! A sender's own batch.

use crate::lane::Filling;
use std::mem::{self, MaybeUninit};

pub(crate) enum Open<T> {
    /// Seen by nobody before it is handed over.
    Private(Vec<T>),
    /// Seen by receivers at once.
    Visible(Filling<T>),
}

impl<T> Open<T> {
    /// Items that no receiver has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Private(items) => items.len(),
            Self::Visible(filling) => filling.lane().len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places used: what is left to `batch_items` is room.
    #[inline(always)]
    pub(crate) fn used(&self) -> usize {
        match self {
            Self::Private(items) => items.len(),
            Self::Visible(filling) => filling.used(),
        }
    }

    /// Adds an item, for which there must be room; the places used then.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) -> usize {
        match self {
            Self::Private(items) => items.push(item),
            Self::Visible(filling) => filling.push(item),
        }
        self.used()
    }

    /// Writes over all free places at once. A buffer that has gone round is in the receiver's core's cache; line by line, as items
    /// come, the way back costs several times what one sweep does, in which the lines' ways overlap.
    pub(crate) fn fetch(&mut self) {
        match self {
            Self::Private(items) => items.spare_capacity_mut().fill_with(MaybeUninit::zeroed),
            Self::Visible(filling) => filling.fetch(),
        }
    }

    /// Takes the items with their buffer and leaves another one; without items there is nothing to take.
    ///
    /// # Safety
    /// The caller holds the queue's lock.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn replace(&mut self, other: impl FnOnce() -> Vec<T>) -> Option<Vec<T>> {
        match self {
            Self::Private(items) => (!items.is_empty()).then(|| mem::replace(items, other())),
            // SAFETY: the caller's promise.
            Self::Visible(filling) => unsafe { filling.replace(other) },
        }
    }

    /// Moves the items into a batch that has room for them below `items_max`, and begins anew.
    ///
    /// # Safety
    /// The caller holds the queue's lock.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn move_into(&mut self, batch: &mut Vec<T>, items_max: usize) {
        match self {
            Self::Private(items) => batch.append(items),
            // SAFETY: the caller's promise.
            Self::Visible(filling) => unsafe { filling.lane().move_into(batch, items_max) },
        }
    }
}
