//! Several services of a kind. Each message goes to the next one, or to the one that its key selects.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use throng_queue::{SendError, TrySendError};

use crate::{Address, AskError, Counts, Pending, Reply, Running, Service, Setup, key::place_of, service::service};

type KeyOf<M> = Arc<dyn Fn(&M) -> u64 + Send + Sync>;

/// Settings of a pool to be started.
pub struct PoolSetup<S: Service> {
    name: String,
    factory: Arc<dyn Fn(usize) -> S + Send + Sync>,
    workers: usize,
    key_of: Option<KeyOf<S::Message>>,
    each: Box<dyn Fn(Setup<S>) -> Setup<S>>,
    place: Placement,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Placement {
    Threads,
    Here,
    ByCores,
}

/// Returns a pool to be started: round robin, with one worker a core by default. The factory makes a worker from its number.
pub fn pool<S: Service>(name: impl Into<String>, factory: impl Fn(usize) -> S + Send + Sync + 'static) -> PoolSetup<S> {
    PoolSetup {
        name: name.into(),
        factory: Arc::new(factory),
        workers: cores(),
        key_of: None,
        each: Box::new(|setup| setup),
        place: Placement::Threads,
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl<S: Service> PoolSetup<S> {
    /// Sets the number of workers; at least one.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Sends all messages of a key to the same worker, whose state is then the only one for that key: see [`key_of`](crate::key_of).
    #[must_use]
    pub fn shard_by(mut self, key_of: impl Fn(&S::Message) -> u64 + Send + Sync + 'static) -> Self {
        self.key_of = Some(Arc::new(key_of));
        self
    }

    /// Settings of each worker.
    #[must_use]
    pub fn each(mut self, each: impl Fn(Setup<S>) -> Setup<S> + 'static) -> Self {
        self.each = Box::new(each);
        self
    }

    /// Runs the workers [in place](Setup::in_place), on the callers' threads: if there are as many callers as cores.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.place = Placement::Here;
        self
    }

    /// Runs one worker in place on a machine with one core, where a hand-off to a thread gains nothing; threads on others.
    #[must_use]
    pub fn in_place_on_one_core(mut self) -> Self {
        self.place = Placement::ByCores;
        self
    }

    /// Starts the pool.
    ///
    /// # Errors
    /// [`io::Error`]: the system has no threads left.
    pub fn start(self) -> io::Result<Pool<S::Message>> {
        let is_in_place = match self.place {
            Placement::Threads => false,
            Placement::Here => true,
            Placement::ByCores => cores() == 1,
        };
        let worker = |number: usize| {
            let factory = Arc::clone(&self.factory);
            let setup = (self.each)(service(format!("{}-{number}", self.name), move || factory(number)));
            if is_in_place {
                Ok(setup.in_place())
            } else {
                setup.start()
            }
        };
        Ok(Pool {
            workers: (0..self.workers).map(worker).collect::<io::Result<_>>()?,
            key_of: self.key_of,
            turn: Arc::default(),
        })
    }
}

impl<S: Service> fmt::Debug for PoolSetup<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PoolSetup")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A pool that runs. Dropped, it stops by itself.
pub struct Pool<M: Send + 'static> {
    workers: Vec<Running<M>>,
    key_of: Option<KeyOf<M>>,
    /// The worker at which the next address begins, so that many senders of few messages do not all choose the first one. Each new address
    /// adds one.
    turn: Arc<AtomicUsize>,
}

impl<M: Send + 'static> Pool<M> {
    /// An address of it, with a batch for each worker.
    #[must_use]
    pub fn address(&self) -> PoolAddress<M> {
        PoolAddress {
            workers: self.workers.iter().map(Running::address).collect(),
            key_of: self.key_of.clone(),
            next: self.turn.fetch_add(1, Ordering::Relaxed),
            turn: Arc::clone(&self.turn),
        }
    }

    /// Its workers, by their numbers.
    #[must_use]
    pub fn workers(&self) -> &[Running<M>] {
        &self.workers
    }

    /// Stops all workers, each after what was handed over to it before.
    pub fn stop(self) -> Vec<Counts> {
        self.workers.into_iter().map(Running::stop).collect()
    }
}

impl<M: Send + 'static> fmt::Debug for Pool<M> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pool")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Sends messages and requests to a pool; see [`Address`]. A clone is another sender.
pub struct PoolAddress<M> {
    workers: Vec<Address<M>>,
    key_of: Option<KeyOf<M>>,
    next: usize,
    turn: Arc<AtomicUsize>,
}

impl<M: Send + 'static> PoolAddress<M> {
    fn worker(&mut self, message: &M) -> &mut Address<M> {
        let count = self.workers.len();
        let place = match &self.key_of {
            Some(key_of) => place_of(key_of(message), count),
            None => {
                self.next = self.next.wrapping_add(1);
                self.next % count
            }
        };
        &mut self.workers[place]
    }

    /// Sends a message to its worker. The thread waits while that one's queue is full.
    ///
    /// # Errors
    /// [`SendError`]: the worker has ended; unreceived messages come back.
    pub fn send(&mut self, message: M) -> Result<(), SendError<M>> {
        self.worker(&message).send(message)
    }

    /// Sends a message to its worker if that one has room.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: the worker has ended.
    pub fn try_send(&mut self, message: M) -> Result<(), TrySendError<M>> {
        self.worker(&message).try_send(message)
    }

    /// Sends a message to its worker. The task waits while that one's queue is full.
    ///
    /// # Errors
    /// [`SendError`]: the worker has ended; unreceived messages come back.
    pub async fn send_async(&mut self, message: M) -> Result<(), SendError<M>> {
        self.worker(&message).send_async(message).await
    }

    /// Sends a request to the worker that the message selects, waiting for room on this thread.
    pub fn ask<T: Send + 'static>(&mut self, make: impl FnOnce(Reply<T>) -> M) -> Pending<T> {
        let (reply, pending) = Reply::pair();
        let message = make(reply);
        self.worker(&message).tell(message);
        pending
    }

    /// Sends a request to the worker that the message selects, if it has room.
    ///
    /// # Errors
    /// [`AskError::Full`], or [`AskError::Gone`].
    pub fn try_ask<T: Send + 'static>(&mut self, make: impl FnOnce(Reply<T>) -> M) -> Result<Pending<T>, AskError> {
        let (reply, pending) = Reply::pair();
        let message = make(reply);
        self.worker(&message)
            .try_tell(message)
            .map_err(|error| AskError::of(&error))?;
        Ok(pending)
    }

    /// Sends a request to every worker, for state that is spread over them. The answers are in the order of the workers; wait for them with
    /// [`wait_all`](crate::coordinate::wait_all), or `join_all` in a task.
    pub fn ask_all<T: Send + 'static>(&mut self, mut make: impl FnMut(Reply<T>) -> M) -> Vec<Pending<T>> {
        self.workers.iter_mut().map(|worker| worker.ask(&mut make)).collect()
    }

    /// Hands over what was gathered for each worker. Only needed with [`HandOver::Every`](crate::HandOver::Every).
    ///
    /// # Errors
    /// [`SendError`]: a worker has ended; unreceived messages come back.
    pub fn flush(&mut self) -> Result<(), SendError<M>> {
        self.workers.iter_mut().try_for_each(Address::flush)
    }
}

impl<M> Clone for PoolAddress<M> {
    fn clone(&self) -> Self {
        Self {
            workers: self.workers.clone(),
            key_of: self.key_of.clone(),
            next: self.turn.fetch_add(1, Ordering::Relaxed),
            turn: Arc::clone(&self.turn),
        }
    }
}

impl<M> fmt::Debug for PoolAddress<M> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PoolAddress")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}
