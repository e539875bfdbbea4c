//! A thread with a runtime of its own: what talks to a broker stalls neither a gateway's loop nor the engine.

use crate::{Error, pace::Pace};
use std::{future::Future, sync::Arc, thread};
use tokio::{runtime::Handle, sync::watch};

/// A thread that ends when it is told to, or dropped.
#[derive(Debug)]
pub(crate) struct Runner {
    stop: watch::Sender<bool>,
    handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
}

/// Tells a task when to end.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until it is time.
    pub(crate) async fn wait(&mut self) {
        // The other end is gone: that is a stop as well.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    pub(crate) fn is_now(&self) -> bool {
        *self.0.borrow()
    }
}

impl Runner {
    /// Runs a task on a thread of its own, at this pace. The task is made there.
    pub(crate) fn start<F: Future<Output = ()>>(
        name: &str,
        pace: Arc<Pace>,
        task: impl FnOnce(Stop) -> F + Send + 'static,
    ) -> Result<Self, Error> {
        let thread_error = |error: std::io::Error| Error::Thread(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || pace.pause())
            .build()
            .map_err(thread_error)?;
        let (stop, stopped) = watch::channel(false);
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || runtime.block_on(task(Stop(stopped))))
            .map_err(thread_error)?;
        Ok(Self {
            stop,
            handle,
            thread: Some(thread),
        })
    }

    /// Has its thread run a task besides.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Tells it to end, and waits for that.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            // What it runs may hold it last.
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("a thread that talks to the broker has panicked");
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
    }
}
