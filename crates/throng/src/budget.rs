//! Memory held by others than entities: bodies, frames, pages and answers on their way. Each owner has a share of one budget, and charges
//! bytes before it allocates them.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Notify;

/// The shares of an engine's [memory](crate::Options::memory_bytes_max) that others than entities hold. Entities get the rest, at least
/// half.
#[derive(Clone, Debug)]
pub struct Budget {
    memory: usize,
    /// The bytes of all shares. Each charge writes it; the balancing of entities reads it.
    held: Arc<AtomicUsize>,
    shares: Arc<Mutex<Vec<Share>>>,
}

/// An owner's share. Cheap to clone.
#[derive(Clone)]
pub struct Share(Arc<Owner>);

struct Owner {
    name: &'static str,
    most: usize,
    held: AtomicUsize,
    of_all: Arc<AtomicUsize>,
    freed: Notify,
}

/// Bytes of a share, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Charge {
    share: Share,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            memory,
            held: Arc::default(),
            shares: Arc::default(),
        }
    }

    /// A part of the memory, in bytes.
    #[must_use]
    pub fn part(&self, divisor: usize) -> usize {
        self.memory / divisor.max(1)
    }

    /// Returns the share of an owner, by its name in the metrics. The first call sets its size.
    #[must_use]
    pub fn share(&self, owner: &'static str, most: usize) -> Share {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.iter().find(|share| share.0.name == owner) {
            return share.clone();
        }
        let share = Share(Arc::new(Owner {
            name: owner,
            most,
            held: AtomicUsize::new(0),
            of_all: self.held.clone(),
            freed: Notify::new(),
        }));
        shares.push(share.clone());
        share
    }

    /// Bytes that all owners hold.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Returns a charge of zero bytes, to [grow](Charge::grow_to).
    pub fn nothing(&self) -> Charge {
        Charge {
            share: self.clone(),
            bytes: 0,
        }
    }

    /// Charges this many bytes; `None` if there is no room.
    pub fn take(&self, bytes: usize) -> Option<Charge> {
        let mut charge = self.nothing();
        charge.grow_to(bytes).then_some(charge)
    }

    /// Waits for room, and charges this many bytes; at most the whole share.
    pub async fn room(&self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.0.most);
        loop {
            let mut freed = pin!(self.0.freed.notified());
            // Enabled before the look, so that bytes given back in between are noticed.
            freed.as_mut().enable();
            if let Some(charge) = self.take(bytes) {
                // The remaining room may suffice for the next waiter.
                self.0.freed.notify_one();
                return charge;
            }
            freed.await;
        }
    }

    /// Charges this many bytes even without room, for what can no longer be refused.
    pub fn take_anyway(&self, bytes: usize) -> Charge {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        self.0.of_all.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            share: self.clone(),
            bytes,
        }
    }

    /// True if one and a half times the share is charged, as [`take_anyway`](Self::take_anyway) allows.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        self.held() > self.0.most + self.0.most / 2
    }

    /// The bytes that may be charged.
    #[must_use]
    pub fn most(&self) -> usize {
        self.0.most
    }

    /// The bytes that are charged.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.0.held.fetch_sub(bytes, Ordering::Relaxed);
            self.0.of_all.fetch_sub(bytes, Ordering::Relaxed);
            self.0.freed.notify_one();
        }
    }
}

impl Charge {
    /// Increases the charge to this many bytes; `false`, and no change, if there is no room.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let owner = &self.share.0;
        if more > owner.most || owner.held.fetch_add(more, Ordering::Relaxed) + more > owner.most {
            if more <= owner.most {
                owner.held.fetch_sub(more, Ordering::Relaxed);
            }
            return false;
        }
        owner.of_all.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        true
    }

    /// Adds another charge of the same share to this one.
    pub fn join(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.share.0, &other.share.0),
            "bytes stay with their owner"
        );
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Reduces the charge to this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.share.give_back(less);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({}: {} of {} bytes)", self.0.name, self.held(), self.most())
    }
}

impl Collector for Budget {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let mut levels = |name, help, of: &dyn Fn(&Share) -> usize| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            shares.iter().try_for_each(|share| {
                let level = ConstGauge::new(i64::try_from(of(share)).unwrap_or(i64::MAX));
                level.encode(family.encode_family(&[("owner", share.0.name)])?)
            })
        };
        let held = "Bytes that are held for clients, by their owner";
        levels("held_bytes", held, &Share::held)?;
        levels("held_bytes_max", "Bytes that an owner may hold", &Share::most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn bytes_are_charged_up_to_the_share_and_given_back() {
        let budget = Budget::new(100);
        let (bodies, frames) = (budget.share("bodies", budget.part(10)), budget.share("frames", 5));
        let mut charge = bodies.nothing();
        assert!(charge.grow_to(4) && charge.grow_to(3) && bodies.held() == 4);
        assert!(charge.grow_to(9) && !charge.grow_to(11) && !charge.grow_to(usize::MAX));
        assert!(bodies.take(2).is_none());
        let other = frames.take(5).unwrap();
        assert_eq!((bodies.held(), frames.held(), budget.held()), (9, 5, 14));
        charge.shrink_to(1);
        assert_eq!((bodies.held(), budget.held()), (1, 6));
        drop((charge, other));
        assert_eq!((bodies.held(), frames.held(), budget.held()), (0, 0, 0));
        assert_eq!(budget.share("bodies", 1).most(), 10, "a share is set once");
    }

    #[test]
    fn overdrawn_share_has_no_room_until_it_is_paid_back() {
        let share = Budget::new(100).share("pages", 10);
        let mut page = share.take(10).unwrap();
        page.join(share.take_anyway(5));
        assert!(!share.is_overdrawn() && share.take(1).is_none());
        let reply = share.take_anyway(1);
        assert!(share.is_overdrawn() && share.held() == 16);
        drop(reply);
        page.shrink_to(9);
        assert!(!share.is_overdrawn() && share.take(1).is_some() && share.held() == 9);
    }

    #[test]
    fn each_waiter_finds_room_in_turn() {
        let share = Budget::new(100).share("pages", 10);
        let held = share.take(8).unwrap();
        let mut large = Box::pin(share.room(1_000));
        let mut small = Box::pin(share.room(3));
        assert!(large.as_mut().now_or_never().is_none() && small.as_mut().now_or_never().is_none());
        drop(held);
        let large = large.now_or_never().expect("all is free");
        assert_eq!(share.held(), 10, "more than all is all");
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        assert!(small.now_or_never().is_some());
    }
}
