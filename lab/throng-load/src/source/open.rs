use super::{Arrivals, Next, Shot, Source};
use crate::Request;

/// The open model: requests start at the times of [`Arrivals`], even if the server falls behind.
///
/// A request that finds no free connection waits. Its response time counts from its intended start (Gil Tene's correction of coordinated omission, as
/// in wrk2).
#[derive(Debug, Clone)]
pub struct Open {
    request: Request,
    arrivals: Arrivals,
    due_nanos: Option<u64>,
}

impl Open {
    /// Returns a source that sends `request` at each of `arrivals`.
    pub fn new(request: Request, mut arrivals: Arrivals) -> Self {
        let due_nanos = arrivals.next();
        Open {
            request,
            arrivals,
            due_nanos,
        }
    }

    /// Returns a source for each of `parts` workers, each with its share of the arrivals.
    pub fn split(request: &Request, arrivals: &Arrivals, parts: usize) -> Vec<Self> {
        (0..parts)
            .map(|part| Open::new(request.clone(), arrivals.share(part, parts)))
            .collect()
    }
}

impl Source for Open {
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        let Some(due_nanos) = self.due_nanos else {
            return Next::Done;
        };
        if due_nanos > now_nanos {
            return Next::WaitUntil(due_nanos);
        }
        self.due_nanos = self.arrivals.next();
        Next::Send(Shot::due(self.request.bytes(), 0, due_nanos))
    }

    fn unsent(&self, now_nanos: u64) -> u64 {
        let Some(due_nanos) = self.due_nanos else { return 0 };
        if due_nanos > now_nanos {
            return 0;
        }
        1 + self.arrivals.clone().take_while(|&due| due <= now_nanos).count() as u64
    }
}
