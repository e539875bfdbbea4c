//! Loads under way, and reads that may be done at once.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    task::{Poll, Waker},
};
use throng_journal::{Address, Maybe};

/// Loads under way, at most one for an entity. So an older load never overwrites a newer one.
#[derive(Default)]
pub(super) struct Loads {
    under_way: Mutex<HashMap<Address, Vec<Waker>>>,
}

/// The right to load an entity. Dropping it, also when the asker goes away, passes it on.
pub(super) struct Turn<'a> {
    loads: &'a Loads,
    address: &'a Address,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut under_way = self.loads.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = under_way.remove(self.address).unwrap_or_default();
        drop(under_way);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Loads {
    /// Waits while another task loads it; `None` once that is done.
    pub(super) async fn turn<'a>(&'a self, address: &'a Address) -> Option<Turn<'a>> {
        let mut waited = false;
        std::future::poll_fn(|context| {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            match under_way.get_mut(address) {
                Some(waiting) => {
                    waited = true;
                    waiting.push(context.waker().clone());
                    Poll::Pending
                }
                None if waited => Poll::Ready(None),
                None => {
                    under_way.insert(address.clone(), Vec::new());
                    Poll::Ready(Some(Turn { loads: self, address }))
                }
            }
        })
        .await
    }
}

pub(crate) async fn now_or_later<T>(maybe: Maybe<'_, T>) -> T {
    match maybe {
        Maybe::Ready(value) => value,
        Maybe::Later(later) => later.await,
    }
}
