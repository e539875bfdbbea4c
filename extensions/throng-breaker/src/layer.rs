//! A breaker around a tower service.

use crate::{Breaker, Refused};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tower::{Layer, Service};

/// Puts a [`Breaker`] around a service.
#[derive(Clone, Debug)]
pub struct BreakerLayer<F> {
    breaker: Breaker,
    is_failure: F,
}

impl<F> BreakerLayer<F> {
    /// Returns a layer with this breaker. `is_failure` tells whether an answer shows that the server is in trouble: an HTTP 503, but not a
    /// 404.
    pub fn new(breaker: Breaker, is_failure: F) -> Self {
        Self { breaker, is_failure }
    }
}

impl<S, F: Clone> Layer<S> for BreakerLayer<F> {
    type Service = BreakerService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        BreakerService {
            inner,
            breaker: self.breaker.clone(),
            is_failure: self.is_failure.clone(),
        }
    }
}

/// A service behind a breaker.
#[derive(Clone, Debug)]
pub struct BreakerService<S, F> {
    inner: S,
    breaker: Breaker,
    is_failure: F,
}

/// Why a call behind a breaker has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error<E> {
    /// The call was not made.
    Refused(Refused),
    /// The call was made, and failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {}

impl<S, F, Request> Service<Request> for BreakerService<S, F>
where
    S: Service<Request>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    F: Fn(&Result<S::Response, S::Error>) -> bool + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Error<S::Error>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(ready!(self.inner.poll_ready(context)).map_err(Error::Inner))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let call = match self.breaker.enter() {
            Ok(call) => call,
            Err(refused) => return Box::pin(std::future::ready(Err(Error::Refused(refused)))),
        };
        let (answer, is_failure) = (self.inner.call(request), self.is_failure.clone());
        Box::pin(async move {
            let answer = answer.await;
            match is_failure(&answer) {
                true => call.failed(),
                false => call.succeeded(),
            }
            answer.map_err(Error::Inner)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CircuitState, Settings};
    use tower::{ServiceBuilder, ServiceExt as _, service_fn};

    #[tokio::test(start_paused = true)]
    async fn calls_to_a_failing_service_are_refused_at_once() {
        let breaker = Breaker::new(
            "elsewhere",
            Settings {
                calls_min: 3,
                ..Settings::default()
            },
        );
        let is_failure = |answer: &Result<u16, &'static str>| !matches!(answer, Ok(..500));
        let mut service = ServiceBuilder::new()
            .layer(BreakerLayer::new(breaker.clone(), is_failure))
            .service(service_fn(|status: u16| async move { Ok::<_, &'static str>(status) }));
        for status in [404, 503, 503] {
            assert_eq!(service.ready().await.unwrap().call(status).await, Ok(status));
        }
        assert_eq!(breaker.state(), CircuitState::Open);
        let refused = service.ready().await.unwrap().call(200).await;
        assert!(matches!(refused, Err(Error::Refused(Refused { retry_after })) if !retry_after.is_zero()));
    }
}
