//! The batching queue.

use crate::{
    Trade,
    way::{ITEMS, Receiving, Sending, Way},
};
use throng_queue::{HandOver, Options, Receiver, Sender, bounded};

/// The batching queue with batches of at most 1,000 items and this [`HandOver`].
pub(crate) struct Ours(pub(crate) HandOver);

const ALIVE: &str = "the receiver lives until the last sender is gone";
const BATCH_ITEMS: usize = 1_000;

impl Way for Ours {
    type Sending = Sender<Trade>;
    type Receiving = Receiver<Trade>;

    fn open(&self) -> (Sender<Trade>, Receiver<Trade>) {
        bounded(
            Options::default()
                .batch_items(BATCH_ITEMS)
                .batches(ITEMS / BATCH_ITEMS)
                .hand_over(self.0),
        )
    }
}

impl Sending for Sender<Trade> {
    #[inline(always)]
    fn send(&mut self, trade: Trade) {
        Sender::send(self, trade).expect(ALIVE);
    }

    fn send_all(&mut self, trades: impl Iterator<Item = Trade>) {
        Sender::send_all(self, trades).expect(ALIVE);
    }
}

impl Receiving for Receiver<Trade> {
    fn receive(&mut self, mut look: impl FnMut(&[Trade])) -> bool {
        match Receiver::receive(self) {
            Ok(batch) => {
                look(&batch);
                true
            }
            Err(_) => false,
        }
    }
}
