//! The spans of attempts of calls outside.

use crate::{
    host::Host,
    spans::{Attribute, Span, SpanKind, TraceContext, Tracer},
};
use throng_core::model::{Attempt, AttemptResult, worker_of};

/// The span of an attempt under way.
pub(super) struct AttemptSpan {
    /// The span of the turn that began the call, if its trace is recorded.
    parent: Option<TraceContext>,
    /// The span, if this process records the trace.
    context: Option<TraceContext>,
    /// The beginning, by the host's clock that never goes back.
    begun_micros: u64,
}

impl AttemptSpan {
    pub(super) fn begin(tracer: Option<&Tracer>, host: &dyn Host, parent: Option<TraceContext>) -> Self {
        // A call that no recorded turn has begun begins no trace.
        let context = parent.and_then(|parent| tracer?.begin(Some(parent)));
        Self {
            parent,
            context,
            begun_micros: host.elapsed_micros(),
        }
    }

    /// Returns the context for the provider. A process that records nothing passes on the parent.
    pub(super) fn passed_on(&self) -> Option<TraceContext> {
        self.context.or(self.parent)
    }

    /// Exports the span of an attempt that ended now, if it is recorded, was slow, or came to no answer.
    pub(super) fn end(&self, tracer: &Tracer, host: &dyn Host, kind: &str, attempt: &Attempt, result: &AttemptResult) {
        let (outcome, is_failed) = match result {
            AttemptResult::Answered(_) => ("answered", false),
            AttemptResult::Failed(_) => ("failed", false),
            AttemptResult::NotSent(_) => ("not_sent", true),
            AttemptResult::InDoubt(_) => ("in_doubt", true),
        };
        let (took, now) = (
            host.elapsed_micros().saturating_sub(self.begun_micros),
            host.now().micros,
        );
        let late = || tracer.begin_late(self.parent, took, is_failed);
        let Some(context) = self.context.or_else(late) else {
            return;
        };
        let id = tracer.names_ids().then(|| attempt.key());
        let mut attributes = vec![
            ("throng.kind", Attribute::Text(kind)),
            ("throng.attempt", Attribute::Number(i64::from(attempt.number))),
            ("throng.outcome", Attribute::Text(outcome)),
        ];
        if let Some(id) = &id {
            attributes.push(("throng.id", Attribute::Text(id)));
        }
        tracer.export(&Span {
            name: &format!("call {}", worker_of(kind).unwrap_or(kind)),
            kind: SpanKind::Client,
            context,
            parent: self.parent.map(|parent| parent.span),
            begun_micros: now.saturating_sub(took.cast_signed()),
            ended_micros: now,
            attributes: &attributes,
            links: &[],
            links_dropped: 0,
            is_failed,
        });
    }
}
