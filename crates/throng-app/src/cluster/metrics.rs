//! A node's metrics: `throng_cluster_…`.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use throng::journal::{Node, NodeState};
use throng_cluster::Status;
use tokio::sync::watch;

/// A node's state, once it has joined.
pub(crate) type Statuses = Arc<OnceLock<watch::Receiver<Status>>>;

#[derive(Debug)]
struct ClusterMetrics(Statuses);

/// Registers the metrics of a node. They have values once the node has joined.
pub(crate) fn register(registry: &mut Registry, statuses: &Statuses) {
    let cluster = registry.sub_registry_with_prefix("cluster");
    cluster.register_collector(Box::new(ClusterMetrics(Arc::clone(statuses))));
}

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(statuses) = self.0.get() else { return Ok(()) };
        let status = statuses.borrow().clone();
        nodes(&mut encoder, &status)?;
        for (name, help, value) in levels(&status) {
            let level = ConstGauge::new(value);
            level.encode(encoder.encode_descriptor(name, help, None, level.metric_type())?)?;
        }
        for (name, help, count) in counts(&status) {
            let count = ConstCounter::new(count);
            count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        }
        Ok(())
    }
}

/// Counts the living nodes by their state.
fn nodes(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let count = |is_counted: fn(&Node) -> bool| {
        let living = status.view.nodes.iter().filter(|node| node.lives());
        living.filter(|node| is_counted(node)).count() as f64
    };
    let states = [
        (
            "serving",
            count(|node| node.state == NodeState::Serving && !node.is_disconnected),
        ),
        (
            "draining",
            count(|node| node.state == NodeState::Draining && !node.is_disconnected),
        ),
        ("disconnected", count(|node| node.is_disconnected)),
    ];
    let help = "Nodes that have not left and were not declared dead, by their state; the database has no session of a disconnected one";
    let of_kind = ConstGauge::new(0.0).metric_type();
    let mut family = encoder.encode_descriptor("nodes", help, None, of_kind)?;
    for (state, count) in states {
        ConstGauge::new(count).encode(family.encode_family(&[("state", state)])?)?;
    }
    Ok(())
}

fn levels(status: &Status) -> [(&'static str, &'static str, f64); 9] {
    let view = &status.view;
    let since_look = status.looked.map_or(Duration::ZERO, |looked| looked.elapsed());
    let silence = status
        .silences
        .values()
        .max()
        .map_or(Duration::ZERO, |silence| *silence + since_look);
    let others = view.nodes.iter().filter(|node| node.lives() && node.id != status.node);
    let unreached = others.filter(|node| !status.connected.contains(&node.id)).count();
    let unowned = view.owners.iter().filter(|owner| owner.is_none()).count();
    let flag = |is_so: bool| if is_so { 1.0 } else { 0.0 };
    [
        (
            "shards_owned",
            "Shards that this node owns",
            view.shards_of(Some(status.node)).len() as f64,
        ),
        (
            "shards_served",
            "Shards that this node answers for",
            status.serves.len() as f64,
        ),
        ("shards_unowned", "Shards that no node owns", unowned as f64),
        (
            "nodes_unreached",
            "Other nodes that live and that this one is not connected to",
            unreached as f64,
        ),
        (
            "apart",
            "1: this node may own nothing, as it does not reach the others or they do not reach it",
            flag(status.apart.is_some()),
        ),
        (
            "two_primaries",
            "1: another node that lives uses another server of the database",
            flag(status.two_primaries.is_some()),
        ),
        (
            "silence_seconds",
            "The longest time for which another node that lives has not beaten",
            silence.as_secs_f64(),
        ),
        (
            "lease_left_seconds",
            "How long this node may still answer reads without another beat",
            status.lease.saturating_sub(since_look).as_secs_f64(),
        ),
        (
            "last_change_seconds",
            "How long the last change of what this node serves took",
            status.last_change.as_secs_f64(),
        ),
    ]
}

fn counts(status: &Status) -> [(&'static str, &'static str, u64); 11] {
    let done = &status.done;
    [
        (
            "joins",
            "Times this process has joined: more than once, where others had declared it dead",
            done.joins,
        ),
        ("shards_taken", "Shards taken that nobody owned any more", done.taken),
        ("shards_given", "Shards given to other nodes", done.given),
        ("deaths", "Nodes that this one has declared dead", done.deaths),
        (
            "cut_off",
            "Nodes that this one had drain, since most others did not reach them",
            done.cut_off,
        ),
        ("changes", "Changes of what this node serves", status.changes),
        (
            "peers_refused",
            "Connections to the port for other nodes that were not let in",
            status.refused,
        ),
        ("asks", "Requests sent to other nodes", status.asks),
        (
            "ask_frames",
            "Frames in which requests were sent to other nodes",
            status.frames,
        ),
        (
            "asks_not_here",
            "Requests for which no other node could be asked",
            status.not_here,
        ),
        (
            "asks_unknown",
            "Requests to other nodes whose outcome is not known",
            status.unknown,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use throng::journal::{Join, NodeId, View};

    fn encoded() -> String {
        let node = |number, state| Node::new(NodeId(number), Join::default(), state);
        let status = Status {
            node: NodeId(1),
            view: View {
                nodes: vec![
                    node(1, NodeState::Serving),
                    node(2, NodeState::Draining),
                    node(3, NodeState::Left),
                ],
                owners: vec![Some(NodeId(1)), Some(NodeId(2)), None],
                ..View::default()
            },
            lease: Duration::from_secs(3),
            apart: Some("it does not reach itself".into()),
            connected: BTreeSet::new(),
            refused: 7,
            ..Status::default()
        };
        let statuses = Statuses::default();
        statuses.set(watch::channel(status).1).unwrap();
        let mut registry = Registry::with_prefix("throng");
        register(&mut registry, &statuses);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn node_counts_living_nodes_and_those_not_reached() {
        let text = encoded();
        for line in [
            "throng_cluster_nodes{state=\"serving\"} 1.0",
            "throng_cluster_nodes{state=\"draining\"} 1.0",
            "throng_cluster_shards_owned 1.0",
            "throng_cluster_shards_unowned 1.0",
            "throng_cluster_nodes_unreached 1.0",
            "throng_cluster_apart 1.0",
            "throng_cluster_lease_left_seconds 3.0",
            "throng_cluster_peers_refused_total 7",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn alert_rules_name_metrics_that_are_told() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/throng.rules.yaml");
        let rules = std::fs::read_to_string(file).unwrap();
        let text = encoded();
        let words = rules.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("throng_cluster_")).collect();
        assert!(named.len() > 5, "{named:?}");
        for name in named {
            let is_told = |line: &str| line.split([' ', '{']).next() == Some(name);
            assert!(text.lines().any(is_told), "{name} is not in {text}");
        }
    }
}
