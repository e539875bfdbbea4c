//! A world in which only the test acts. Loops poll on request. Woken tasks of the engine run when the test runs them.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};
use throng::{
    Engine,
    host::{Host, Task},
    model::Timestamp,
};
use throng_journal::{Append, Commit, Journal, MemoryJournal, MemoryStore};
use throng_testing::{
    delegate,
    fixtures::{Command, Counter},
};

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// No time passes, and tasks run on the test's request.
#[derive(Default)]
struct StillHost {
    tasks: Mutex<Vec<(Task, Arc<Count>)>>,
}

impl Host for StillHost {
    fn now(&self) -> Timestamp {
        Timestamp { micros: 0 }
    }
    fn elapsed_micros(&self) -> u64 {
        0
    }
    fn entropy(&self) -> u128 {
        0
    }
    fn spawn(&self, task: Task) {
        let woken = Arc::new(Count(AtomicUsize::new(1)));
        self.tasks.lock().unwrap().push((task, woken));
    }
    fn sleep(&self, _: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

/// A journal that records which loop appends, and runs the test's code meanwhile.
#[derive(Default)]
pub(crate) struct StepJournal {
    journal: MemoryJournal,
    leaders: Mutex<Vec<String>>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl StepJournal {
    /// Runs this during the next append, on the leader's thread.
    pub(crate) fn during_the_next_append(&self, what: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(what));
    }

    /// Returns the names of the threads that appended the commits, in order.
    pub(crate) fn leaders(&self) -> Vec<String> {
        self.leaders.lock().unwrap().clone()
    }
}

impl Journal for StepJournal {
    delegate!(Journal, journal: open take seal read read_at forget depth durability);

    fn append(&self, commit: Commit) -> Append {
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.leaders.lock().unwrap().push(name);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        self.journal.append(commit)
    }
}

/// An engine, its journal and its tasks.
pub(crate) struct World {
    engine: Engine,
    host: Arc<StillHost>,
    pub(crate) journal: Arc<StepJournal>,
}

impl World {
    pub(crate) fn new() -> Self {
        let host = Arc::new(StillHost::default());
        let journal = Arc::new(StepJournal::default());
        let store = MemoryStore::new(journal.journal.clone());
        let builder = Engine::builder().with::<Counter>().host(host.clone());
        let mut start = Box::pin(builder.start_shared(journal.clone(), Arc::new(store)));
        let started = start.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(engine) = started else {
            panic!("memory answers at once");
        };
        let engine = engine.unwrap();
        Self { engine, host, journal }
    }

    /// Polls the engine's own tasks, once for each wake-up.
    pub(crate) fn run_woken_tasks(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *self.host.tasks.lock().unwrap());
            let mut was_woken = false;
            tasks.retain_mut(|(task, woken)| {
                if woken.0.swap(0, SeqCst) == 0 {
                    return true;
                }
                was_woken = true;
                let waker = Waker::from(woken.clone());
                task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
            self.host.tasks.lock().unwrap().append(&mut tasks);
            if !was_woken {
                return;
            }
        }
    }

    /// Creates a loop on a thread of this name.
    pub(crate) fn new_loop(&self, name: &str) -> Loop {
        let (steps, to_do) = mpsc::channel::<Run>();
        let (engine, woken) = (self.engine.clone(), Arc::new(Count::default()));
        let committer_woken = woken.clone();
        let body = move || {
            let mut own = Step {
                committer: Some(Box::pin(engine.driver().committer())),
                engine,
                woken: committer_woken,
                polled: 0,
                asks: Vec::new(),
            };
            for (step, done) in to_do {
                step(&mut own);
                done.send(()).unwrap();
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
        Loop { steps, woken }
    }
}

type Run = (Box<dyn FnOnce(&mut Step) + Send>, mpsc::Sender<()>);

/// The test's handle of a loop.
#[derive(Clone)]
pub(crate) struct Loop {
    steps: mpsc::Sender<Run>,
    woken: Arc<Count>,
}

impl Loop {
    /// Runs a step on the loop's thread, and waits until it is done.
    pub(crate) fn run(&self, step: impl FnOnce(&mut Step) + Send + 'static) {
        let (tell, told) = mpsc::channel();
        self.steps.send((Box::new(step), tell)).unwrap();
        told.recv().unwrap();
    }

    /// Returns the number of wake-ups of its committer.
    pub(crate) fn woken(&self) -> usize {
        self.woken.0.load(SeqCst)
    }
}

type Ask = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A loop, on its own thread.
pub(crate) struct Step {
    engine: Engine,
    committer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    woken: Arc<Count>,
    /// The number of wake-ups at the last poll.
    polled: usize,
    asks: Vec<Ask>,
}

impl Step {
    /// Lets a client of this loop hit a counter. The command is staged, but not committed yet.
    pub(crate) fn hit(&mut self, id: &str) {
        let counter = self.engine.entity::<Counter>(id);
        let mut ask: Ask = Box::pin(async move { counter.ask(Command::Hit {}).await.is_ok() });
        assert!(ask.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.asks.push(ask);
    }

    pub(crate) fn poll_committer(&mut self) {
        self.polled = self.woken.0.load(SeqCst);
        let waker = Waker::from(self.woken.clone());
        let committer = self.committer.as_mut().unwrap();
        assert!(committer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }

    /// Polls the committer until it has no more wake-ups.
    pub(crate) fn poll_woken_committer(&mut self) {
        while self.polled < self.woken.0.load(SeqCst) {
            self.poll_committer();
        }
    }

    /// Ends the loop.
    pub(crate) fn end(&mut self) {
        self.committer = None;
    }

    pub(crate) fn check_that_all_are_answered(&mut self) {
        for mut ask in self.asks.drain(..) {
            let answered = ask.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(answered, Poll::Ready(true));
        }
    }
}
