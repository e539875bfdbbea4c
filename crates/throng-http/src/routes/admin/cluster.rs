//! `POST /admin/cluster/…`: operator actions on the nodes of a cluster.

use crate::{
    console_state::Cluster,
    problem::{Answered, Problem},
    request::query,
    server::Server,
};
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};
use throng::journal::{Error, ShardSet};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainQuery {
    name: String,
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    _reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinQuery {
    shards: String,
    /// The node that they are pinned to; none ends what they are pinned by.
    to: Option<String>,
    /// The reason, in the operator's words, for the audit.
    #[serde(default, rename = "reason")]
    _reason: String,
}

fn of<'a>(server: &'a Server, parts: &Parts) -> Answered<&'a dyn Cluster> {
    let cluster = server.shared().console.about.cluster.as_deref();
    cluster.ok_or_else(|| Problem::unknown_route(parts.uri.path()).boxed())
}

fn refused(why: Error, field: &'static str) -> Box<Problem> {
    match why {
        Error::Refused(why) => Problem::malformed(format!("{why}.")).at_field(field).boxed(),
        why => Problem::of_journal("The cluster could not be told.", &why).boxed(),
    }
}

/// Has a node give away its shards, or own some again.
pub(super) async fn drain(server: &Server, parts: &Parts, drain: bool) -> Answered<Value> {
    let cluster = of(server, parts)?;
    let DrainQuery { name, .. } = query::read(parts.uri.query())?;
    match cluster.drain(&name, drain).await {
        Ok(true) => Ok(json!({ "asked": name })),
        Ok(false) => Err(Problem::malformed(format!("There is no node {name:?} that lives."))
            .at_field("name")
            .boxed()),
        Err(why) => Err(refused(why, "name")),
    }
}

/// Pins shards to a node, or to none.
pub(super) async fn pin(server: &Server, parts: &Parts) -> Answered<Value> {
    let cluster = of(server, parts)?;
    let PinQuery { shards, to, .. } = query::read(parts.uri.query())?;
    let set: ShardSet = shards.parse().map_err(|why| {
        let detail = format!("shards is {shards:?}: {why}. Write numbers and ranges: 0-9,17.");
        Problem::malformed(detail).at_field("shards").boxed()
    })?;
    match cluster.pin(&set, to.as_deref()).await {
        Ok(()) => Ok(json!({ "pinned": set.to_string(), "to": to })),
        Err(why) => Err(refused(why, "shards")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_and_pin_take_a_reason_as_every_action_does() {
        assert!(query::read::<DrainQuery>(Some("name=a&reason=it+is+slow")).is_ok());
        assert!(query::read::<PinQuery>(Some("shards=0-9&reason=it+is+slow")).is_ok());
        assert!(query::read::<DrainQuery>(Some("name=a&because=x")).is_err());
    }
}
