//! Limits for each client: open connections, and connections and requests a second.

use crate::admission::{Client, LOCAL};
use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The most clients that a rate remembers. Further ones share one entry.
const KNOWN_MAX: usize = 65_536;
/// The entry that further clients share.
const OTHERS: Client = Client::MAX;
/// The share of all connections that one address may hold by default, so that other clients find some.
const ALONE_SHARE: (usize, usize) = (3, 4);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connections of each address.
#[derive(Clone)]
pub(crate) struct Connected {
    open: Arc<Mutex<HashMap<Client, usize>>>,
    most: usize,
    /// True if connections from this machine are counted, too. Otherwise a proxy here could hold all.
    counts_local: bool,
}

/// A connection that is counted until this is dropped.
pub(crate) struct Counted {
    of: Connected,
    client: Client,
}

impl Connected {
    /// Returns a limit of connections for each address: this number, or a part of all.
    pub(crate) fn new(most: Option<usize>, all: usize) -> Self {
        Self {
            open: Arc::default(),
            most: most.unwrap_or((all * ALONE_SHARE.0 / ALONE_SHARE.1).max(1)),
            counts_local: most.is_some(),
        }
    }

    /// Counts one more connection of an address; `None` if it has reached its limit.
    pub(crate) fn enter(&self, client: Client) -> Option<Option<Counted>> {
        if client == LOCAL && !self.counts_local {
            return Some(None);
        }
        let mut open = locked(&self.open);
        let own = open.entry(client).or_default();
        if *own >= self.most {
            return None;
        }
        *own += 1;
        let of = self.clone();
        Some(Some(Counted { of, client }))
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = locked(&self.of.open);
        if let Some(own) = open.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.client);
            }
        }
    }
}

/// A rate per second for each client (generic cell rate algorithm) that allows a burst of one second's worth.
pub(crate) struct Rate {
    a_second: NonZeroU32,
    began: Instant,
    /// The time at which each client's last request would have been due at an even rate, in nanoseconds.
    due: Mutex<HashMap<Client, u64>>,
    known_max: usize,
}

impl Rate {
    pub(crate) fn new(a_second: Option<NonZeroU32>) -> Option<Self> {
        Some(Self {
            a_second: a_second?,
            began: Instant::now(),
            due: Mutex::default(),
            known_max: KNOWN_MAX,
        })
    }

    pub(crate) fn a_second(&self) -> u32 {
        self.a_second.get()
    }

    /// Counts one more request or connection of a client. The error is the time after which it may try again.
    pub(crate) fn take(&self, client: Client, now: Instant) -> Result<(), Duration> {
        const SECOND: u64 = 1_000_000_000;
        let now = u64::try_from(now.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let interval = SECOND / u64::from(self.a_second.get());
        let mut due = locked(&self.due);
        let client = if due.contains_key(&client) || self.has_room(&mut due, now) {
            client
        } else {
            OTHERS
        };
        let due = due.entry(client).or_default();
        let next = (*due).max(now) + interval;
        let ahead = next.saturating_sub(now);
        if ahead > SECOND.max(interval) {
            return Err(Duration::from_nanos(ahead - SECOND));
        }
        *due = next;
        Ok(())
    }

    /// True if one more client can be remembered. Forgets clients that were inactive for a while.
    fn has_room(&self, due: &mut HashMap<Client, u64>, now: u64) -> bool {
        if due.len() >= self.known_max {
            due.retain(|_, due| *due > now);
        }
        due.len() < self.known_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(a_second: u32) -> Rate {
        Rate::new(NonZeroU32::new(a_second)).unwrap()
    }

    #[test]
    fn one_seconds_worth_may_burst_and_then_one_when_due() {
        let rate = rate(10);
        let now = rate.began + Duration::from_secs(100);
        assert_eq!((0..20).filter(|_| rate.take(7, now).is_ok()).count(), 10);
        assert_eq!(rate.take(7, now), Err(Duration::from_millis(100)));
        assert!(rate.take(8, now).is_ok(), "another client has its own");
        assert!(rate.take(7, now + Duration::from_millis(99)).is_err());
        assert!(rate.take(7, now + Duration::from_millis(100)).is_ok());
        assert!(rate.take(7, now + Duration::from_millis(100)).is_err());
        let later = now + Duration::from_secs(60);
        assert_eq!(
            (0..20).filter(|_| rate.take(7, later).is_ok()).count(),
            10,
            "no more is saved up"
        );
    }

    #[test]
    fn one_a_second_is_one_a_second() {
        let rate = rate(1);
        let now = rate.began;
        assert!(rate.take(7, now).is_ok() && rate.take(7, now).is_err());
        assert!(rate.take(7, now + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn surplus_clients_share_a_place_and_idle_ones_are_forgotten() {
        let mut rate = rate(1);
        rate.known_max = 100;
        let now = rate.began;
        assert_eq!((0..1_000).filter(|client| rate.take(*client, now).is_ok()).count(), 101);
        assert!(locked(&rate.due).len() <= 101);
        assert!(rate.take(5_000, now + Duration::from_secs(2)).is_ok());
        assert_eq!(locked(&rate.due).len(), 1);
    }

    #[test]
    fn connections_of_one_address_are_bounded() {
        let connected = Connected::new(None, 8);
        let taken: Vec<_> = (0..8).map_while(|_| connected.enter(7)).collect();
        assert_eq!(taken.len(), 6);
        assert!(connected.enter(8).is_some());
        drop(taken);
        assert!(connected.enter(7).is_some());
        assert!(locked(&connected.open).is_empty(), "who is gone is forgotten");
        assert_eq!((0..100).filter_map(|_| connected.enter(LOCAL)).count(), 100);
        let connected = Connected::new(Some(2), 8);
        let taken: Vec<_> = (0..8).map_while(|_| connected.enter(LOCAL)).collect();
        assert_eq!(taken.len(), 2);
    }
}
