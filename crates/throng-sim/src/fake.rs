//! A fake of an outside provider.

use crate::{
    threads::current_world,
    world::{OUTSIDE, RunsOn, World},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use throng::{
    Answering, MakesCalls,
    model::{Attempt, CallError, CallId, Outside},
};

/// The faults of a provider and of the connection to it. Shares are of all attempts, from 0 to 1.
#[derive(Clone, Debug)]
pub struct CallFaults {
    /// The longest time to the effect, and from the effect to the answer.
    pub delay: Duration,
    /// The share of attempts that cannot be sent.
    pub not_sent: f64,
    /// The share of requests that are lost on the way.
    pub lost: f64,
    /// The share of requests that arrive twice.
    pub duplicated: f64,
    /// The share of answers that are lost after the effect.
    pub answer_lost: f64,
    /// The share of answers that take up to twice the time limit of an attempt.
    pub slow: f64,
}

impl CallFaults {
    /// Returns no faults: every answer arrives within a second.
    #[must_use]
    pub fn none() -> Self {
        Self {
            delay: Duration::from_millis(500),
            not_sent: 0.0,
            lost: 0.0,
            duplicated: 0.0,
            answer_lost: 0.0,
            slow: 0.0,
        }
    }

    /// Returns some of all faults.
    #[must_use]
    pub fn some() -> Self {
        Self {
            not_sent: 0.1,
            lost: 0.1,
            duplicated: 0.1,
            answer_lost: 0.1,
            slow: 0.1,
            ..Self::none()
        }
    }
}

type Decide<W> =
    dyn Fn(&<W as Outside>::Request) -> Result<<W as Outside>::Answer, <W as Outside>::Failure> + Send + Sync;

/// A fake provider. Its state outlives the processes that call it. Clones share it.
pub struct Fake<W: Outside> {
    decide: Arc<Decide<W>>,
    knows_keys: bool,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    faults: CallFaults,
    /// The calls of the requests sent, including those lost on the way, each with its time.
    requests: Vec<(CallId, Duration)>,
    /// The calls in the order of their effects.
    effects: Vec<CallId>,
    /// The number of attempts in flight.
    under_way: usize,
    under_way_max: usize,
}

/// An attempt in flight. Dropped when the attempt or its process has ended.
struct UnderWay(Arc<Mutex<Seen>>);

impl UnderWay {
    fn new(seen: &Arc<Mutex<Seen>>) -> Self {
        let mut entered = lock(seen);
        entered.under_way += 1;
        entered.under_way_max = entered.under_way_max.max(entered.under_way);
        Self(seen.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.0).under_way -= 1;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Outside> Clone for Fake<W> {
    fn clone(&self) -> Self {
        Self {
            decide: Arc::clone(&self.decide),
            knows_keys: self.knows_keys,
            seen: Arc::clone(&self.seen),
        }
    }
}

impl<W: Outside> Fake<W> {
    /// Returns a provider without faults. `decide` must give the same result for the same request. An answer is an effect, a failure is
    /// not.
    #[must_use]
    pub fn answers(decide: impl Fn(&W::Request) -> Result<W::Answer, W::Failure> + Send + Sync + 'static) -> Self {
        Self {
            decide: Arc::new(decide),
            knows_keys: true,
            seen: Arc::new(Mutex::new(Seen {
                faults: CallFaults::none(),
                requests: Vec::new(),
                effects: Vec::new(),
                under_way: 0,
                under_way_max: 0,
            })),
        }
    }

    /// Sets the faults.
    #[must_use]
    pub fn faults(self, faults: CallFaults) -> Self {
        self.set_faults(faults);
        self
    }

    /// Sets the faults from now on, also those of clones: an outage begins or ends.
    pub fn set_faults(&self, faults: CallFaults) {
        self.seen().faults = faults;
    }

    /// Ignores idempotency keys, so that each request that arrives has an effect.
    #[must_use]
    pub fn without_keys(mut self) -> Self {
        self.knows_keys = false;
        self
    }

    /// Returns how often a call had an effect.
    #[must_use]
    pub fn effects_of(&self, call: CallId) -> usize {
        self.seen().effects.iter().filter(|effect| **effect == call).count()
    }

    /// Returns the number of requests sent for a call, including those lost on the way.
    #[must_use]
    pub fn requests_of(&self, call: CallId) -> usize {
        let seen = self.seen();
        seen.requests.iter().filter(|(request, _)| *request == call).count()
    }

    /// Returns the number of requests sent for all calls, including those lost on the way.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.seen().requests.len()
    }

    /// Returns the most attempts that were in flight at once.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.seen().under_way_max
    }

    /// Returns the most requests sent within any interval of this length.
    #[must_use]
    pub fn most_within(&self, stretch: Duration) -> usize {
        let seen = self.seen();
        let times = || seen.requests.iter().map(|(_, at)| *at);
        let since = |from: Duration| times().filter(|at| (from..from + stretch).contains(at)).count();
        times().map(since).max().unwrap_or(0)
    }

    /// Returns the calls that had an effect, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<CallId> {
        self.seen().effects.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Decides a request on its arrival.
    fn decide(&self, request: &W::Request, call: CallId, world: &World) -> Result<W::Answer, W::Failure> {
        let decided = (self.decide)(request);
        if decided.is_ok() {
            let mut seen = self.seen();
            if !self.knows_keys || !seen.effects.contains(&call) {
                seen.effects.push(call);
                world.note(format_args!("{} does {call}", W::NAME));
            }
        }
        decided
    }
}

impl<W: Outside> MakesCalls<W> for Fake<W> {
    fn make<'a>(&'a self, request: W::Request, attempt: &'a Attempt) -> Answering<'a, W> {
        Box::pin(async move {
            let Some(world) = current_world() else {
                return Err(CallError::NotSent("there is no simulated world".into()));
            };
            let _under_way = UnderWay::new(&self.seen);
            let (faults, call, fake) = (self.seen().faults.clone(), attempt.call, self.clone());
            let up_to = |longest: Duration| longest.mul_f64(world.dice(|rng| rng.f64()));
            if world.chance(faults.not_sent) {
                world.count("call not sent");
                return Err(CallError::NotSent("no connection".into()));
            }
            let at = Duration::from_micros(world.elapsed_micros());
            self.seen().requests.push((call, at));
            let (there, mut back) = (up_to(faults.delay), up_to(faults.delay));
            let [is_lost, is_twice, is_mute, is_slow] =
                [faults.lost, faults.duplicated, faults.answer_lost, faults.slow].map(|share| world.chance(share));
            if is_slow {
                back = up_to(W::TIMEOUT * 2);
            }
            let (tell, told) = tokio::sync::oneshot::channel();
            // The provider goes on if the calling process dies.
            let provider = {
                let world = world.clone();
                async move {
                    world.sleep(there).await;
                    if is_lost {
                        world.count("call lost");
                        return;
                    }
                    let answer = fake.decide(&request, call, &world);
                    if is_twice {
                        world.count("call duplicated");
                        let _ = fake.decide(&request, call, &world);
                    }
                    world.sleep(back).await;
                    if is_mute {
                        world.count("answer of a call lost");
                    } else if tell.send(answer).is_err() {
                        world.count("answer of a call too late");
                    }
                }
            };
            world.spawn(OUTSIDE, RunsOn::World, Box::pin(provider));
            match told.await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(failure)) => Err(CallError::Failed(failure)),
                Err(_) => Err(CallError::InDoubt("the connection broke".into())),
            }
        })
    }
}
