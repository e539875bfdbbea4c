//! A thread with a runtime of its own: what waits for sockets stalls neither a gateway's loop nor the engine.

use crate::Pace;
use std::{future::Future, io, sync::Arc, thread};
use tokio::{runtime::Handle, sync::watch};

/// A thread that ends when it is told to, or dropped.
#[derive(Debug)]
pub struct Runner {
    stop: watch::Sender<bool>,
    handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
}

/// Tells a task when to end.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until it is time.
    pub async fn wait(&mut self) {
        // The other end is gone: that is a stop as well.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// True once it is time.
    #[must_use]
    pub fn is_now(&self) -> bool {
        *self.0.borrow()
    }
}

impl Runner {
    /// Runs a task on a thread of its own, at this pace. The task is made there.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<F: Future<Output = ()>>(
        name: &str,
        pace: Arc<Pace>,
        task: impl FnOnce(Stop) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || pace.pause())
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || runtime.block_on(task(Stop(stopped))))?;
        Ok(Self {
            stop,
            handle,
            thread: Some(thread),
        })
    }

    /// Has its thread run a task besides.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Tells it to end, and waits for that.
    pub fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            // What it runs may hold it last.
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a source or a publisher has panicked");
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
    }
}
