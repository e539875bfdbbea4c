use super::{Next, Shot, Source};
use crate::Request;

/// The closed model: every free connection sends the same request at once, up to a total.
#[derive(Debug, Clone)]
pub struct Closed {
    request: Request,
    left: u64,
}

impl Closed {
    /// Returns a source that sends `request` `total` times. `u64::MAX` lasts as long as the run.
    pub fn new(request: Request, total: u64) -> Self {
        Closed { request, left: total }
    }

    /// Returns a source for each of `parts` workers; their totals add up to `total`.
    pub fn split(request: &Request, total: u64, parts: usize) -> Vec<Self> {
        let parts_wide = parts as u64;
        (0..parts_wide)
            .map(|part| {
                let share = match total {
                    u64::MAX => u64::MAX,
                    _ => total / parts_wide + u64::from(part < total % parts_wide),
                };
                Closed::new(request.clone(), share)
            })
            .collect()
    }
}

impl Source for Closed {
    fn next(&mut self, _now_nanos: u64) -> Next<'_> {
        if self.left == 0 {
            return Next::Done;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        Next::Send(Shot::new(self.request.bytes(), 0))
    }
}
