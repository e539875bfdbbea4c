//! What this program does not understand while a newer release of the service lives at another node: a client is told to come again, a
//! message or a timer waits until a node of that release owns its entity.

use super::{Answer, Attempt, Door, Progress, Step, Wait, Work};
use crate::context::Context;
use std::{task::Poll, time::Duration};
use throng_core::{model::Error, shard::Outcome};

/// A look at the nodes is waited for so long.
const LOOK: Duration = Duration::from_secs(2);

pub(crate) fn unknown_kind(kind: &str) -> String {
    format!("the engine was not given the kind {kind:?}")
}

impl Context {
    /// What a client is told of what this program does not understand, if a newer release lives.
    pub(crate) fn left_to_a_newer<R>(&self, why: &str) -> Option<Error<R>> {
        let newer = self.peers.as_ref()?.newer()?;
        Some(Error::Unavailable {
            reason: format!("{}; {}", why.trim_end_matches('.'), of_a_newer(&newer)),
        })
    }

    /// Why what this program does not understand waits; `None`: no newer release lives, by a look at the nodes that began after this
    /// call.
    pub(crate) async fn waits_for(&self) -> Option<String> {
        let peers = self.peers.clone()?;
        if peers.newer().is_none() {
            let (mut looked, mut over) = (peers.looked(), self.host.sleep(LOOK));
            let is_known = std::future::poll_fn(|context| match looked.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => over.as_mut().poll(context).map(|()| false),
            });
            if !is_known.await {
                return Some("whether a newer release of the service lives cannot be seen now".to_owned());
            }
        }
        peers.newer().map(|newer| of_a_newer(&newer))
    }
}

fn of_a_newer(node: &str) -> String {
    format!("a newer release of the service, which node {node} runs, may understand it")
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
