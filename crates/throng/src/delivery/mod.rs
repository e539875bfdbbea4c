//! Delivery of messages and timers. Both reach the [executor](crate::executor) as attempts.

mod deliver;
mod remote;
pub(crate) mod stored_timers;
mod timers;

pub(crate) use deliver::Within;
pub(crate) use timers::all;

use crate::{
    context::Context,
    executor::{Executor, Outbox},
};
use std::sync::{Arc, Mutex, atomic::AtomicU64};

/// Delivers messages and fires timers, in one writer's epoch.
pub(crate) struct Deliverer {
    context: Arc<Context>,
    executor: Arc<Executor>,
    outbox: Arc<Outbox>,
    /// Held while messages are delivered: by one task at a time, in order.
    delivering: Mutex<()>,
    /// The earliest time of the next slow messages, by the host's clock. Written with `delivering` held.
    slow_from: AtomicU64,
    /// Held while messages that were left to the log are read, for one peer queue at a time.
    reading_lines: tokio::sync::Mutex<()>,
}

impl Deliverer {
    pub(crate) fn new(context: Arc<Context>, executor: Arc<Executor>) -> Self {
        Self {
            context,
            outbox: executor.outbox.clone(),
            executor,
            delivering: Mutex::new(()),
            slow_from: AtomicU64::new(0),
            reading_lines: tokio::sync::Mutex::default(),
        }
    }
}
