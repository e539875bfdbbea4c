//! Spans of work that is done for many at once: batches and commits.

use super::{Attribute, Span, SpanKind, TraceContext, Tracer, random};
use crate::host::Host;
use std::collections::VecDeque;

/// The most links of one span; further ones are only counted.
const LINKS_MAX: usize = 128;
/// The most landed traced commits that are remembered for the projections.
const RECENT_MAX: usize = 1_024;

/// A span of work done for several requests at once. It is part of the first one's trace, and is linked to all others.
pub(crate) struct Gathered {
    pub(crate) context: TraceContext,
    parent: TraceContext,
    links: Vec<TraceContext>,
    dropped: u32,
    /// The beginning, by the host's monotonic clock.
    begun_micros: u64,
}

impl Gathered {
    pub(crate) fn of(parent: TraceContext, begun_micros: u64) -> Self {
        Self {
            context: parent.with_span(random()),
            parent,
            links: Vec::new(),
            dropped: 0,
            begun_micros,
        }
    }

    /// Links it to work, unless that is its parent.
    pub(crate) fn add(&mut self, work: TraceContext) {
        if work == self.parent || self.links.contains(&work) {
            return;
        }
        if self.links.len() < LINKS_MAX {
            self.links.push(work);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Exports the span, which ends now.
    pub(crate) fn export(
        &self,
        tracer: &Tracer,
        host: &dyn Host,
        name: &str,
        attributes: &[(&'static str, Attribute<'_>)],
    ) {
        let now_micros = host.now().micros;
        let took = host.elapsed_micros().saturating_sub(self.begun_micros).cast_signed();
        tracer.export(&Span {
            name,
            kind: SpanKind::Internal,
            context: self.context,
            parent: Some(self.parent.span),
            begun_micros: now_micros.saturating_sub(took),
            ended_micros: now_micros,
            attributes,
            links: &self.links,
            links_dropped: self.dropped,
            is_failed: false,
        });
    }
}

/// The traced work of one writer's commits.
#[derive(Default)]
pub(crate) struct TracedCommits {
    /// Commits that are open or in flight, by number, the earliest first.
    coming: VecDeque<(u64, Gathered)>,
    /// Commits that have landed, by number, the earliest first.
    landed: VecDeque<(u64, TraceContext)>,
}

impl TracedCommits {
    /// Notes that a commit holds records of traced work, which is part of `batch`.
    pub(crate) fn add(&mut self, number: u64, work: TraceContext, batch: TraceContext) {
        let place = self.coming.partition_point(|(earlier, _)| *earlier < number);
        if self.coming.get(place).is_none_or(|(found, _)| *found != number) {
            self.coming.insert(place, (number, Gathered::of(batch, 0)));
        }
        self.coming[place].1.add(work);
    }

    /// Removes and returns a commit that has landed, with the time of its append. Earlier ones that are still listed landed before they
    /// were noted, and are dropped.
    pub(crate) fn has_landed(&mut self, number: u64, begun_micros: u64) -> Option<Gathered> {
        while self.coming.front().is_some_and(|(earlier, _)| *earlier < number) {
            self.coming.pop_front();
        }
        let (_, mut gathered) = self.coming.pop_front_if(|(found, _)| *found == number)?;
        gathered.begun_micros = begun_micros;
        self.landed.push_back((number, gathered.context));
        if self.landed.len() > RECENT_MAX {
            self.landed.pop_front();
        }
        Some(gathered)
    }

    /// Returns the spans of the traced commits with these numbers.
    #[cfg(any(test, feature = "projections"))]
    pub(crate) fn between(&self, first: u64, last: u64) -> Vec<(u64, TraceContext)> {
        let from = self.landed.partition_point(|(number, _)| *number < first);
        let until = self.landed.partition_point(|(number, _)| *number <= last);
        self.landed.range(from..until.max(from)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(span: u64) -> TraceContext {
        TraceContext::new(7, span, true).unwrap()
    }

    #[test]
    fn commit_is_part_of_its_first_work_and_linked_to_others() {
        let mut commits = TracedCommits::default();
        for span in 1..=200 {
            commits.add(5, context(span), context(1));
        }
        commits.add(6, context(300), context(300));
        let commit = commits.has_landed(5, 0).unwrap();
        assert_eq!(
            (commit.parent, commit.links.len(), commit.dropped),
            (context(1), 128, 71)
        );
        assert_eq!(commits.between(1, 9), [(5, commit.context)]);
        commits.add(5, context(400), context(400));
        let next = commits.has_landed(6, 0).unwrap();
        assert_eq!((next.parent, next.links.len()), (context(300), 0));
        assert!(commits.has_landed(7, 0).is_none() && commits.coming.is_empty());
        assert_eq!(commits.between(6, 6), [(6, next.context)]);
    }
}
