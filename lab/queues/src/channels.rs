//! The rival channels, with one trade at a time and with arrays of trades.

use crate::{
    Trade,
    way::{ITEMS, Receiving, Sending, Way},
};
use std::{
    marker::PhantomData,
    mem,
    sync::{Arc, Mutex, PoisonError},
};

/// A bounded channel from another crate.
pub(crate) trait Channel: Send + 'static {
    type Sender<T: Send + 'static>: Clone + Send + 'static;
    type Receiver<T: Send + 'static>: Send + 'static;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>);
    /// Waits for room. The receiver exists as long as there are senders.
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, item: T);
    /// Waits for an item. Returns `None` once all senders are dropped.
    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T>;
}

macro_rules! channel {
    ($name:ident, $krate:ident, $receiver:ident => $receive:expr) => {
        pub(crate) struct $name;

        impl Channel for $name {
            type Sender<T: Send + 'static> = $krate::Sender<T>;
            type Receiver<T: Send + 'static> = $krate::Receiver<T>;

            fn bounded<T: Send + 'static>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
                $krate::bounded(capacity)
            }

            fn send<T: Send + 'static>(sender: &Self::Sender<T>, item: T) {
                assert!(sender.send(item).is_ok(), "the receiver is gone");
            }

            fn receive<T: Send + 'static>($receiver: &mut Self::Receiver<T>) -> Option<T> {
                $receive
            }
        }
    };
}

channel!(Crossbeam, crossbeam_channel, receiver => receiver.recv().ok());
channel!(Flume, flume, receiver => receiver.recv().ok());
channel!(Kanal, kanal, receiver => receiver.recv().ok());

pub(crate) struct Tokio;

impl Channel for Tokio {
    type Sender<T: Send + 'static> = tokio::sync::mpsc::Sender<T>;
    type Receiver<T: Send + 'static> = tokio::sync::mpsc::Receiver<T>;

    fn bounded<T: Send + 'static>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        tokio::sync::mpsc::channel(capacity)
    }

    fn send<T: Send + 'static>(sender: &Self::Sender<T>, item: T) {
        assert!(sender.blocking_send(item).is_ok(), "the receiver is gone");
    }

    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
        receiver.blocking_recv()
    }
}

/// Sends each trade on its own.
pub(crate) struct Single<C>(pub(crate) PhantomData<C>);

pub(crate) struct SingleSender<C: Channel>(C::Sender<Trade>);
pub(crate) struct SingleReceiver<C: Channel>(C::Receiver<Trade>);

impl<C: Channel> Way for Single<C> {
    type Sending = SingleSender<C>;
    type Receiving = SingleReceiver<C>;

    fn open(&self) -> (SingleSender<C>, SingleReceiver<C>) {
        let (sender, receiver) = C::bounded(ITEMS);
        (SingleSender(sender), SingleReceiver(receiver))
    }
}

impl<C: Channel> Clone for SingleSender<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Channel> Sending for SingleSender<C> {
    #[inline(always)]
    fn send(&mut self, trade: Trade) {
        C::send(&self.0, trade);
    }
}

impl<C: Channel> Receiving for SingleReceiver<C> {
    #[inline]
    fn receive(&mut self, mut look: impl FnMut(&[Trade])) -> bool {
        let trade = C::receive(&mut self.0);
        trade.iter().for_each(|trade| look(std::slice::from_ref(trade)));
        trade.is_some()
    }
}

/// Sends arrays of this many trades and returns their memory to the senders.
pub(crate) struct Arrays<C>(pub(crate) usize, pub(crate) PhantomData<C>);

/// A sender on cache lines of its own, like that of the batching queue, because each trade writes to it.
#[repr(align(128))]
pub(crate) struct ArraySender<C: Channel> {
    sender: C::Sender<Vec<Trade>>,
    gathered: Vec<Trade>,
    items: usize,
    pool: Pool,
}

pub(crate) struct ArrayReceiver<C: Channel> {
    receiver: C::Receiver<Vec<Trade>>,
    pool: Pool,
}

type Pool = Arc<Mutex<Vec<Vec<Trade>>>>;

impl<C: Channel> Way for Arrays<C> {
    type Sending = ArraySender<C>;
    type Receiving = ArrayReceiver<C>;

    fn open(&self) -> (ArraySender<C>, ArrayReceiver<C>) {
        let (sender, receiver) = C::bounded((ITEMS / self.0).max(1));
        let pool = Pool::default();
        let sending = ArraySender {
            sender,
            gathered: Vec::with_capacity(self.0),
            items: self.0,
            pool: Arc::clone(&pool),
        };
        (sending, ArrayReceiver { receiver, pool })
    }
}

impl<C: Channel> Clone for ArraySender<C> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            gathered: Vec::with_capacity(self.items),
            items: self.items,
            pool: Arc::clone(&self.pool),
        }
    }
}

impl<C: Channel> ArraySender<C> {
    fn hand_over(&mut self) {
        let spare = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let spare = spare.unwrap_or_else(|| Vec::with_capacity(self.items));
        C::send(&self.sender, mem::replace(&mut self.gathered, spare));
    }
}

impl<C: Channel> Sending for ArraySender<C> {
    #[inline(always)]
    fn send(&mut self, trade: Trade) {
        self.gathered.push(trade);
        if self.gathered.len() >= self.items {
            self.hand_over();
        }
    }

    fn send_all(&mut self, mut trades: impl Iterator<Item = Trade>) {
        loop {
            let room = self.items - self.gathered.len();
            self.gathered.extend(trades.by_ref().take(room));
            if self.gathered.len() < self.items {
                return;
            }
            self.hand_over();
        }
    }
}

impl<C: Channel> Drop for ArraySender<C> {
    fn drop(&mut self) {
        if !self.gathered.is_empty() {
            self.hand_over();
        }
    }
}

impl<C: Channel> Receiving for ArrayReceiver<C> {
    fn receive(&mut self, mut look: impl FnMut(&[Trade])) -> bool {
        let Some(mut trades) = C::receive(&mut self.receiver) else {
            return false;
        };
        look(&trades);
        trades.clear();
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(trades);
        true
    }
}
