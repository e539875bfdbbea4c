//! The size of a queue, and the moment at which senders hand over.

/// When a sender hands its items over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// Hands over by the load: every item is where the receiver finds it as soon as it is sent. A receiver that waits is woken for the
    /// first one; one that is busy finds, when it comes back, all that has been sent meanwhile. So a batch is one
    /// item at a quiet moment and a full buffer in a surge, and nothing waits for a flush.
    #[default]
    Adaptive,
    /// Hands over after this many items, whatever the receiver does; 1 is a queue without batching on the senders' side. What is less than
    /// that waits in its sender for more, for [`flush`](crate::Sender::flush), for the end of its sender, or for an
    /// [`IntervalSender`](crate::IntervalSender)'s next round.
    Every(usize),
}

/// The size and manner of a queue.
///
/// Memory: at most `batches` batches wait in the queue, as many again are in the hands of each receiver (which takes all there
/// is at once and gives them out one by one), and each sender fills one. A batch is a buffer of `batch_items` items, allocated
/// when it is first needed and used again and again; spare buffers are kept up to twice `batches`. So a queue with
/// S senders and R receivers never has more than `batches × (1 + R) + S` batches with items in them, and never
/// allocates once it has been as full as it gets.
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
    /// Items in a full batch; at least one.
    #[must_use]
    pub fn batch_items(mut self, items: usize) -> Self {
        self.batch_items = items.max(1);
        self
    }

    /// Batches that may wait in the queue; at least one.
    #[must_use]
    pub fn batches(mut self, batches: usize) -> Self {
        self.batches = batches.max(1);
        self
    }

    /// When senders hand over.
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
