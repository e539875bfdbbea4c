//! Work that this program does not understand, while a newer release of the service runs on another node. A client is asked to retry. A
//! message or a timer waits until a node of that release owns its entity.

use crate::remote::Peers;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The longest time to wait for a look at the nodes.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// The time for which the last newer node is expected back after it is found gone. A replaced or crashed process is
/// back within seconds, a restarted machine within one or two minutes.
const GRACE: Duration = Duration::from_secs(120);

/// The node of a newer release that was seen last.
#[derive(Default)]
pub(crate) struct NewerReleases(Mutex<Option<Seen>>);

struct Seen {
    node: String,
    /// The time at which the node was found gone, by the engine's monotonic clock; `None` while it lives.
    gone_micros: Option<u64>,
}

impl NewerReleases {
    /// Returns the newer node that may understand what this program does not: one that was alive at the last look, or was found gone
    /// less than [`GRACE`] ago. Called regularly, so that the time of its going is known.
    pub(super) fn look(&self, peers: &dyn Peers, now: u64) -> Option<String> {
        let living = peers.newer();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = living {
            let may = format!("a newer release of the service, which node {node} runs, may understand it");
            *last = Some(Seen {
                node,
                gone_micros: None,
            });
            return Some(may);
        }
        let (node, gone_for) = match last.as_mut() {
            Some(seen) => {
                let gone_for = now.saturating_sub(*seen.gone_micros.get_or_insert(now));
                (seen.node.clone(), Duration::from_micros(gone_for))
            }
            // This process may have begun since.
            None => peers.newer_gone()?,
        };
        if gone_for >= GRACE {
            *last = None;
            return None;
        }
        let seconds = gone_for.as_secs();
        Some(format!(
            "a newer release of the service may understand it: node {node}, which is gone for {seconds} s, and is waited for for {} s",
            GRACE.as_secs()
        ))
    }
}
