//! The view that all nodes have.

use super::{
    changes::{IS_GONE, LIVING, Sql},
    floor,
};
use crate::journal::may_answer;
use deadpool_postgres::Transaction;
use std::time::Duration;
use throng_journal::{Join, Node, NodeId, NodeState, ShardId, View};
use tokio_postgres::Row;

fn state_of(word: &str) -> NodeState {
    match word {
        "serving" => NodeState::Serving,
        "draining" => NodeState::Draining,
        "left" => NodeState::Left,
        _ => NodeState::Dead,
    }
}

/// Reads the view in a single statement, so that all of it was true at one time.
pub(super) async fn view(transaction: &Transaction<'_>) -> Sql<View> {
    // Single values are in the first row only.
    let once = |what: &str| format!("CASE WHEN row_number() OVER (ORDER BY n.node) = 1 THEN (SELECT {what}) END");
    let statement = format!(
        "SELECT c.version, c.id::text, {owners}, n.node, n.name, n.peer, n.http, n.program, n.app, n.state, n.beat, {IS_GONE}, \
         n.wants_drain, n.features, {pinned}, {pinned_to}, c.features, c.app, n.reaches, n.cut_off, n.lease_micros, n.kinds, CASE WHEN NOT n.{LIVING} THEN (SELECT \
         array_agg(l.process) FROM leases l JOIN writers w USING (writer) WHERE w.node_id = n.node AND l.until > clock_timestamp()) END FROM \
         cluster c LEFT JOIN nodes n ON n.{LIVING} OR EXISTS (SELECT FROM owners o \
         WHERE o.node = n.node) ORDER BY n.node",
        owners = once("array_agg(o.node ORDER BY o.shard) FROM owners o"),
        pinned = once("array_agg(p.shard ORDER BY p.shard) FROM pins p"),
        pinned_to = once("array_agg(p.name ORDER BY p.shard) FROM pins p"),
    );
    // Prepared, because planning it takes the server longer than executing it.
    let statement = transaction.prepare_cached(&statement).await?;
    let rows = transaction.query(&statement, &[]).await?;
    let mut view = View::default();
    let number = |row: &Row, index: usize| row.get::<_, i64>(index).cast_unsigned();
    for row in &rows {
        view.version = number(row, 0);
        view.cluster = row.get(1);
        view.floor = floor::of(row, 16);
        if let Some(owners) = row.get::<_, Option<Vec<Option<i64>>>>(2) {
            view.owners = owners
                .iter()
                .map(|owner| owner.map(|node| NodeId(node.cast_unsigned())))
                .collect();
        }
        let pinned: Option<Vec<i32>> = row.get(14);
        let pinned_to: Option<Vec<String>> = row.get(15);
        let pins = pinned.into_iter().flatten().zip(pinned_to.into_iter().flatten());
        view.pins
            .extend(pins.map(|(shard, name)| (ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), name)));
        let Some(id) = row.get::<_, Option<i64>>(3) else {
            continue;
        };
        let reaches: Vec<i64> = row.get(18);
        view.nodes.push(Node {
            id: NodeId(id.cast_unsigned()),
            said: Join {
                name: row.get(4),
                peer: row.get(5),
                http: row.get(6),
                program: row.get(7),
                app: number(row, 8),
                features: row.get::<_, i32>(13).cast_unsigned(),
                shards: u16::try_from(view.owners.len()).unwrap_or(u16::MAX),
                lease: Duration::from_micros(number(row, 20)),
                kinds: row.get(21),
            },
            state: state_of(row.get(9)),
            beat: number(row, 10),
            is_disconnected: row.get(11),
            wants_drain: row.get(12),
            reaches: reaches.iter().map(|node| NodeId(node.cast_unsigned())).collect(),
            is_cut_off: row.get(19),
            may_answer: may_answer(row.get(22)),
        });
    }
    Ok(view)
}
