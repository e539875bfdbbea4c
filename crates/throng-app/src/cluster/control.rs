//! A node's cluster, as its console shows and changes it.

use super::shown::report;
use serde_json::{Map, Value, json};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};
use throng::journal::{Directory, Error, Later, ShardSet};
use throng_cluster::{Links, Status};
use throng_http::{Cluster, NodeReport};
use tokio::sync::watch;

/// Gives a node's console its cluster, to show and to change.
pub(crate) struct ClusterControl {
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) links: Links,
    /// Set once the node has joined.
    pub(crate) statuses: Arc<OnceLock<watch::Receiver<Status>>>,
}

impl ClusterControl {
    fn status(&self) -> Option<Status> {
        self.statuses.get().map(|statuses| statuses.borrow().clone())
    }
}

impl Cluster for ClusterControl {
    fn report(&self) -> Value {
        self.status().map_or(Value::Null, |status| report(&status))
    }

    fn nodes(&self) -> Later<'_, Value> {
        Box::pin(async move {
            let Some(status) = self.status() else {
                return Value::Null;
            };
            let told = self.links.reports(&status).await;
            let told = told.into_iter().chain([(status.node, self.links.report())]);
            let read = told.filter_map(|(node, report)| Some((node.to_string(), serde_json::from_str(&report).ok()?)));
            Value::Object(read.collect::<Map<_, _>>())
        })
    }

    fn drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        self.directory.ask_drain(name, drain)
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        self.directory.pin(shards, to)
    }
}

/// Publishes this node's report and its console's URL to the other nodes.
pub(crate) fn tell(links: &Links, now: NodeReport, console: Option<String>) {
    links.tell(move || json!({ "console": console, "now": now.now() }).to_string());
}

/// Returns the URL at which others open a node's console; `None` if only its own machine reaches it.
pub(crate) fn console_url(admin: Option<SocketAddr>, peer_host: &str) -> Option<String> {
    let admin = admin?;
    let is_one_machine = peer_host.parse().is_ok_and(|peer: IpAddr| peer.is_loopback()) || peer_host == "localhost";
    match admin.ip() {
        ip if ip.is_unspecified() => Some(format!("http://{peer_host}:{}/console/", admin.port())),
        ip if ip.is_loopback() && !is_one_machine => None,
        _ => Some(format!("http://{admin}/console/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_on_loopback_is_named_on_one_machine_only() {
        let url = |admin: &str, peer| console_url(Some(admin.parse().unwrap()), peer);
        assert_eq!(
            url("127.0.0.1:9080", "127.0.0.1").unwrap(),
            "http://127.0.0.1:9080/console/"
        );
        assert_eq!(url("127.0.0.1:9080", "b.internal"), None);
        assert_eq!(
            url("0.0.0.0:9080", "b.internal").unwrap(),
            "http://b.internal:9080/console/"
        );
        assert_eq!(
            url("10.0.0.7:9080", "10.0.0.7").unwrap(),
            "http://10.0.0.7:9080/console/"
        );
        assert_eq!(console_url(None, "127.0.0.1"), None);
    }
}
