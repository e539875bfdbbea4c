//! The trait of every queue that is measured.

use crate::Trade;

/// A bounded queue for trades, from several senders to one receiver.
pub(crate) trait Way {
    type Sending: Sending;
    type Receiving: Receiving;

    /// Opens a queue with room for [`ITEMS`].
    fn open(&self) -> (Self::Sending, Self::Receiving);
}

/// The capacity of every queue in items, in batches or one by one.
pub(crate) const ITEMS: usize = 64_000;

/// A sender. A clone is another sender. Dropping it hands over its remaining trades.
pub(crate) trait Sending: Clone + Send + 'static {
    fn send(&mut self, trade: Trade);

    /// Sends many trades in the fastest way of the queue.
    fn send_all(&mut self, trades: impl Iterator<Item = Trade>) {
        trades.for_each(|trade| self.send(trade));
    }
}

pub(crate) trait Receiving: Send + 'static {
    /// Waits for trades and passes those received to `look`. Returns `false` once no more can come.
    fn receive(&mut self, look: impl FnMut(&[Trade])) -> bool;
}
