//! Trying again, within a budget.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use throng_services::retry::RetryTokens;
use tower::retry::{
    Policy,
    backoff::{Backoff as _, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff as _},
};
use tower::util::rng::HasherRng;

/// Pauses between attempts. They start at about `first` and double up to `last`. Each is longer by up to half at random, so that callers do
/// not all retry at the same moment.
#[derive(Clone, Debug)]
pub struct Pauses {
    maker: ExponentialBackoffMaker,
    next: ExponentialBackoff,
}

impl Pauses {
    /// Returns pauses from `first` to `last`; a `last` below `first` counts as `first`.
    ///
    /// # Panics
    /// When both are zero.
    #[must_use]
    pub fn new(first: Duration, last: Duration) -> Self {
        let maker = ExponentialBackoffMaker::new(first, last.max(first), 0.5, HasherRng::default());
        let mut maker = maker.expect("the last pause is neither zero nor below the first");
        Self {
            next: maker.make_backoff(),
            maker,
        }
    }

    /// Waits for the next pause. On a tokio runtime.
    pub fn pause(&mut self) -> impl Future<Output = ()> + Send + 'static {
        self.next.next_backoff()
    }

    /// Starts again with the first pause, after a call succeeded.
    pub fn reset(&mut self) {
        self.next = self.maker.make_backoff();
    }
}

/// The retries that all callers together may make; a clone is the same.
#[derive(Clone)]
pub struct RetryBudget {
    begun: Instant,
    tokens: Arc<Mutex<RetryTokens>>,
}

impl RetryBudget {
    /// Returns a budget, computed over ten seconds: retries may add this percentage of the calls, and this many a second for callers with
    /// few calls.
    #[must_use]
    pub fn new(percent: u32, a_second: u32) -> Self {
        Self {
            begun: Instant::now(),
            tokens: Arc::new(Mutex::new(RetryTokens::new(percent.min(1_000), a_second))),
        }
    }

    fn tokens(&self) -> MutexGuard<'_, RetryTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call went well and pays into the budget.
    pub fn deposit(&self) {
        self.tokens().deposit();
    }

    /// Takes a retry from the budget, and tells whether there was one.
    #[must_use]
    pub fn withdraw(&self) -> bool {
        self.tokens().withdraw(self.begun.elapsed()).is_ok()
    }
}

impl Default for RetryBudget {
    /// A tenth of the calls, and ten a second.
    fn default() -> Self {
        Self::new(10, 10)
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget").finish_non_exhaustive()
    }
}

/// A policy for [tower's retry layer](tower::retry::RetryLayer): repeats a failed call a bounded number of times, with [`Pauses`], within a
/// [`RetryBudget`].
#[derive(Clone, Debug)]
pub struct Retry<F> {
    budget: RetryBudget,
    pauses: Pauses,
    left: u32,
    is_worth_it: F,
}

impl<F> Retry<F> {
    /// Returns a policy of at most `attempts` attempts in all. `is_worth_it` tells of an answer whether another attempt may succeed and
    /// does no harm.
    pub fn new(attempts: u32, pauses: Pauses, budget: RetryBudget, is_worth_it: F) -> Self {
        Self {
            budget,
            pauses,
            left: attempts.saturating_sub(1),
            is_worth_it,
        }
    }
}

impl<F, Request, Response, E> Policy<Request, Response, E> for Retry<F>
where
    F: Fn(&Result<Response, E>) -> bool,
    Request: Clone,
{
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(&mut self, _: &mut Request, answer: &mut Result<Response, E>) -> Option<Self::Future> {
        if !(self.is_worth_it)(answer) {
            self.budget.deposit();
            return None;
        }
        if self.left == 0 || !self.budget.withdraw() {
            return None;
        }
        self.left -= 1;
        Some(Box::pin(self.pauses.pause()))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Some(request.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tower::{Service as _, ServiceBuilder, ServiceExt as _, retry::RetryLayer, service_fn};

    #[tokio::test(start_paused = true)]
    async fn retries_end_with_their_number_and_with_the_budget_of_all() {
        let made = Arc::new(AtomicU32::new(0));
        let count = made.clone();
        let fails = service_fn(move |(): ()| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Err::<(), _>("down") }
        });
        let pauses = Pauses::new(Duration::from_millis(10), Duration::from_millis(100));
        // Ten for the ten seconds it looks back on.
        let policy = Retry::new(4, pauses, RetryBudget::new(0, 1), |answer: &Result<(), _>| {
            answer.is_err()
        });
        let mut service = ServiceBuilder::new().layer(RetryLayer::new(policy)).service(fails);
        assert!(service.ready().await.unwrap().call(()).await.is_err());
        assert_eq!(made.load(Ordering::Relaxed), 4);
        for _ in 0..20 {
            assert!(service.ready().await.unwrap().call(()).await.is_err());
        }
        assert_eq!(
            made.load(Ordering::Relaxed),
            21 + 10,
            "a call each, and the retries of the budget"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_last_and_begin_anew() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(10));
        for least in [1, 2, 4, 8, 10, 10] {
            let begun = tokio::time::Instant::now();
            pauses.pause().await;
            let paused = begun.elapsed();
            assert!(
                paused >= Duration::from_secs(least) && paused <= Duration::from_secs(11),
                "{paused:?}"
            );
        }
        pauses.reset();
        let begun = tokio::time::Instant::now();
        pauses.pause().await;
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
}
