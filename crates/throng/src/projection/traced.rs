//! The spans of batches that projections and sinks take.

use crate::{
    epoch::Epoch,
    host::Host,
    spans::{Attribute, Gathered, TraceContext, Tracer},
};
use throng_journal::{Commit, Position};

/// Returns the spans of those commits that this epoch has traced recently.
pub(super) fn traced(epoch: &Epoch, commits: &[Commit]) -> Vec<(Position, TraceContext)> {
    let own = || {
        commits
            .iter()
            .map(Commit::position)
            .filter(|at| at.writer == epoch.group_commit.writer)
    };
    match (own().min(), own().max()) {
        (Some(first), Some(last)) => epoch.group_commit.traced_between(first.commit.0, last.commit.0),
        _ => Vec::new(),
    }
}

/// Exports the span of a batch that was just taken. It is part of the first traced commit's trace, and linked to the others.
pub(super) fn export(
    tracer: &Tracer,
    host: &dyn Host,
    name: &str,
    begun_micros: u64,
    traced: &[(Position, TraceContext)],
) {
    let Some((_, first)) = traced.first() else { return };
    let mut span = Gathered::of(*first, begun_micros);
    for (_, commit) in traced {
        span.add(*commit);
    }
    let attributes = [("throng.projection", Attribute::Text(name))];
    span.export(tracer, host, &format!("projection {name}"), &attributes);
}
