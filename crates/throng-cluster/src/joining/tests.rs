//! Nodes that join at the same moment, in many orders.

use super::*;
use crate::{
    Links, Node as Running, NodeError, NodeOptions, Status, Timing, Trust,
    frame::Secret,
    node_loop::{Connections, Host, NodeLoop, Parts},
};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use throng::{
    driver::peers::{Reply, Request},
    host::TokioHost,
};
use throng_journal::{Floor, Join, MemoryDirectory, MemoryJournal, NodeState, ShardSet, View};
use tokio::{runtime::Handle, sync::Barrier, time::sleep};
use xxhash_rust::xxh3::xxh3_64;

const SHARDS: u16 = 1;

/// Delays each step of one node.
type Pause = Box<dyn Fn(&str) -> Later<'static, ()> + Send + Sync>;

/// The directory as seen by one node.
struct Paused {
    within: MemoryDirectory,
    pause: Pause,
}

impl Directory for Paused {
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>> {
        Box::pin(async move {
            (self.pause)("joins").await;
            let joined = self.within.join(join).await;
            (self.pause)("joined").await;
            joined
        })
    }

    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>> {
        self.within.beat(node, state)
    }

    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>> {
        self.within.reach(node, reaches)
    }

    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>> {
        self.within.cut_off(by, node)
    }

    fn view(&self) -> Later<'_, Result<View, Error>> {
        Box::pin(async move {
            (self.pause)("views").await;
            let view = self.within.view().await;
            (self.pause)("viewed").await;
            view
        })
    }

    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>> {
        self.within.declare_dead(by, dead, beat)
    }

    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>> {
        self.within.take(by, shards)
    }

    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>> {
        self.within.give(from, to, shards)
    }

    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>> {
        Box::pin(async move {
            (self.pause)("leaves").await;
            self.within.leave(node).await
        })
    }

    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        self.within.ask_drain(name, drain)
    }

    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>> {
        self.within.wants_drain(node)
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        self.within.pin(shards, to)
    }

    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>> {
        self.within.finalize()
    }

    fn changed(&self, at_most: Duration) -> Later<'_, ()> {
        self.within.changed(at_most)
    }
}

/// An engine that serves any shards at once.
struct Idle;

impl Host for Idle {
    fn serve(&self, _: NodeId, _: ShardSet) -> Later<'static, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn release(&self) -> Later<'static, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn answer(&self, _: Request, _: Duration) -> Later<'static, Reply> {
        Box::pin(std::future::ready(Reply::NotHere))
    }
}

/// Gives each node of a seed one of two secrets.
fn secret_of(seed: u64, name: &str) -> u64 {
    xxh3_64(format!("{seed} {name}").as_bytes()) % 2
}

/// The connections of one node, whose peers prove the secrets that the seed gave them.
struct Seeded {
    seed: u64,
    name: String,
    directory: Arc<dyn Directory>,
    clock: Arc<dyn Clock>,
}

impl Proofs for Seeded {
    fn has_other_secret<'a>(&'a self, _: NodeId, _: &'a str, node: &'a Node) -> Later<'a, bool> {
        let is_other = secret_of(self.seed, &self.name) != secret_of(self.seed, &node.said.name);
        Box::pin(std::future::ready(is_other))
    }
}

impl Connections for Seeded {
    fn refuse(&self, me: Option<NodeId>) -> Later<'_, Result<(), Error>> {
        Box::pin(async move {
            let joining = Joining {
                directory: &*self.directory,
                clock: &*self.clock,
                lease: Timing::default().lease,
                proofs: self,
            };
            joining.refuse(me).await
        })
    }

    fn look(&self, _: NodeId, _: &View) {}

    fn reaches(&self) -> BTreeSet<NodeId> {
        BTreeSet::new()
    }

    fn refusing(&self) -> BTreeSet<NodeId> {
        BTreeSet::new()
    }

    fn changed(&self) -> Later<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn describe(&self, _: &mut Status) {}
}

/// Runs a node of a seed. Returns its secret, and its number once it takes part.
async fn takes_part(seed: u64, name: String, within: MemoryDirectory) -> (u64, Option<NodeId>) {
    let steps = AtomicU64::new(0);
    let own = name.clone();
    let pause = move |_: &str| -> Later<'static, ()> {
        let step = steps.fetch_add(1, Ordering::Relaxed);
        let micros = xxh3_64(format!("{seed} {own} {step}").as_bytes()) % 5_000;
        Box::pin(sleep(Duration::from_micros(micros)))
    };
    let directory: Arc<dyn Directory> = Arc::new(Paused {
        within: within.clone(),
        pause: Box::new(pause),
    });
    let clock: Arc<dyn Clock> = Arc::new(TokioHost::on(Handle::current()));
    let node_loop = NodeLoop::new(Parts {
        directory: Arc::clone(&directory),
        host: Arc::new(Idle),
        connections: Arc::new(Seeded {
            seed,
            name: name.clone(),
            directory,
            clock: Arc::clone(&clock),
        }),
        clock,
        join: Join {
            name: name.clone(),
            shards: SHARDS,
            ..Join::default()
        },
        timing: Timing::default(),
    });
    let joined = node_loop.join().await.ok();
    if let Some(node) = joined {
        sleep(Duration::from_millis(3)).await;
        within.beat(node, NodeState::Serving).await.unwrap();
    }
    (secret_of(seed, &name), joined)
}

#[tokio::test(start_paused = true)]
async fn nodes_that_join_at_one_moment_have_one_secret() {
    for seed in 0..300 {
        let directory = MemoryJournal::new().directory();
        let nodes = (0..5).map(|number| takes_part(seed, format!("n{number}"), directory.clone()));
        let decided = join_all(nodes).await;
        let first = decided
            .iter()
            .filter(|(_, node)| node.is_some())
            .min_by_key(|(_, node)| *node);
        let secret = first.map(|(secret, _)| *secret);
        for (own, node) in &decided {
            assert_eq!(node.is_some(), Some(*own) == secret, "seed {seed}: {decided:?}");
        }
        let view = directory.view().await.unwrap();
        let living: BTreeSet<_> = view
            .nodes
            .iter()
            .filter(|node| node.lives())
            .map(|node| node.id)
            .collect();
        assert_eq!(
            living,
            decided.iter().filter_map(|(_, node)| *node).collect(),
            "seed {seed}"
        );
    }
}

#[test]
fn of_two_secrets_that_start_at_one_moment_one_stays() {
    let journal = MemoryJournal::new();
    let together = Arc::new(Barrier::new(2));
    let start = |name: &str, secret: &[u8]| -> Result<Running, NodeError> {
        let together = Arc::clone(&together);
        let pause = move |step: &str| -> Later<'static, ()> {
            let (together, is_held) = (Arc::clone(&together), step == "joins");
            Box::pin(async move {
                if is_held {
                    together.wait().await;
                }
            })
        };
        let directory = Arc::new(Paused {
            within: journal.directory(),
            pause: Box::new(pause),
        });
        let trust = Trust::by_secret(Secret::new(secret));
        let options = NodeOptions {
            join: Join {
                name: name.into(),
                shards: SHARDS,
                ..Join::default()
            },
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            trust: trust.clone(),
            timing: Timing::default(),
            standby: None,
            loops: Vec::new(),
        };
        Running::start(directory, Arc::new(Idle), Links::new(SHARDS, trust), options)
    };
    let started = thread::scope(|scope| {
        let one = scope.spawn(|| start("one", b"a secret of all nodes"));
        let other = scope.spawn(|| start("other", b"another secret"));
        [one.join().unwrap(), other.join().unwrap()]
    });
    let refused: Vec<String> = started
        .iter()
        .filter_map(|started| started.as_ref().err().map(ToString::to_string))
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("--cluster-secret-file"), "{}", refused[0]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = runtime.block_on(journal.directory().view()).unwrap();
    assert_eq!(view.nodes.iter().filter(|node| node.lives()).count(), 1, "{view:?}");
}
