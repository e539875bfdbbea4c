//! Starting a service.

use std::{io, sync::Arc, time::Duration};
use throng_queue::{HandOver, Options};

use super::{Runner, Running, Service, running};
use crate::{address::Address, in_place::InPlace, stats::Stats};

/// The fate of a service that panics at a message. In each case the message is lost, the asker is told and the panic is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// The service goes on with the state it has. For services in which a message changes the state as a whole or not at all.
    #[default]
    Continue,
    /// The service is dropped with its timers, and the factory makes a new one. If the factory panics too, the service ends.
    Restart,
}

/// Settings of a service to be started.
pub struct Setup<S: Service> {
    name: String,
    factory: Box<dyn FnMut() -> S + Send>,
    batch_items: usize,
    batches: usize,
    hand_over: HandOver,
    limit_items: usize,
    idle_after: Duration,
    on_panic: OnPanic,
    stats: Option<Stats>,
}

/// Returns the settings of a service. The factory makes the service on its own thread, and again after a panic under [`OnPanic::Restart`].
pub fn service<S: Service>(name: impl Into<String>, factory: impl FnMut() -> S + Send + 'static) -> Setup<S> {
    Setup {
        name: name.into(),
        factory: Box::new(factory),
        batch_items: 1_000,
        batches: 64,
        hand_over: HandOver::Adaptive,
        limit_items: 1_000,
        idle_after: Duration::from_millis(15),
        on_panic: OnPanic::default(),
        stats: None,
    }
}

impl<S: Service> Setup<S> {
    /// Sets the size of the queue: messages in a batch, and batches. The default is 1,000 and 64.
    #[must_use]
    pub fn queue(mut self, batch_items: usize, batches: usize) -> Self {
        (self.batch_items, self.batches) = (batch_items.max(1), batches.max(1));
        self
    }

    /// Sets when senders hand over the messages they gathered. The default depends on the load.
    #[must_use]
    pub fn hand_over(mut self, hand_over: HandOver) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// Sets the number of messages after which [`Service::limit`] is called. The default is 1,000.
    #[must_use]
    pub fn limit_items(mut self, items: usize) -> Self {
        self.limit_items = items.max(1);
        self
    }

    /// Sets the time without messages after which [`Service::idle`] runs; 15 ms by default.
    #[must_use]
    pub fn idle_after(mut self, time: Duration) -> Self {
        self.idle_after = time;
        self
    }

    /// Sets the fate of the service when it panics.
    #[must_use]
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// Records there, under the service's name: `received`, `batches`, `panics` (counts), `batch_items`, `queue_items`
    /// (levels), `batch_seconds` (timing).
    #[must_use]
    pub fn stats(mut self, stats: &Stats) -> Self {
        self.stats = Some(stats.clone());
        self
    }

    /// Starts the service on a thread of its own.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(self) -> io::Result<Running<S::Message>> {
        let options = Options::default()
            .batch_items(self.batch_items)
            .batches(self.batches)
            .hand_over(self.hand_over);
        let (sender, receiver) = throng_queue::bounded(options);
        let (name, idle_after, hand_over) = (self.name.clone(), self.idle_after, self.hand_over);
        running::start(
            name,
            self.runner(),
            receiver,
            Address::of_queue(sender, hand_over),
            idle_after,
        )
    }

    /// Starts the service without a thread: the sender runs it on its own thread. While one sender runs it, others queue their messages for
    /// that sender. This saves the hand-off between threads, and uses no second core. Timers fire with the next message, or with
    /// [`Running::turn`].
    pub fn in_place(self) -> Running<S::Message> {
        let (name, waiting_max) = (self.name.clone(), self.batch_items.saturating_mul(self.batches));
        let runner = Box::new(self.runner());
        let counts = runner.counts();
        let place: Arc<InPlace<S>> = InPlace::start(runner, waiting_max);
        Running::in_place(name, counts, place)
    }

    fn runner(self) -> Runner<S> {
        let stats = self.stats.as_ref().map(|stats| (stats, self.name.as_str()));
        Runner::new(self.factory, (self.limit_items, self.on_panic), stats)
    }
}

impl<S: Service> std::fmt::Debug for Setup<S> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Setup")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
