//! A joining node checks that the others have its secret. Otherwise it would own shards, and no other node could send it requests.

use futures_util::future::join_all;
use std::time::Duration;
use throng::host::Host as Clock;
use throng_journal::{Directory, Error, Later, Node, NodeId};

/// The number of looks during a lease while earlier joining nodes do not take part yet.
const LOOKS: u32 = 48;

/// Asks other nodes for their proof.
pub(crate) trait Proofs: Send + Sync {
    /// True if a node has another secret. A node that does not answer counts as having the same.
    fn has_other_secret<'a>(&'a self, me: NodeId, cluster: &'a str, node: &'a Node) -> Later<'a, bool>;
}

/// The means of a node that joins.
pub(crate) struct Joining<'a> {
    pub(crate) directory: &'a dyn Directory,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) lease: Duration,
    pub(crate) proofs: &'a dyn Proofs,
}

impl Joining<'_> {
    /// Refuses to take part beside a node with another secret. Before it has a number, this node asks all nodes that take part.
    ///
    /// Nodes that join at the same moment do not see each other then. So each asks again once it has its number: those with a smaller one.
    /// It waits until these have decided likewise: a refused node has left, and one that takes part beats.
    pub(crate) async fn refuse(&self, me: Option<NodeId>) -> Result<(), Error> {
        let is_before = |node: &Node| me.is_some_and(|me| node.id < me);
        let mut looks = 0;
        let view = loop {
            let view = self.directory.view().await?;
            let decides = |node: &Node| node.lives() && node.beat == 0 && !node.is_disconnected;
            let waits = view.nodes.iter().any(|node| is_before(node) && decides(node));
            if !waits || looks == LOOKS {
                break view;
            }
            looks += 1;
            self.clock.sleep(self.lease / LOOKS).await;
        };
        let is_asked = |node: &&Node| node.lives() && (is_before(node) || me.is_none() && node.beat > 0);
        let asked: Vec<&Node> = view.nodes.iter().filter(is_asked).collect();
        let own = me.unwrap_or_default();
        let proofs = asked
            .iter()
            .map(|node| self.proofs.has_other_secret(own, &view.cluster, node));
        let others = join_all(proofs).await;
        match asked.iter().zip(others).find(|(_, is_other)| *is_other) {
            None => Ok(()),
            Some((node, _)) => Err(Error::Refused(format!(
                "node {} at {} has another secret of the cluster, or none: give all nodes the same --cluster-secret-file",
                node.said.name, node.said.peer
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
