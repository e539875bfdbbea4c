//! Calls outside that an erased entity has made: their requests and answers are its data, and go with it.

use super::Retention;
use crate::executor::now_or_later;
use throng_core::{model::CallsOf, shard::ended_row};
use throng_journal::{Address, Error};

/// Calls that are read from the store at a time.
const PAGE: usize = 256;
/// Events of a call among which its first is looked for: a line may admit it before it begins.
const FIRST_EVENTS: usize = 4;
const FIRST_BYTES: usize = 1 << 20;

/// The calls of an entity and their lines, as the last checkpoints have them.
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
