//! The buffer of spans, and the thread that sends it.

use crate::{
    encode,
    send::{Collector, Refused, UrlError},
};
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use std::{
    cell::RefCell,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use throng::spans::{Span, SpanSink};

/// Attempts to send a batch, and the pause after the first; each pause doubles the one before.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// The time between two warnings of spans that are lost.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The settings of an [`Exporter`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service's name, as traces show it.
    pub service: String,
    /// The service's version, if that is shown.
    pub version: Option<String>,
    /// Bytes of spans that wait to be sent; as many again may be on their way.
    pub bytes_max: usize,
    /// The time between two batches, unless the buffer is half full before.
    pub every: Duration,
}

impl Settings {
    /// The defaults, for a service of this name.
    #[must_use]
    pub fn of(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            version: None,
            bytes_max: 4 << 20,
            every: Duration::from_secs(1),
        }
    }
}

/// Sends spans to a collector, from a thread of its own. Dropped, it sends what is there, tries once, and ends.
#[derive(Debug)]
pub struct Exporter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// Tells the thread of a buffer that is half full, of a flush, and of the end.
    to_send: Condvar,
    /// Tells who flushes that a batch was sent or dropped.
    has_sent: Condvar,
    bytes_max: usize,
    exported: Counter,
    dropped: Counter,
}

/// The spans that wait. Callers add to it; the thread takes it whole.
#[derive(Debug, Default)]
struct Buffer {
    /// Encoded spans, one after the other.
    spans: Vec<u8>,
    count: u64,
    /// The spans that were added since the start, and those of them that were sent or dropped.
    added: u64,
    settled: u64,
    /// Somebody waits for all that was added.
    is_flushed: bool,
    is_over: bool,
}

impl Exporter {
    /// Starts one with the default [`Settings`], to this address of a collector: `http://HOST:PORT`.
    ///
    /// # Errors
    /// [`UrlError`] of an address that is none, or the thread cannot be started.
    pub fn start(url: &str, service: impl Into<String>) -> io::Result<Self> {
        Self::start_with(url, Settings::of(service))
    }

    /// Works like [`start`](Self::start), with these settings.
    ///
    /// # Errors
    /// [`UrlError`] of an address that is none, or the thread cannot be started.
    pub fn start_with(url: &str, settings: Settings) -> io::Result<Self> {
        let invalid = |why: UrlError| io::Error::new(io::ErrorKind::InvalidInput, why);
        let collector = Collector::of(url).map_err(invalid)?;
        let shared = Arc::new(Shared {
            buffer: Mutex::default(),
            to_send: Condvar::new(),
            has_sent: Condvar::new(),
            bytes_max: settings.bytes_max,
            exported: Counter::default(),
            dropped: Counter::default(),
        });
        let name = Some(("service.name", settings.service));
        let version = settings.version.map(|version| ("service.version", version));
        let mut sender = Sender {
            shared: Arc::clone(&shared),
            collector,
            url: url.into(),
            resource: name.into_iter().chain(version).collect(),
            every: settings.every,
            losses: Losses::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("throng-otlp".into());
        thread.spawn(move || sender.run(&runtime))?;
        Ok(Self(shared))
    }

    /// Adds the counts of spans that were exported and dropped to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Spans that the collector has taken";
        registry.register("throng_spans_exported", help, self.0.exported.clone());
        let help = "Spans that found no room, or that the collector has not taken";
        registry.register("throng_spans_dropped", help, self.0.dropped.clone());
    }

    /// Returns the number of spans that the collector has taken.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.0.exported.get()
    }

    /// Returns the number of spans that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.get()
    }

    /// Has all spans sent that were added before, and waits for it, but no longer than this. Blocks the thread. Returns true if they were
    /// sent or dropped.
    pub fn flush(&self, longest: Duration) -> bool {
        let mut buffer = self.0.lock();
        let upto = buffer.added;
        buffer.is_flushed = true;
        self.0.to_send.notify_all();
        let waits = |buffer: &mut Buffer| buffer.settled < upto;
        let waited = self.0.has_sent.wait_timeout_while(buffer, longest, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl SpanSink for Exporter {
    fn take(&self, span: &Span<'_>) {
        thread_local! {
            /// Room to encode a span before the lock is taken.
            static ENCODED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        ENCODED.with_borrow_mut(|encoded| {
            encoded.clear();
            encode::span(encoded, span);
            self.0.add(encoded);
        });
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.to_send.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, span: &[u8]) {
        let mut buffer = self.lock();
        if buffer.spans.len() + span.len() > self.bytes_max {
            drop(buffer);
            self.dropped.inc();
            return;
        }
        let half = self.bytes_max / 2;
        let was_below = buffer.spans.len() < half;
        buffer.spans.extend_from_slice(span);
        buffer.count += 1;
        buffer.added += 1;
        if was_below && buffer.spans.len() >= half {
            self.to_send.notify_all();
        }
    }
}

/// The thread that sends.
struct Sender {
    shared: Arc<Shared>,
    collector: Collector,
    url: String,
    resource: Vec<(&'static str, String)>,
    every: Duration,
    losses: Losses,
}

/// Spans that were lost, as far as the log was told.
#[derive(Default)]
struct Losses {
    told: u64,
    at: Option<Instant>,
}

impl Sender {
    fn run(&mut self, runtime: &tokio::runtime::Runtime) {
        while let Some((spans, count)) = self.next() {
            let body = encode::request(&spans, &self.resource);
            drop(spans);
            let why = if count > 0 {
                self.send(runtime, body.into()).err()
            } else {
                None
            };
            let counter = if why.is_none() {
                &self.shared.exported
            } else {
                &self.shared.dropped
            };
            counter.inc_by(count);
            self.shared.lock().settled += count;
            self.shared.has_sent.notify_all();
            self.warn(why.as_deref());
        }
    }

    /// Waits for the next batch; it may be empty. `None`: the exporter is dropped, and all was sent.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let half = self.shared.bytes_max / 2;
        let waits = |buffer: &mut Buffer| !buffer.is_over && !buffer.is_flushed && buffer.spans.len() < half;
        let buffer = self.shared.lock();
        let waited = self.shared.to_send.wait_timeout_while(buffer, self.every, waits);
        let (mut buffer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if buffer.is_over && buffer.count == 0 {
            return None;
        }
        buffer.is_flushed = false;
        let count = std::mem::take(&mut buffer.count);
        Some((std::mem::take(&mut buffer.spans), count))
    }

    fn send(&self, runtime: &tokio::runtime::Runtime, body: bytes::Bytes) -> Result<(), String> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let why = match runtime.block_on(self.collector.send(body.clone())) {
                Ok(()) => return Ok(()),
                Err(Refused::ForGood(why)) => return Err(why),
                Err(Refused::ForNow(why)) => why,
            };
            if attempt == ATTEMPTS {
                return Err(why);
            }
            // The end waits for no second attempt.
            let is_over = |buffer: &mut Buffer| !buffer.is_over;
            let waited = self
                .shared
                .to_send
                .wait_timeout_while(self.shared.lock(), pause, is_over);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return Err(why);
            }
            pause *= 2;
            attempt += 1;
        }
    }

    /// Warns of lost spans, once a minute.
    fn warn(&mut self, why: Option<&str>) {
        let lost = self.shared.dropped.get();
        let is_due = self.losses.at.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if lost == self.losses.told || !is_due {
            return;
        }
        let (url, more) = (&self.url, lost - self.losses.told);
        match why {
            Some(why) => tracing::warn!("{more} spans were dropped: the collector at {url} does not take them: {why}"),
            None => tracing::warn!("{more} spans were dropped: the collector at {url} is too slow for them"),
        }
        self.losses = Losses {
            told: lost,
            at: Some(Instant::now()),
        };
    }
}
