//! The size of a queue, and the moment at which senders hand over.

/// When a sender hands its items over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// Hands over by load: every item is visible to the receiver as soon as it is sent. A waiting receiver is woken by the first item. A
    /// busy one finds all items sent meanwhile when it comes back. So a batch is one item at a quiet moment and a full buffer in a surge,
    /// and nothing waits for a flush.
    #[default]
    Adaptive,
    /// Hands over after this many items, whatever the receiver does; 1 is a queue without batching on the senders' side. Fewer items wait
    /// in their sender for more, for [`flush`](crate::Sender::flush), for the drop of the sender, or for the next round of an
    /// [`IntervalSender`](crate::IntervalSender).
    Every(usize),
}

/// The size of a queue, and when its senders hand over.
///
/// Memory: at most `batches` batches wait in the queue, each receiver holds at most as many (it takes all there is at once and returns them
/// one by one), and each sender fills one. A batch is a buffer of `batch_items` items, allocated at its first use and then reused; at most
/// twice `batches` spare buffers are kept. So a queue with S senders and R receivers never has more than `batches × (1 + R) + S` batches
/// with items, and allocates nothing once it has reached its fullest state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub(crate) batch_items: usize,
    pub(crate) batches: usize,
    pub(crate) hand_over: HandOver,
}

impl Default for Options {
    /// Adaptive; 64 batches of up to 1,000 items.
    fn default() -> Self {
        Self {
            batch_items: 1_000,
            batches: 64,
            hand_over: HandOver::Adaptive,
        }
    }
}

impl Options {
    /// Sets the number of items in a full batch; at least one.
    #[must_use]
    pub fn batch_items(mut self, items: usize) -> Self {
        self.batch_items = items.max(1);
        self
    }

    /// Sets the number of batches that may wait in the queue; at least one.
    #[must_use]
    pub fn batches(mut self, batches: usize) -> Self {
        self.batches = batches.max(1);
        self
    }

    /// Sets when senders hand over.
    #[must_use]
    pub fn hand_over(mut self, hand_over: HandOver) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// Returns the number of items that a sender gathers before it hands over.
    pub(crate) fn gather_items(&self) -> usize {
        match self.hand_over {
            HandOver::Adaptive => self.batch_items,
            HandOver::Every(items) => items.clamp(1, self.batch_items),
        }
    }
}
