//! The queue of commands that wait for their commit, in the order of execution.

use std::collections::VecDeque;

/// A queue in which the entries of one connection can be found again.
pub(super) struct Queue<T> {
    /// The entries; `None`: one that was [taken](Self::take) out of the middle.
    waiting: VecDeque<Option<T>>,
    /// The number of entries that left from the front.
    gone: u64,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            gone: 0,
        }
    }

    /// Appends an entry. Returns the number of entries so far, including it, by which its connection [finds](Self::take) it again.
    pub(super) fn push(&mut self, one: T) -> u64 {
        self.waiting.push_back(Some(one));
        self.gone + self.waiting.len() as u64
    }

    /// The oldest.
    pub(super) fn front(&mut self) -> Option<&mut T> {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.gone += 1;
        }
        self.waiting.front_mut()?.as_mut()
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.front()?;
        self.gone += 1;
        self.waiting.pop_front()?
    }

    /// Returns the last entry.
    pub(super) fn back(&mut self) -> Option<&mut T> {
        self.waiting.back_mut()?.as_mut()
    }

    /// Removes the last `count` entries before a position. The cost does not depend on the entries of others, since all connections may
    /// want theirs at once.
    pub(super) fn take(&mut self, come: u64, count: usize) -> impl Iterator<Item = T> {
        let end = usize::try_from(come.saturating_sub(self.gone)).unwrap_or(usize::MAX);
        let end = end.min(self.waiting.len());
        let own = self.waiting.range_mut(end.saturating_sub(count)..end);
        own.filter_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_ones_own_leaves_all_others_in_order() {
        let mut queue = Queue::new();
        queue.push("a1");
        queue.push("a2");
        let (b, c) = (queue.push("b1"), [queue.push("c1"), queue.push("c2")][1]);
        let d = queue.push("d1");
        assert_eq!(queue.pop(), Some("a1"));
        assert_eq!(queue.take(c, 2).collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(queue.take(b, 1).collect::<Vec<_>>(), ["b1"]);
        assert_eq!(queue.front(), Some(&mut "a2"));
        assert_eq!(queue.pop(), Some("a2"));
        assert_eq!(queue.front(), Some(&mut "d1"));
        let e = queue.push("e1");
        assert_eq!(queue.back(), Some(&mut "e1"));
        assert_eq!(queue.take(d, 1).collect::<Vec<_>>(), ["d1"]);
        assert_eq!(queue.take(e, 1).collect::<Vec<_>>(), ["e1"]);
        assert_eq!(queue.front(), None);
        assert_eq!(queue.pop(), None);
    }
}
