//! Looks up the target's name again during a run. It uses a thread of its own, because the system's resolver may take seconds. There is one lookup at
//! a time, and at most one a second.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Target;
use crate::target::{addresses, is_ours};

const EVERY: Duration = Duration::from_secs(1);

type LookUp = dyn Fn() -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a name, shared by all workers.
pub(crate) struct Resolver {
    look_up: Box<LookUp>,
    every: Duration,
    known: Mutex<Known>,
    /// The number of changes of the addresses. The resolving thread adds one after each. Workers compare it with the one they know.
    version: AtomicU32,
}

struct Known {
    addresses: Vec<SocketAddr>,
    /// The time when the last lookup began.
    asked: Instant,
    under_way: bool,
}

impl Resolver {
    /// Returns the resolver of a target that was just looked up, or `None` if its host is an address.
    pub(crate) fn of(target: &Target) -> Option<Arc<Self>> {
        let (host, port, owned) = (target.host.clone(), target.port, target.owned);
        let look_up = move || {
            let mut found = addresses(&host, port)?;
            // The permission does not extend to other places to which the name leads now.
            found.retain(|address| owned || is_ours(address.ip()));
            Ok(found)
        };
        target
            .is_named()
            .then(|| Resolver::new(target.addresses.clone(), EVERY, look_up))
    }

    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        every: Duration,
        look_up: impl Fn() -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Resolver {
            look_up: Box::new(look_up),
            every,
            known: Mutex::new(Known {
                addresses,
                asked: Instant::now(),
                under_way: false,
            }),
            version: AtomicU32::new(0),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a lookup, unless one is in progress or the last one is recent. Does not wait for it.
    pub(crate) fn refresh(self: &Arc<Self>) {
        let mut known = self.known();
        if known.under_way || known.asked.elapsed() < self.every {
            return;
        }
        known.asked = Instant::now();
        let resolver = self.clone();
        let work = move || {
            // A name that cannot be found has no address, even if it had one before.
            let mut found = (resolver.look_up)().unwrap_or_default();
            let mut known = resolver.known();
            known.under_way = false;
            found.sort_by_key(|address| (address.is_ipv6(), *address));
            let mut before = known.addresses.clone();
            before.sort_by_key(|address| (address.is_ipv6(), *address));
            if found != before {
                known.addresses = found;
                resolver.version.fetch_add(1, Ordering::Release);
            }
        };
        known.under_way = thread::Builder::new().name("resolver".into()).spawn(work).is_ok();
    }

    /// Returns the addresses if they have changed since `version`, and updates `version`.
    pub(crate) fn changed_since(&self, version: &mut u32) -> Option<Vec<SocketAddr>> {
        if self.version.load(Ordering::Acquire) == *version {
            return None;
        }
        let known = self.known();
        *version = self.version.load(Ordering::Acquire);
        Some(known.addresses.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn changed(resolver: &Arc<Resolver>, version: &mut u32) -> Vec<SocketAddr> {
        loop {
            if let Some(addresses) = resolver.changed_since(version) {
                return addresses;
            }
            resolver.refresh();
            thread::yield_now();
        }
    }

    #[test]
    fn a_moved_name_is_followed_and_a_vanished_has_no_address() {
        let (answer, answers) = mpsc::channel::<io::Result<Vec<SocketAddr>>>();
        let answers = Mutex::new(answers);
        let resolver = Resolver::new(vec![address(1)], Duration::ZERO, move || {
            answers.lock().unwrap().recv().unwrap_or_else(|_| Ok(vec![address(3)]))
        });
        let mut version = 0;
        assert_eq!(resolver.changed_since(&mut version), None);
        answer.send(Ok(vec![address(2)])).unwrap();
        assert_eq!(changed(&resolver, &mut version), [address(2)]);
        answer.send(Err(io::Error::other("no such name"))).unwrap();
        assert_eq!(changed(&resolver, &mut version), []);
        drop(answer);
        assert_eq!(changed(&resolver, &mut version), [address(3)]);
    }

    #[test]
    fn a_young_answer_is_not_asked_for_again() {
        let resolver = Resolver::new(vec![address(1)], Duration::from_secs(3600), || Ok(Vec::new()));
        resolver.refresh();
        assert!(!resolver.known().under_way);
    }

    #[test]
    fn an_address_needs_no_lookup() {
        assert!(Resolver::of(&Target::parse("http://127.0.0.1:9", false).unwrap()).is_none());
        assert!(Resolver::of(&Target::parse("http://[::1]:9", false).unwrap()).is_none());
        assert!(Resolver::of(&Target::parse("http://localhost:9", false).unwrap()).is_some());
    }
}
