//! Work that waits for an operator, counted by kind and reason: dead messages, and quarantined entities.
//!
//! Dead messages are counted in the store and in the shards, including those that died before the start. They are counted again after a
//! change, page by page. Counting takes at most a tenth of the time.

use super::dead::{DeadRows, PAGE_MAX};
use crate::{
    context::{Context, OTHER_CAUSES, Unresolved, UnresolvedWork},
    epoch::{Epoch, Epochs, signalled},
    executor::Target,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use throng_core::{
    limits,
    shard::{DeadMessage, dead_rows},
};

/// The most groups of dead messages while counting. Further ones of a kind form one group.
const COUNTED_MAX: usize = 1_000;
/// The most groups that are reported, the largest ones. Further ones of a kind form one group.
const NAMED_MAX: usize = 20;
/// Quarantined entities of a group that are named.
const ENTITIES_NAMED_MAX: usize = 3;
/// The shortest time between two counts.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two counts.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The least time between two counts, as a multiple of the time that the last one took.
const PART: u32 = 10;
/// The pause between two pages, which leaves the store and the processor to other tasks.
const PAGE_PAUSE: Duration = Duration::from_millis(2);

/// Begins to count.
pub(crate) fn start(epochs: &Arc<Epochs>) {
    epochs.context.host.spawn(Box::pin(task(Arc::downgrade(epochs))));
}

/// Counts after each start, and after each change.
async fn task(epochs: Weak<Epochs>) {
    while signalled(&epochs, |context| &context.signals.unresolved).await {
        let Some(strong) = epochs.upgrade() else { return };
        let context = strong.context.clone();
        let begun = context.host.elapsed_micros();
        match strong.running() {
            None => context.unresolved.set(Vec::new()),
            Some(epoch) => match count(&context, &epoch).await {
                Ok(counted) => context.unresolved.set(counted),
                Err(why) => {
                    tracing::debug!("dead messages cannot be counted, it is tried again: {why}");
                    context.signals.unresolved.wake();
                }
            },
        }
        let took = Duration::from_micros(context.host.elapsed_micros().saturating_sub(begun));
        let sleep = context.host.sleep((took * PART).clamp(PAUSE, PAUSE_MAX));
        drop((strong, context));
        sleep.await;
    }
}

async fn count(context: &Context, epoch: &Arc<Epoch>) -> Result<Vec<Unresolved>, String> {
    let mut groups = Groups::default();
    let (begin, mut after) = (dead_rows(None), Vec::new());
    loop {
        let rows = DeadRows {
            begin: &begin,
            after: &after,
            limit: PAGE_MAX,
        };
        let read = rows.read(context, epoch, DeadMessage::read);
        let (messages, next) = read.await.map_err(|why| why.to_string())?;
        for message in messages {
            let to = &message.receiver;
            // Each node counts the messages to its own entities.
            if epoch
                .group_commit
                .shards
                .contains(context.registry.shard_of(&to.kind, &to.id))
            {
                groups.add(&to.kind, message.cause());
            }
        }
        let Some(next) = next else { break };
        after = next;
        context.host.sleep(PAGE_PAUSE).await;
        if epoch.group_commit.is_over() {
            return Err("the journal's stream is over".into());
        }
    }
    let mut all = groups.largest(NAMED_MAX);
    load_noted(epoch).await?;
    let mut quarantined: BTreeMap<(UnresolvedWork, &str), (u64, Vec<String>)> = BTreeMap::new();
    for shard in epoch.executor.shards() {
        let look = epoch.executor.visit(shard, |shard| shard.count_quarantined());
        for of_kind in look.await.map_err(|why| why.to_string())? {
            let work = match of_kind.by_operator {
                true => UnresolvedWork::QuarantinedByOperator,
                false => UnresolvedWork::QuarantinedByProgram,
            };
            let counted = quarantined.entry((work, of_kind.kind)).or_default();
            counted.0 += of_kind.entities as u64;
            counted.1.extend(of_kind.named);
            counted.1.truncate(ENTITIES_NAMED_MAX);
        }
    }
    all.extend(
        quarantined
            .into_iter()
            .map(|((work, kind), (count, named))| Unresolved {
                work,
                kind: kind.to_owned(),
                reason: named.join("; "),
                count,
            }),
    );
    Ok(all)
}

/// Loads each entity that an earlier epoch could not load. If this program can, the note about it is removed.
async fn load_noted(epoch: &Arc<Epoch>) -> Result<(), String> {
    for shard in epoch.executor.shards() {
        let look = epoch.executor.visit(shard, |shard| shard.noted_untried());
        for (kind, address) in look.await.map_err(|why| why.to_string())? {
            let target = Target {
                kind,
                hash: limits::hash(&address.kind, &address.id),
                id: address.id.to_string().into(),
            };
            epoch.executor.load(&target).await.map_err(|why| why.to_string())?;
        }
    }
    Ok(())
}

/// Dead messages by kind and cause.
#[derive(Default)]
struct Groups(BTreeMap<(Box<str>, String), u64>);

impl Groups {
    fn add(&mut self, kind: &str, cause: String) {
        let mut group = (kind.into(), cause);
        if self.0.len() >= COUNTED_MAX && !self.0.contains_key(&group) {
            group.1 = OTHER_CAUSES.to_owned();
        }
        *self.0.entry(group).or_default() += 1;
    }

    /// Returns the largest groups, and one for the rest of each kind.
    fn largest(self, named: usize) -> Vec<Unresolved> {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut others: BTreeMap<Box<str>, u64> = BTreeMap::new();
        for ((kind, _), count) in all.split_off(named.min(all.len())) {
            *others.entry(kind).or_default() += count;
        }
        for (kind, count) in others {
            match all
                .iter_mut()
                .find(|((of, cause), _)| *of == kind && cause == OTHER_CAUSES)
            {
                Some((_, all)) => *all += count,
                None => all.push(((kind, OTHER_CAUSES.to_owned()), count)),
            }
        }
        let unresolved = all.into_iter().map(|((kind, reason), count)| Unresolved {
            work: UnresolvedWork::DeadMessage,
            kind: kind.into(),
            reason,
            count,
        });
        unresolved.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_beyond_the_named_ones_are_one_of_each_kind() {
        let mut groups = Groups::default();
        for at in 0..COUNTED_MAX + 50 {
            let cause = char::from_u32(0x4e00 + at as u32).unwrap_or_default().to_string();
            groups.add(["a", "b"][at % 2], cause.clone());
            if at < 2 {
                groups.add("a", "often".into());
            }
        }
        let named = groups.largest(3);
        let all: u64 = named.iter().map(|group| group.count).sum();
        assert_eq!((named.len(), all), (3, COUNTED_MAX as u64 + 52));
        let of = |reason: &str| {
            let of_reason = named.iter().filter(|group| group.reason == reason);
            of_reason.map(|group| (&*group.kind, group.count)).collect::<Vec<_>>()
        };
        assert_eq!((of("often"), of(OTHER_CAUSES).len()), (vec![("a", 2)], 2));
    }
}
