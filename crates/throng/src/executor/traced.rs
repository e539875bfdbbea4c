//! The traces of turns: the span each is a part of, and the spans of turns that no gateway reports.

use super::{Attempt, Executor, Work, batch};
use crate::{
    commit::Staging,
    spans::{Attribute, Span, SpanKind, TraceContext, Tracer},
};
use throng_core::shard::{Outcome, Ran};

/// The span of a turn.
#[derive(Clone, Copy)]
pub(super) struct TurnSpan {
    pub(super) context: TraceContext,
    parent: Option<u64>,
}

impl Attempt<'_> {
    /// The span of the turn, if its trace is recorded: a command's is that of its request, a message's is a part of its sender's.
    pub(super) fn span(&self, tracer: &Tracer) -> Option<TurnSpan> {
        let parent = match &self.work {
            Work::Command(_) => {
                let context = *self.trace.as_deref()?;
                return Some(TurnSpan { context, parent: None });
            }
            Work::Message(_) => Some(self.sender_span()?),
            Work::Timer(_) => None,
            _ => return None,
        };
        let context = tracer.begin(parent)?;
        let parent = parent.map(|parent| parent.span);
        Some(TurnSpan { context, parent })
    }

    fn sender_span(&self) -> Option<TraceContext> {
        match &self.work {
            Work::Message(outgoing) => outgoing.delivery.taking.trace.as_deref().copied(),
            _ => None,
        }
    }
}

impl Executor {
    /// Links a turn that was run to its batch and its commit. Exports its span, unless a gateway does.
    pub(super) fn trace_turn(
        &self,
        tracer: &Tracer,
        attempt: &Attempt<'_>,
        span: Option<TurnSpan>,
        ran: &Ran,
        staging: &Staging<'_>,
    ) {
        let begun = attempt.now;
        if let Some(span) = span
            && staging.has_staged
        {
            let batch = batch::add_traced(&self.context, span.context, begun);
            self.group_commit
                .add_traced(staging.commit, span.context, batch.unwrap_or(span.context));
        }
        let Ran::Done { outcome, .. } = ran else { return };
        let (name, command) = match &attempt.work {
            Work::Message(outgoing) => ("message", &*outgoing.delivery.taking.name),
            Work::Timer(due) => ("timer", due.command.as_ref()),
            _ => return,
        };
        if span.is_none() && *outcome == Outcome::Done {
            return;
        }
        let host = &self.context.host;
        let (took, now) = (host.elapsed_micros().saturating_sub(begun), host.now().micros);
        let span = span.or_else(|| {
            let context = tracer.begin_late(attempt.sender_span(), took, *outcome == Outcome::Failed)?;
            let parent = attempt.sender_span().map(|sender| sender.span);
            Some(TurnSpan { context, parent })
        });
        let Some(TurnSpan { context, parent }) = span else {
            return;
        };
        let commit = self.group_commit.position(staging.commit).to_string();
        let kind = self.context.registry.kinds()[attempt.target.kind].name;
        let outcome_name = match outcome {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
        };
        let mut attributes = vec![
            ("throng.kind", Attribute::Text(kind)),
            ("throng.command", Attribute::Text(command)),
            ("throng.outcome", Attribute::Text(outcome_name)),
        ];
        if staging.has_staged {
            attributes.push(("throng.commit", Attribute::Text(&commit)));
        }
        if tracer.names_ids() {
            attributes.push(("throng.id", Attribute::Text(&attempt.target.id)));
        }
        tracer.export(&Span {
            name: &format!("{name} {kind}/{command}"),
            kind: match &attempt.work {
                Work::Timer(_) => SpanKind::Internal,
                _ => SpanKind::Consumer,
            },
            context,
            parent,
            begun_micros: now.saturating_sub(took.cast_signed()),
            ended_micros: now,
            attributes: &attributes,
            links: &[],
            links_dropped: 0,
            is_failed: *outcome == Outcome::Failed,
        });
    }
}
