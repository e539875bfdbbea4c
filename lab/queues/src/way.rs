//! The trait of every way to hand trades over.

use crate::Trade;

/// A bounded queue for trades, from several senders to one receiver.
pub(crate) trait Way {
    type Sending: Sending;
    type Receiving: Receiving;

    /// A queue with room for [`ITEMS`].
    fn open(&self) -> (Self::Sending, Self::Receiving);
}

/// Every queue is bounded to so many items, in batches or one by one.
pub(crate) const ITEMS: usize = 64_000;

/// A sender; a clone is another one. Dropping it hands over what is left.
pub(crate) trait Sending: Clone + Send + 'static {
    fn send(&mut self, trade: Trade);

    /// Sends many, in the best way there is.
    fn send_all(&mut self, trades: impl Iterator<Item = Trade>) {
        trades.for_each(|trade| self.send(trade));
    }
}

pub(crate) trait Receiving: Send + 'static {
    /// Waits for trades and looks at those that came; `false` when there will be none any more.
    fn receive(&mut self, look: impl FnMut(&[Trade])) -> bool;
}
