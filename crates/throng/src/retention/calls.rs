//! The outside calls of an erased entity. Their requests and answers are its data, and are erased with it.

use super::Retention;
use crate::executor::now_or_later;
use throng_core::{model::CallsOf, shard::ended_row};
use throng_journal::{Address, Error};

/// Calls that are read from the store at a time.
const PAGE: usize = 256;
/// The number of a call's events among which its first one is searched: a line may admit the call before it begins.
const FIRST_EVENTS: usize = 4;
const FIRST_BYTES: usize = 1 << 20;

/// Returns the calls of an entity and their lines, as of the last checkpoints.
pub(super) async fn calls_of(retention: &Retention, caller: &Address) -> Result<Vec<Address>, Error> {
    let (context, calls) = (retention.context(), CallsOf::new(&caller.kind, &caller.id));
    let (prefix, line) = (calls.prefix(), calls.line().to_string());
    let mut found = Vec::new();
    for kind in context.registry.kinds().iter().filter(|kind| kind.is_internal) {
        let mut after = prefix.clone();
        loop {
            let heads = context.store.entities(kind.name, Some(&after), PAGE).await?;
            let is_last = heads.len() < PAGE;
            let like = heads.into_iter().take_while(|head| head.id.starts_with(&prefix));
            let like: Vec<_> = like.map(|head| head.id).collect();
            let is_end = is_last || like.len() < PAGE;
            for id in &like {
                let call = Address::new(kind.name, &**id);
                let first = context.store.history(&call, 0, FIRST_EVENTS, FIRST_BYTES).await?;
                if **id == *line || calls.has_made(&first) {
                    found.push(call);
                }
            }
            match like.last() {
                Some(last) if !is_end => after = last.to_string(),
                _ => break,
            }
        }
    }
    for call in found.iter().filter(|call| *call.id != *line) {
        if now_or_later(context.store.system(&ended_row(call))).await?.is_none() {
            tracing::warn!(
                "{call} of {caller} is open, and is erased with it: no outcome is told, and what its provider did is not known"
            );
        }
    }
    Ok(found)
}
