//! The map: kinds, entities, families and hot entities; for a handful and for a million.

use crate::{
    problem::{Answered, Problem, engine_problem},
    request::query,
    server::Shared,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use throng::{
    Filter, MatchRange,
    inspect::{ChildrenPage, Glance, HotEntity, Inspect, Whereabouts},
    journal::Address,
};

/// The most hot entities that are read, so that each is marked where it is listed.
const HOT_MAX: usize = 1_000;
const GROUPS_MAX: usize = 100;
/// Members that are told of a list that entities are filtered by.
const MEMBERS_MAX: usize = 10;
/// Entities that are read at once on the way to those that begin with a prefix.
const STEP: usize = 200;

/// A page of children.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    #[serde(default = "page")]
    limit: usize,
}

/// A page of entities of a kind, all or those that a filter matches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntitiesQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    #[serde(default = "page")]
    limit: usize,
    #[serde(rename = "where")]
    filter: Option<String>,
    /// A text that one of the fields is, or has in its list.
    holds: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupsQuery {
    #[serde(default)]
    prefix: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HotQuery {
    kind: Option<String>,
    #[serde(default = "hot_page")]
    limit: usize,
}

fn page() -> usize {
    crate::limits::PAGE_DEFAULT
}

fn hot_page() -> usize {
    50
}

/// The rates of recently busy entities, by kind and id.
struct Heat(HashMap<(usize, Box<str>), f64>);

impl Heat {
    async fn of(shared: &Shared) -> Self {
        // Without a running engine nothing is hot.
        let hot = shared.engine.hot(HOT_MAX).await.unwrap_or_default();
        let hot = hot.into_iter().map(|hot| {
            let rate = per_second(&hot);
            ((hot.kind, hot.id), rate)
        });
        Self(hot.collect())
    }

    fn get(&self, kind: usize, id: &str) -> f64 {
        self.0.get(&(kind, id.into())).copied().unwrap_or(0.0)
    }

    fn of_kind(&self, kind: usize) -> f64 {
        self.0
            .iter()
            .filter(|((own, _), _)| *own == kind)
            .map(|(_, rate)| rate)
            .sum::<f64>()
            + 0.0
    }
}

fn per_second(hot: &HotEntity) -> f64 {
    (hot.seen_per_second * throng::SAMPLED_ONE_IN as f64).round()
}

/// Hot entities as they are shown.
pub(super) fn shown(shared: &Shared, hot: &[HotEntity], limit: usize) -> Vec<Value> {
    let kinds = shared.engine.registry().kinds();
    let shown = hot.iter().filter(|hot| per_second(hot) > 0.0).take(limit);
    let shown = shown.filter_map(|hot| {
        let kind = kinds.get(hot.kind)?.name;
        Some(json!({ "kind": kind, "id": hot.id, "per_second": per_second(hot) }))
    });
    shown.collect()
}

/// Returns a kind by its name, even one without routes.
pub(crate) fn kind(shared: &Shared, name: &str) -> Answered<usize> {
    shared.engine.kind(name).ok_or_else(|| {
        let names: Vec<&str> = shared.engine.registry().kinds().iter().map(|kind| kind.name).collect();
        Problem::unknown_kind(name, &names).boxed()
    })
}

/// Returns entities that take no messages now, by their addresses.
fn stuck(shared: &Shared) -> Vec<Address> {
    let stuck = shared.engine.stuck().into_iter();
    stuck.map(|entity| entity.address).collect()
}

pub(super) async fn map(shared: &Shared) -> Answered<Value> {
    let engine = &shared.engine;
    let populations = engine.populations().await.map_err(engine_problem)?;
    let (heat, stuck) = (Heat::of(shared).await, stuck(shared));
    let kinds = engine.registry().kinds().iter().zip(&populations).enumerate();
    let kinds = kinds.map(|(at, (kind, population))| {
        let stuck = stuck.iter().filter(|address| &*address.kind == kind.name).count();
        json!({
            "name": kind.name, "entities": population.known, "entities_exact": false, "resident": population.resident,
            "quarantined": population.quarantined, "stuck": stuck, "per_second": heat.of_kind(at),
        })
    });
    let hot = engine.hot(hot_page()).await.map_err(engine_problem)?;
    Ok(json!({ "kinds": kinds.collect::<Vec<_>>(), "hot": shown(shared, &hot, hot_page()) }))
}

pub(super) async fn hot(shared: &Shared, asked: HotQuery) -> Answered<Value> {
    let limit = query::limit(asked.limit)?;
    let of = asked.kind.as_deref().map(|name| kind(shared, name)).transpose()?;
    let mut hot = shared.engine.hot(HOT_MAX).await.map_err(engine_problem)?;
    hot.retain(|hot| of.is_none_or(|of| hot.kind == of));
    // An empty sum is -0.0.
    let all = hot.iter().map(per_second).sum::<f64>() + 0.0;
    let mut shown = shown(shared, &hot, limit);
    for hot in &mut shown {
        let share = hot["per_second"].as_f64().unwrap_or(0.0) / all.max(1.0);
        hot["share"] = json!((share * 1e4).round() / 1e4);
    }
    Ok(json!({ "hot": shown, "per_second": all }))
}

pub(super) async fn shards(shared: &Shared) -> Answered<Value> {
    let shards = shared.engine.shards().await.map_err(engine_problem)?;
    let shards = shards.iter().map(|now| {
        json!({
            "shard": now.shard.0, "resident": now.load.entities, "bytes": now.load.bytes,
            "pending_bytes": now.load.pending_bytes, "timers": now.load.timers, "done": now.done,
        })
    });
    Ok(json!({ "shards": shards.collect::<Vec<_>>() }))
}

/// Returns the entities of a kind with a prefix, after an id, in order.
async fn beginning(
    shared: &Shared,
    kind: usize,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Answered<Vec<(Box<str>, u64)>> {
    let mut found = Vec::new();
    let mut at: Option<Box<str>> = begin(prefix, after).map(Into::into);
    loop {
        let step = limit.max(STEP);
        let heads = shared
            .engine
            .entities(kind, at.as_deref(), step)
            .await
            .map_err(engine_problem)?;
        let is_last = heads.len() < step;
        for head in heads {
            if head.id.starts_with(prefix) {
                found.push((head.id, head.seq));
                if found.len() >= limit {
                    return Ok(found);
                }
            } else if &*head.id > prefix {
                return Ok(found);
            } else {
                at = Some(head.id);
                continue;
            }
            at = found.last().map(|(id, _)| id.clone());
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// An id before all that begin with a prefix and come after another id, and close to them; `None`: before all ids.
fn begin(prefix: &str, after: Option<&str>) -> Option<String> {
    // The prefix without its last letter sorts before all ids that begin with the prefix.
    let shorter = || prefix.chars().take(prefix.chars().count().saturating_sub(1)).collect();
    match after {
        Some(after) if after >= prefix => Some(after.into()),
        _ if prefix.is_empty() => None,
        _ => Some(just_before(prefix).unwrap_or_else(shorter)),
    }
}

/// A text before this one with nothing that anybody uses between them.
fn just_before(prefix: &str) -> Option<String> {
    let mut letters: Vec<char> = prefix.chars().collect();
    let last = letters.pop()?;
    let before = (0..u32::from(last)).rev().find_map(char::from_u32)?;
    letters.extend([before, char::MAX, char::MAX]);
    Some(letters.into_iter().collect())
}

fn state(glance: Option<&Glance>, is_stuck: bool) -> &'static str {
    match glance.map(|glance| glance.whereabouts) {
        _ if is_stuck => "stuck",
        Some(Whereabouts::Resident) => "resident",
        Some(Whereabouts::Quarantined) => "quarantined",
        Some(Whereabouts::Gone) => "ended",
        Some(Whereabouts::Passivated) | None => "passivated",
    }
}

fn named(address: &(String, String)) -> Value {
    json!({ "kind": address.0, "id": address.1 })
}

/// Describes these entities, each with its last event if known.
async fn nodes(shared: &Shared, of: &[(usize, &str, Option<u64>)]) -> Answered<Vec<Value>> {
    let engine = &shared.engine;
    let asked: Vec<(usize, &str)> = of.iter().map(|(kind, id, _)| (*kind, *id)).collect();
    let glances = engine.glances(&asked).await.map_err(engine_problem)?;
    let (heat, stuck) = (Heat::of(shared).await, stuck(shared));
    let kinds = engine.registry().kinds();
    let nodes = of.iter().zip(&glances).map(|((kind, id, seq), glance)| {
        let name = kinds[*kind].name;
        let is_stuck = stuck
            .iter()
            .any(|address| &*address.kind == name && &*address.id == *id);
        let in_memory = glance.as_ref().map(|glance| glance.seq).filter(|seq| *seq > 0);
        json!({
            "kind": name, "id": id, "seq": in_memory.max(*seq), "state": state(glance.as_ref(), is_stuck),
            "per_second": heat.get(*kind, id), "children": glance.as_ref().and_then(|glance| glance.children),
            "parent": glance.as_ref().and_then(|glance| glance.parent.as_ref()).map(named),
        })
    });
    Ok(nodes.collect())
}

pub(super) async fn entities(shared: &Shared, name: &str, asked: EntitiesQuery) -> Answered<Value> {
    let (kind, limit) = (kind(shared, name)?, query::limit(asked.limit)?);
    if asked.filter.is_some() || asked.holds.is_some() {
        let begin = begin(&asked.prefix, asked.after.as_deref());
        let range = MatchRange {
            prefix: &asked.prefix,
            after: begin.as_deref(),
            limit,
        };
        return matches(shared, kind, (asked.filter.as_deref(), asked.holds.as_deref()), range).await;
    }
    let found = beginning(shared, kind, &asked.prefix, asked.after.as_deref(), limit).await?;
    let next = (found.len() >= limit).then(|| found.last().map(|(id, _)| id.clone()));
    let of: Vec<_> = found.iter().map(|(id, seq)| (kind, &**id, Some(*seq))).collect();
    Ok(json!({ "entities": nodes(shared, &of).await?, "next": next.flatten() }))
}

/// The entities that a filter matches, each with the values of its indexed fields.
async fn matches(
    shared: &Shared,
    kind: usize,
    (filter, holds): (Option<&str>, Option<&str>),
    range: MatchRange<'_>,
) -> Answered<Value> {
    let names = &shared.engine.registry().kinds()[kind].indexed;
    let mut filter = Filter::read(filter.unwrap_or_default(), names).map_err(|why| {
        Problem::malformed(format!("where cannot be read: {why}."))
            .at_field("where")
            .boxed()
    })?;
    if let Some(text) = holds {
        filter = filter.holding(text);
    }
    let page = shared
        .engine
        .matches(kind, &filter, range)
        .await
        .map_err(engine_problem)?;
    let of: Vec<_> = page
        .found
        .iter()
        .map(|found| (kind, &*found.head.id, Some(found.head.seq)))
        .collect();
    let mut entities = nodes(shared, &of).await?;
    for (node, found) in entities.iter_mut().zip(page.found) {
        let fields = found.fields.into_iter().map(shortened);
        node["fields"] = names.iter().map(ToString::to_string).zip(fields).collect();
    }
    Ok(json!({ "entities": entities, "next": page.next, "examined": page.examined, "unknown": page.unknown }))
}

/// A field's value, of a list the first members.
fn shortened(mut value: Value) -> Value {
    if let Value::Array(members) = &mut value {
        members.truncate(MEMBERS_MAX);
    }
    value
}

/// Returns the groups of ids after a prefix. Skips from one group to the next without reading the rest of it.
pub(super) async fn groups(shared: &Shared, name: &str, asked: GroupsQuery) -> Answered<Value> {
    let (kind, prefix) = (kind(shared, name)?, asked.prefix);
    let mut groups: BTreeMap<String, (Box<str>, bool)> = BTreeMap::new();
    let mut at: Option<String> = None;
    let mut is_more = false;
    loop {
        let Some((first, _)) = beginning(shared, kind, &prefix, at.as_deref(), 1).await?.pop() else {
            break;
        };
        if groups.len() >= GROUPS_MAX {
            is_more = true;
            break;
        }
        let Some(letter) = first[prefix.len()..].chars().next() else {
            groups.insert(first.to_string(), (first.clone(), true));
            at = Some(first.into());
            continue;
        };
        // A single id takes one step, and so do all ids with the same next letter.
        let group = format!("{prefix}{letter}");
        let two = beginning(shared, kind, &group, None, 2).await?;
        let is_leaf = two.len() == 1;
        let shown = if is_leaf { first.to_string() } else { group.clone() };
        groups.insert(shown, (first, is_leaf));
        at = Some(format!("{group}{}{}", char::MAX, char::MAX));
    }
    let groups = groups.into_iter();
    let groups =
        groups.map(|(prefix, (first, is_leaf))| json!({ "prefix": prefix, "first": first, "is_leaf": is_leaf }));
    Ok(json!({ "groups": groups.collect::<Vec<_>>(), "more": is_more }))
}

pub(super) async fn children(shared: &Shared, of: (usize, &str), asked: PageQuery) -> Answered<Value> {
    let limit = query::limit(asked.limit)?;
    let after = asked.after.as_deref().map(|after| {
        let malformed = || Problem::malformed(format!("after is {after:?}; give what `next` said.")).at_field("after");
        let (kind, id) = after.split_once('/').ok_or_else(|| malformed().boxed())?;
        Ok::<_, Box<Problem>>((kind.to_owned(), id.to_owned()))
    });
    let page = ChildrenPage {
        prefix: asked.prefix,
        after: after.transpose()?,
        limit,
    };
    let wanted = Inspect {
        children: Some(page),
        ..Inspect::default()
    };
    let found = shared
        .engine
        .inspect(of.0, of.1, wanted)
        .await
        .map_err(engine_problem)?;
    // An entity whose kind this program lacks cannot be shown.
    let known = found.children_page.iter();
    let known = known.filter_map(|(kind, id)| Some((shared.engine.kind(kind)?, id.as_str(), None)));
    let children = nodes(shared, &known.collect::<Vec<_>>()).await?;
    let is_full = found.children_page.len() >= limit;
    let next = found.children_page.last().filter(|_| is_full);
    Ok(json!({
        "parent": found.parent.as_ref().map(named), "total": found.children, "children": children,
        "next": next.map(|(kind, id)| format!("{kind}/{id}")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_before_a_prefix_sorts_after_smaller_beginnings() {
        for (prefix, less) in [("CS-", "CS,zzz"), ("b", "azzzz"), ("ü", "û\u{10FFFF}"), ("S1", "S0999")] {
            let before = just_before(prefix).unwrap();
            assert!(
                before.as_str() < prefix && before.as_str() > less,
                "{prefix}: {before:?}"
            );
        }
        assert_eq!(just_before("\0"), None);
        assert_eq!(just_before("\u{E000}").as_deref(), Some("\u{D7FF}\u{10FFFF}\u{10FFFF}"));
    }
}
