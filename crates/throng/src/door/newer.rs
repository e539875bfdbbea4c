//! What this program does not understand while a newer release of the service lives at another node: a client is told to come again, a
//! message or a timer waits until a node of that release owns its entity.

use super::{Answer, Attempt, Door, Progress, Step, Wait, Work};
use crate::context::Context;
use std::{
    sync::{Mutex, PoisonError},
    task::Poll,
    time::Duration,
};
use throng_core::{model::Error, shard::Outcome};

/// A look at the nodes is waited for so long.
const LOOK: Duration = Duration::from_secs(2);

/// So long after the last newer node is found to be gone it may still come back: a process that is replaced or has crashed is there again
/// within seconds, a machine that starts anew within one or two minutes.
const GRACE: Duration = Duration::from_secs(120);

/// The node of a newer release that this process has seen last.
#[derive(Default)]
pub(crate) struct SeenNewer(Mutex<Option<Seen>>);

struct Seen {
    node: String,
    /// When it was found to be gone, by the engine's clock that never goes back; `None`: it lives.
    gone_micros: Option<u64>,
}

pub(crate) fn unknown_kind(kind: &str) -> String {
    format!("the engine was not given the kind {kind:?}")
}

impl Context {
    /// Says which newer node may understand what this program does not: one that lives, by the last look at the nodes, or was found to be gone
    /// less than [`GRACE`] ago. Asked now and then, so that it is known since when.
    pub(crate) fn newer(&self) -> Option<String> {
        let peers = self.peers.as_ref()?;
        let living = peers.newer();
        let now = self.host.elapsed_micros();
        let mut last = self.seen_newer.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// What a client is told of what this program does not understand, if a newer release may.
    pub(crate) fn left_to_a_newer<R>(&self, why: &str) -> Option<Error<R>> {
        let newer = self.newer()?;
        Some(Error::Unavailable {
            reason: format!("{}; {newer}", why.trim_end_matches('.')),
        })
    }

    /// Why what this program does not understand waits; `None`: no newer release lives, by a look at the nodes that began after this
    /// call, nor has one lived lately.
    pub(crate) async fn waits_for(&self) -> Option<String> {
        let peers = self.peers.clone()?;
        if let Some(newer) = self.newer() {
            return Some(newer);
        }
        let (mut looked, mut over) = (peers.looked(), self.host.sleep(LOOK));
        let is_known = std::future::poll_fn(|context| match looked.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => over.as_mut().poll(context).map(|()| false),
        });
        if !is_known.await {
            return Some("whether a newer release of the service lives cannot be seen now".to_owned());
        }
        self.newer()
    }
}

impl Door {
    /// Whether what this program does not understand is left for a newer one, should there be one.
    pub(super) fn may_wait(&self, attempt: &Attempt<'_>) -> bool {
        self.context.peers.is_some() && !attempt.is_final
    }

    /// What comes of what this program does not understand, and a newer one may.
    pub(super) fn not_understood(&self, attempt: &mut Attempt<'_>, why: String) -> Step {
        if !attempt.is_from_outside() {
            return Step::Progress(Progress::Wait(Wait::Newer(why)));
        }
        let Some(error) = self.context.left_to_a_newer(&why) else {
            attempt.is_final = true;
            return Step::Again;
        };
        attempt.answer.put(Err(error));
        Step::Progress(Progress::Done(Outcome::Failed))
    }

    /// A query that this program could not answer is left to a newer one, too.
    pub(super) fn left_to_a_newer(&self, attempt: &mut Attempt<'_>) {
        if let (Work::Query { .. }, Answer::Json(reply)) = (&attempt.work, &mut attempt.answer)
            && let Some(error) = &mut reply.error
            && matches!(**error, Error::Malformed(_) | Error::Quarantined { .. })
            && let Some(left) = self.context.left_to_a_newer(&error.to_string())
        {
            **error = left;
        }
    }
}
