//! `GET /admin/cluster/nodes`: all nodes of the cluster, with their states and the possible actions.

use super::action::{Action, encoded};
use crate::server::Shared;
use serde_json::Value;

/// Returns the report of the cluster, each node with its figures and its actions; `None` without a cluster.
pub(super) async fn nodes(shared: &Shared) -> Option<Value> {
    let control = shared.console.about.cluster.as_ref()?;
    let (mut report, told) = (control.report(), control.nodes().await);
    let (me, of_me) = (report["node"].clone(), shared.console.now());
    let serving = serving(&report);
    for node in report["nodes"].as_array_mut().into_iter().flatten() {
        let told_of_it = &told[node["node"].to_string()];
        node["now"] = match node["node"] == me {
            true => of_me.clone(),
            false => told_of_it["now"].clone(),
        };
        node["console"] = told_of_it["console"].clone();
        node["actions"] = actions(node, &serving).iter().map(Action::shown).collect();
    }
    Some(report)
}

/// The names of the nodes that may be given shards.
fn serving(report: &Value) -> Vec<String> {
    let nodes = report["nodes"].as_array().into_iter().flatten();
    let serving = nodes.filter(|node| node["state"] == "serving" && node["wants_drain"] == false);
    serving
        .filter_map(|node| Some(node["name"].as_str()?.to_owned()))
        .collect()
}

fn actions(node: &Value, serving: &[String]) -> Option<Action> {
    let lives = node["state"] == "serving" || node["state"] == "draining";
    let name = node["name"].as_str().filter(|_| lives)?;
    let path = |what: &str| format!("/admin/cluster/{what}?name={}", encoded(name));
    if node["wants_drain"] == true {
        let confirm = format!("{name} may own shards again, and is given its share of them.");
        return Some(Action::new("undrain", "Undrain", path("undrain")).confirm(confirm));
    }
    let others: Vec<&str> = serving
        .iter()
        .map(String::as_str)
        .filter(|other| *other != name)
        .collect();
    let gives = match others.is_empty() {
        true => format!(
            "No other node serves: {name} keeps its {} shards until one does.",
            node["owns"]
        ),
        false => format!("{name} gives its {} shards to {}.", node["owns"], others.join(", ")),
    };
    let confirm = format!(
        "{gives} It goes on taking requests, which the others answer. It holds for the name, also when the node starts again."
    );
    Some(Action::new("drain", "Drain", path("drain")).confirm(confirm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn last_serving_node_is_told_to_keep_its_shards() {
        let node = |name: &str, state: &str, wants_drain: bool| json!({ "name": name, "state": state, "wants_drain": wants_drain, "owns": 128 });
        let confirm = |nodes: &[Value], at: usize| {
            let serving = serving(&json!({ "nodes": nodes }));
            actions(&nodes[at], &serving).map(|action| action.shown()["confirm"].to_string())
        };
        let two = [node("a", "serving", false), node("b", "serving", false)];
        assert!(confirm(&two, 0).unwrap().contains("a gives its 128 shards to b."));
        let drained = [node("a", "serving", false), node("b", "draining", true)];
        assert!(
            confirm(&drained, 0)
                .unwrap()
                .contains("No other node serves: a keeps its 128 shards")
        );
        assert!(confirm(&drained, 1).unwrap().contains("may own shards again"));
        assert_eq!(confirm(&[node("a", "left", false)], 0), None);
    }
}
