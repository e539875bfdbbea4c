//! Subscriptions as their socket knows them, and the credit that their client has granted.

use super::CREDIT_MAX;
use std::{cell::Cell, rc::Rc};
use tokio::{sync::Notify, task::AbortHandle};

/// Credit, as the client grants it.
#[derive(Default)]
pub(super) struct Credit {
    pub(super) left: Cell<u32>,
    pub(super) granted: Notify,
}

impl Credit {
    /// What is beyond the most there may be is not granted.
    pub(super) fn grant(&self, events: u32) {
        self.left.set(self.left.get().saturating_add(events).min(CREDIT_MAX));
        self.granted.notify_one();
    }
}

/// A subscription as its socket knows it; it ends when this is dropped.
pub(super) struct Subscription {
    pub(super) credit: Rc<Credit>,
    pub(super) task: AbortHandle,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_adds_up_to_its_most() {
        let credit = Credit::default();
        credit.grant(7);
        credit.grant(3);
        assert_eq!(credit.left.get(), 10);
        credit.grant(u32::MAX);
        assert_eq!(credit.left.get(), CREDIT_MAX);
    }
}
