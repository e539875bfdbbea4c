//! Spans of requests, batches, commits, messages and projections, for an exporter of traces.
//!
//! A [`Tracer`] decides which work is traced and hands finished spans to a [`SpanSink`]. An engine without a tracer
//! only checks at each place whether it has one.

mod gathered;

pub(crate) use gathered::{Gathered, TracedCommits};
pub use throng_core::trace_context::{NoTraceContext, TraceContext};

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The most unsampled spans exported in a second because they were slow or refused, so that a surge of refusals does not displace other
/// spans.
const LATE_PER_SECOND: u64 = 100;

/// Takes spans that are over.
pub trait SpanSink: Send + Sync + 'static {
    /// Takes a span. It is called on event loops and under a shard's lock, so it must not block; it drops the span instead.
    fn take(&self, span: &Span<'_>);
}

/// A piece of work that is over.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// The kind of work, without ids.
    pub name: &'a str,
    /// The part the work has between caller and callee.
    pub kind: SpanKind,
    /// The ids of its trace and of itself.
    pub context: TraceContext,
    /// The span it is a part of.
    pub parent: Option<u64>,
    /// Its beginning, microseconds since 1970-01-01 UTC.
    pub begun_micros: i64,
    /// Its end, microseconds since 1970-01-01 UTC.
    pub ended_micros: i64,
    /// Names and values that collectors show and search by.
    pub attributes: &'a [(&'static str, Attribute<'a>)],
    /// The spans of other work that this work was done for.
    pub links: &'a [TraceContext],
    /// The number of links left out.
    pub links_dropped: u32,
    /// True if the work failed or was refused.
    pub is_failed: bool,
}

/// The part that a span's work has between caller and callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of the service's own.
    Internal,
    /// An answer to a client.
    Server,
    /// A message that was taken.
    Consumer,
    /// A request to another service.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// A text, exported as it is.
    Text(&'a str),
    /// A whole number.
    Number(i64),
}

/// The choice of the work that is traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceOptions {
    /// The part of the requests without a parent that is traced, 0 to 1. If there is a parent, its flag decides.
    pub ratio: f64,
    /// Work that takes this long is traced in any case.
    pub slow: Duration,
    /// Spans name entities by their ids, which may be personal data.
    pub names_ids: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            ratio: 0.01,
            slow: Duration::from_millis(500),
            names_ids: false,
        }
    }
}

/// Decides which work is traced, and hands on its spans.
pub struct Tracer {
    sink: Arc<dyn SpanSink>,
    /// Random numbers of 63 bits below this one are sampled.
    threshold: u64,
    slow_micros: u64,
    names_ids: bool,
    /// The second in which unsampled spans were exported last, and their number in it. Any exporting thread writes both. Two threads that
    /// begin a second at once may let a few more through.
    late_second: AtomicU64,
    late_count: AtomicU64,
}

impl Tracer {
    /// Hands the spans of the chosen work to this sink.
    #[must_use]
    pub fn new(sink: Arc<dyn SpanSink>, options: TraceOptions) -> Self {
        Self {
            sink,
            threshold: (options.ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64,
            slow_micros: u64::try_from(options.slow.as_micros()).unwrap_or(u64::MAX),
            names_ids: options.names_ids,
            late_second: AtomicU64::new(0),
            late_count: AtomicU64::new(0),
        }
    }

    /// Begins a span if its trace is sampled: by the parent's flag, or by the ratio if there is no parent.
    #[must_use]
    pub fn begin(&self, parent: Option<TraceContext>) -> Option<TraceContext> {
        match parent {
            Some(parent) => parent.is_sampled.then(|| parent.with_span(random())),
            None => self.begin_root(),
        }
    }

    /// Begins a trace, if the ratio samples it.
    fn begin_root(&self) -> Option<TraceContext> {
        let low = random();
        // The same bits as in OpenTelemetry's `TraceIdRatioBased`, so that services with the same ratio choose the same traces.
        if low >> 1 >= self.threshold {
            return None;
        }
        root(low)
    }

    /// Begins the span of finished work that was not sampled, if it was slow or refused and the second's limit permits.
    #[must_use]
    pub fn begin_late(&self, parent: Option<TraceContext>, took_micros: u64, is_refused: bool) -> Option<TraceContext> {
        if !is_refused && !self.is_slow(took_micros) {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if !self.has_room_for_late(now.as_secs()) {
            return None;
        }
        match parent {
            Some(parent) => Some(parent.with_span(random())),
            None => root(random()),
        }
    }

    fn has_room_for_late(&self, second: u64) -> bool {
        if self.late_second.swap(second, Ordering::Relaxed) != second {
            self.late_count.store(0, Ordering::Relaxed);
        }
        self.late_count.fetch_add(1, Ordering::Relaxed) < LATE_PER_SECOND
    }

    /// Returns true if the time is that of slow work.
    pub(crate) fn is_slow(&self, took_micros: u64) -> bool {
        took_micros >= self.slow_micros
    }

    /// Exports the span of finished internal work that was not sampled, if it was slow.
    pub(crate) fn export_late(
        &self,
        name: &str,
        took_micros: u64,
        now_micros: i64,
        attributes: &[(&'static str, Attribute<'_>)],
    ) {
        if let Some(context) = self.begin_late(None, took_micros, false) {
            self.export(&Span {
                name,
                kind: SpanKind::Internal,
                context,
                parent: None,
                begun_micros: now_micros.saturating_sub(took_micros.cast_signed()),
                ended_micros: now_micros,
                attributes,
                links: &[],
                links_dropped: 0,
                is_failed: false,
            });
        }
    }

    /// Returns true if spans name entities by their ids.
    #[must_use]
    pub fn names_ids(&self) -> bool {
        self.names_ids
    }

    /// Hands on a span that is over.
    pub fn export(&self, span: &Span<'_>) {
        self.sink.take(span);
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tracer").finish_non_exhaustive()
    }
}

/// A sampled trace with this lower half of its id.
fn root(low: u64) -> Option<TraceContext> {
    let trace = u128::from(random()) << 64 | u128::from(low);
    TraceContext::new(trace, random().max(1), true)
}

/// A random number, which somebody may guess: ids of spans are no secrets.
fn random() -> u64 {
    thread_local! {
        /// The state of this thread's generator, SplitMix64.
        static STATE: Cell<u64> = Cell::new(rand::random());
    }
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl SpanSink for Nowhere {
        fn take(&self, _: &Span<'_>) {}
    }

    fn tracer(ratio: f64) -> Tracer {
        let options = TraceOptions {
            ratio,
            slow: Duration::from_millis(1),
            names_ids: false,
        };
        Tracer::new(Arc::new(Nowhere), options)
    }

    #[test]
    fn ratio_samples_roots_and_parents_decide_for_their_parts() {
        let sampled = |ratio| (0..10_000).filter(|_| tracer(ratio).begin(None).is_some()).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((50..400).contains(&sampled(0.02)));
        let parent = |flags: &str| {
            let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            text.parse::<TraceContext>().ok()
        };
        let begun = tracer(0.0).begin(parent("01")).unwrap();
        let parent_context = parent("01").unwrap();
        assert_eq!(begun.trace(), parent_context.trace());
        assert!(begun.is_sampled && begun.span != parent_context.span);
        assert_eq!(tracer(1.0).begin(parent("00")), None);
    }

    #[test]
    fn slow_or_refused_work_is_traced_up_to_a_number_a_second() {
        let tracer = tracer(0.0);
        assert_eq!(tracer.begin_late(None, 999, false), None);
        assert!(tracer.begin_late(None, 1_000, false).is_some());
        assert!(tracer.begin_late(None, 0, true).is_some());
        let late = |second| (0..1_000).filter(|_| tracer.has_room_for_late(second)).count();
        assert_eq!((late(5), late(5), late(6)), (100, 0, 100));
    }
}
