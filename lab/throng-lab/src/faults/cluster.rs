//! Faults of a cluster: three nodes on one database, with clients at all of them.

use super::{
    kind::Kind,
    load::SECTIONS,
    network::{Network, What},
    run::{Outage, Run},
};
use crate::{
    http_client::{self, ANSWER_WAIT, Connection},
    service::{Launch, Service},
};
use anyhow::Context as _;
use rustix::process::Signal;
use servers::Postgres;
use std::{net::SocketAddr, path::Path, thread, time::Duration};

pub(super) const NODES: usize = 3;
/// The number of steps of a storm.
const STEPS: std::ops::Range<usize> = 3..7;

/// The number of moves by an operator in a step.
const MOVES: std::ops::Range<usize> = 1..4;
/// The most shards of one move, of all that the service has.
const MOVED_MAX: usize = 100;
const SHARDS: usize = 256;

fn name_of(node: usize) -> String {
    format!("n{node}")
}

/// A node and its launch.
pub(super) struct Member {
    launch: Launch,
    service: Option<Service>,
}

impl Member {
    /// Starts the nodes of a cluster with the common settings of a single engine.
    pub(super) fn start_all(alone: &Launch, directory: &Path) -> anyhow::Result<Vec<Self>> {
        (0..NODES)
            .map(|number| Self::start(of_node(alone, directory, number)))
            .collect()
    }

    /// Starts the nodes, each at its own place of a network, with this database and schema.
    pub(super) fn start_apart(
        alone: &Launch,
        directory: &Path,
        network: &Network,
        database: (&Postgres, &str),
    ) -> anyhow::Result<Vec<Self>> {
        let start = |number: usize| {
            let mut launch = of_node(alone, directory, number);
            network.place(&mut launch, number, database, directory)?;
            Self::start(launch)
        };
        (0..NODES).map(start).collect()
    }

    fn start(launch: Launch) -> anyhow::Result<Self> {
        let service = Some(launch.start()?);
        Ok(Self { launch, service })
    }

    pub(super) fn first_address(members: &[Self]) -> anyhow::Result<SocketAddr> {
        let first = members.iter().find_map(|member| member.service.as_ref());
        Ok(first.context("a node runs")?.address)
    }

    /// Ends all nodes but one, which then owns all shards.
    pub(super) fn end_all_but_one(members: Vec<Self>) -> anyhow::Result<Service> {
        let mut running = members.into_iter().filter_map(|member| member.service);
        let last = running.next().context("a node runs")?;
        running.try_for_each(Service::end)?;
        Ok(last)
    }
}

pub(super) fn of_node(alone: &Launch, directory: &Path, number: usize) -> Launch {
    let mut launch = alone.clone();
    let cluster = ["--cluster", "--name", &name_of(number), "--cluster-lease", "1s"].map(str::to_owned);
    launch.arguments.extend(cluster);
    launch.log = directory.join(format!("n{number}.log"));
    launch
}

impl Run<'_> {
    pub(super) fn cluster(&mut self, kind: Kind) -> anyhow::Result<Outage> {
        let begun = self.now();
        match kind {
            Kind::ClusterStorm => {
                for _ in 0..self.random.usize(STEPS) {
                    let steps = [
                        Kind::ClusterKill,
                        Kind::ClusterPause,
                        Kind::ClusterDrain,
                        Kind::ClusterMove,
                        Kind::ClusterRoll,
                        Kind::ClusterTerminate,
                    ];
                    let step = steps[self.random.usize(..steps.len())];
                    self.cluster_step(step)?;
                    self.go_on(0..1_500);
                }
                // A roll is several outages. It ends when every section is served again after the last restart.
                return Ok(Outage::Each(self.now()));
            }
            Kind::ClusterCut | Kind::ClusterCutProxied => {
                let (one, other) = (self.random.usize(..NODES), self.random.usize(..NODES));
                let mut cuts = [What::Node(one), What::FromOthers(other), What::Database];
                self.random.shuffle(&mut cuts);
                for what in cuts {
                    self.cut(what)?;
                }
                return Ok(Outage::Each(self.now()));
            }
            kind => self.cluster_step(kind)?,
        }
        Ok(Outage::Each(begun))
    }

    fn cluster_step(&mut self, kind: Kind) -> anyhow::Result<()> {
        let victim = self.random.usize(..NODES);
        match kind {
            Kind::ClusterKill => {
                if let Some(service) = self.members[victim].service.take() {
                    service.kill();
                }
                self.tell_addresses();
                self.go_on(200..2_500);
                self.begin_again(victim)?;
            }
            Kind::ClusterPause => {
                let signal = |run: &Self, signal| {
                    if let Some(service) = &run.members[victim].service {
                        service.signal(signal);
                    }
                };
                signal(self, Signal::STOP);
                // Reads go to the continued node, too. None of them may be stale.
                self.go_on(300..5_000);
                signal(self, Signal::CONT);
                self.go_on(500..1_500);
            }
            Kind::ClusterDrain => {
                self.ask_cluster(&["drain", &name_of(victim)])?;
                self.go_on(300..2_000);
                self.ask_cluster(&["undrain", &name_of(victim)])?;
                self.go_on(300..1_000);
            }
            Kind::ClusterMove => {
                // Moves go back and forth: shards that were moved before are released or moved again.
                for _ in 0..self.random.usize(MOVES) {
                    let first = self.random.usize(..SHARDS);
                    let last = self.random.usize(first..SHARDS.min(first + MOVED_MAX));
                    let to = match self.random.u8(..4) {
                        0 => "any".to_owned(),
                        _ => name_of(self.random.usize(..NODES)),
                    };
                    self.ask_cluster(&["move", &format!("{first}-{last}"), "--to", &to])?;
                    self.go_on(0..1_000);
                }
            }
            Kind::ClusterRoll => {
                for node in 0..NODES {
                    if let Some(service) = self.members[node].service.take() {
                        service.end()?;
                    }
                    self.tell_addresses();
                    self.begin_again(node)?;
                    self.go_on(0..500);
                }
            }
            Kind::ClusterTerminate => {
                let url = self.server()?.url("postgres");
                super::database::terminate(&url)?;
            }
            _ => {
                self.database(Kind::PgRestart)?;
            }
        }
        Ok(())
    }

    /// Cuts nodes off for longer than a lease, and waits until each node answers again.
    fn cut(&mut self, what: What) -> anyhow::Result<()> {
        let network = self.network.context("the nodes have a network of their own")?;
        let cut = network.cut(what, &mut self.random);
        network.set(cut, true)?;
        self.go_on(1_500..4_000);
        network.set(cut, false)?;
        let addresses = self.addresses();
        self.until(&format!("each node answers after {cut:?}"), |_| {
            addresses.iter().all(|address| answers(*address))
        })
    }

    fn begin_again(&mut self, node: usize) -> anyhow::Result<()> {
        self.members[node].service = Some(self.members[node].launch.start()?);
        self.tell_addresses();
        Ok(())
    }

    /// Tells the clients the addresses of the nodes that run.
    pub(super) fn tell_addresses(&self) {
        self.load.shared.set_addresses(&self.addresses());
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let running = self.members.iter().filter_map(|member| member.service.as_ref());
        running.map(|service| service.address).collect()
    }

    /// Runs `throng cluster drain` or a similar command, as a person does. Repeats it while the node is about to join again.
    fn ask_cluster(&mut self, what: &[&str]) -> anyhow::Result<()> {
        let launch = self.launch.clone();
        self.until(&format!("cluster {}", what.join(" ")), |_| {
            launch.ask_cluster(what).is_ok()
        })
    }

    /// Waits for the end of what was begun: a node that was declared dead joins again, and shards move.
    pub(super) fn settle(&mut self) {
        thread::sleep(Duration::from_millis(500));
    }
}

/// Returns true if a node can read all sections, whichever node owns them.
pub(super) fn answers(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(address, ANSWER_WAIT) else {
        return false;
    };
    let mut sections = 0..SECTIONS;
    sections.all(|section| {
        let answer = connection.ask(&http_client::get(&format!("/api/section/S{section}")));
        answer.is_ok_and(|answer| answer.status == 200)
    })
}
