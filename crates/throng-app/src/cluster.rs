//! Several nodes on one journal: the options of `serve --cluster`, and the command `cluster`.

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use throng::{
    Engine,
    journal::{Directory, FEATURES, Join, NodeState, ShardSet, View},
};
use throng_cluster::{Host, Links, Node, NodeOptions, Status, Timing, Trust, frame::Secret};
use throng_http::Running;
use throng_postgres::PostgresDirectory;

use crate::{
    limits,
    place::{JournalLocation, LocationArguments},
};

/// How long a node that starts waits until it serves something, or knows that others do.
const FIRST: Duration = Duration::from_secs(60);

/// Where shards are moved that are to be pinned to no node any more.
const ANY: &str = "any";

/// How a service takes part in a cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArguments {
    /// Share the journal, which is on PostgreSQL, with other nodes: each owns a part of the shards, and any of them takes any request.
    #[arg(long, requires = "name")]
    cluster: bool,
    /// What this node is called: 1 to 64 of a-z, 0-9 and -; no two that live are called the same.
    #[arg(long, value_name = "NAME", requires = "cluster", value_parser = name)]
    name: Option<String>,
    /// Where this node listens for the others. Beyond this machine they have to share a secret, or have certificates.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "cluster",
        default_value = "127.0.0.1:0"
    )]
    peer_listen: SocketAddr,
    /// Where the others reach it, if that is another address.
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    peer_advertise: Option<String>,
    /// A file with the secret that all nodes share: any bytes, at least 16.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_secret_file: Option<PathBuf>,
    /// A PEM file with this node's certificate for the host by which the others reach it: what nodes say to each other is then under TLS.
    #[arg(long, value_name = "FILE", requires_all = ["cluster", "peer_tls_key", "peer_tls_ca"])]
    peer_tls_cert: Option<PathBuf>,
    /// A PEM file with the certificate's private key.
    #[arg(long, value_name = "FILE", requires = "peer_tls_cert")]
    peer_tls_key: Option<PathBuf>,
    /// A PEM file with the roots that have signed the certificates of all nodes.
    #[arg(long, value_name = "FILE", requires = "peer_tls_cert")]
    peer_tls_ca: Option<PathBuf>,
    /// How long a node that is silent may still be there; one that is not is noticed after a fourth more. At least 1s.
    #[arg(long, value_name = "TIME", requires = "cluster", default_value = "3s", value_parser = limits::duration)]
    cluster_lease: Duration,
    /// The service's release: shards go to nodes of an equal or greater one. Raise it with each release.
    #[arg(long, value_name = "NUMBER", requires = "cluster", default_value_t = 0)]
    app_number: u64,
}

fn name(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text == ANY {
        return Err(format!(
            "{ANY:?} is what `cluster move --to` calls every node: call this one otherwise"
        ));
    }
    match (1..=64).contains(&text.len()) && text.bytes().all(is_name) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 of a-z, 0-9 and -".into()),
    }
}

/// What was said of the cluster this service is a node of.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    name: String,
    listen: SocketAddr,
    advertise: Option<String>,
    trust: Trust,
    timing: Timing,
    app: u64,
}

impl ClusterArguments {
    /// What was said; nothing, for an engine that is alone.
    ///
    /// # Errors
    /// The secret is missing, cannot be read, or is too short.
    pub(crate) fn settings(&self) -> anyhow::Result<Option<ClusterSettings>> {
        let (true, Some(name)) = (self.cluster, &self.name) else {
            return Ok(None);
        };
        if self.peer_listen.ip().is_unspecified() && self.peer_advertise.is_none() {
            bail!(
                "--peer-listen {} is every address of this machine, and none that others can connect to: say with --peer-advertise HOST:PORT \
                 where they reach it",
                self.peer_listen
            );
        }
        Ok(Some(ClusterSettings {
            name: name.clone(),
            listen: self.peer_listen,
            advertise: self.peer_advertise.clone(),
            trust: self.trust()?,
            timing: Timing::of(self.cluster_lease),
            app: self.app_number,
        }))
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        let has_tls = self.peer_tls_cert.is_some();
        let trust = Trust::by_secret(secret(self.cluster_secret_file.as_deref(), self.peer_listen, has_tls)?);
        let (Some(certificate), Some(key), Some(roots)) = (&self.peer_tls_cert, &self.peer_tls_key, &self.peer_tls_ca)
        else {
            return Ok(trust);
        };
        let read = |path: &Path| fs::read(path).with_context(|| format!("{} cannot be read", path.display()));
        trust
            .with_tls(&read(certificate)?, &read(key)?, &read(roots)?)
            .map_err(|why| anyhow!("--peer-tls-cert, --peer-tls-key and --peer-tls-ca do not do: {why}"))
    }
}

fn secret(file: Option<&Path>, listen: SocketAddr, has_tls: bool) -> anyhow::Result<Secret> {
    const BYTES_MIN: usize = 16;
    let Some(file) = file else {
        if !listen.ip().is_loopback() && !has_tls {
            bail!(
                "--peer-listen {listen} is open to other machines: give all nodes the same --cluster-secret-file, or certificates with --peer-tls-cert, or listen on \
                 127.0.0.1"
            );
        }
        return Ok(Secret::new(b""));
    };
    let bytes =
        fs::read(file).with_context(|| format!("the cluster's secret cannot be read from {}", file.display()))?;
    let secret = bytes.trim_ascii();
    if secret.len() < BYTES_MIN {
        bail!(
            "the cluster's secret in {} has {} bytes, at least {BYTES_MIN} are needed",
            file.display(),
            secret.len()
        );
    }
    Ok(Secret::new(secret))
}

impl ClusterSettings {
    /// How long an engine may answer after it has last shown that it lives.
    pub(crate) fn lease(&self) -> Duration {
        self.timing.lease
    }

    /// The connections to the other nodes, for the engine.
    pub(crate) fn links(&self, shards: u16) -> Links {
        Links::new(shards, self.trust.clone())
    }

    /// Joins, and waits until the engine serves something.
    pub(crate) fn start(
        &self,
        directory: Arc<dyn Directory>,
        engine: &Engine,
        links: Links,
        program: String,
        gateway: &Running,
    ) -> anyhow::Result<Node> {
        let host: Arc<dyn Host> = Arc::new(engine.driver());
        let options = NodeOptions {
            join: Join {
                name: self.name.clone(),
                peer: self.advertise.clone().unwrap_or_default(),
                http: gateway.url(),
                program,
                app: self.app,
                features: FEATURES,
                shards: engine.registry().shards(),
            },
            listen: self.listen,
            trust: self.trust.clone(),
            timing: self.timing,
            loops: gateway.loops().to_vec(),
        };
        let node = Node::start(directory, host, links, options)?;
        if !node.wait_until_serving(FIRST) {
            tracing::warn!("the node serves nothing yet, and goes on trying");
        }
        Ok(node)
    }
}

/// What to do with a cluster.
#[derive(Debug, Args)]
pub struct ClusterCommands {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Show the nodes, what they are at, and how many shards each owns.
    Status(LookArguments),
    /// Show which shards each node owns, and which are pinned to one.
    Shards(LookArguments),
    /// Pin shards to a node: they go to it, and stay there while it serves. While it does not they are as all others, and they go back
    /// once it does.
    Move(MoveArguments),
    /// Have a node give away all its shards; it goes on taking requests, which others answer.
    Drain(NodeArguments),
    /// Let a node own shards again.
    Undrain(NodeArguments),
}

#[derive(Debug, Args)]
struct LookArguments {
    #[command(flatten)]
    place: LocationArguments,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct NodeArguments {
    /// What the node is called.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: LocationArguments,
}

#[derive(Debug, Args)]
struct MoveArguments {
    /// Which ones, as `cluster shards` shows them: numbers and ranges, 0-9,17.
    #[arg(value_name = "SHARDS")]
    shards: ShardSet,
    /// What the node is called; `any`: they are pinned to none any more, and balanced as all others.
    #[arg(long, value_name = "NAME")]
    to: String,
    #[command(flatten)]
    place: LocationArguments,
}

#[derive(Serialize)]
struct Shown<'a> {
    cluster: &'a str,
    version: u64,
    shards: usize,
    unowned: String,
    /// Names of nodes, which need not live, with the shards that are pinned to them.
    pinned: BTreeMap<&'a str, String>,
    nodes: Vec<ShownNode<'a>>,
}

#[derive(Serialize)]
struct ShownNode<'a> {
    node: u64,
    name: &'a str,
    state: &'static str,
    owns: usize,
    shards: String,
    http: &'a str,
    peer: &'a str,
    program: &'a str,
    connected: bool,
}

impl ClusterCommands {
    /// Does it, on the journal of this app unless another place is named.
    ///
    /// # Errors
    /// The journal is not one that nodes share, or cannot be reached; there is no node of that name.
    pub fn run(&self, app: &str) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        runtime.block_on(self.command.run(app))
    }
}

impl ClusterCommand {
    async fn run(&self, app: &str) -> anyhow::Result<ExitCode> {
        match self {
            Self::Status(look) => {
                let view = look.view(app).await?;
                let shown = Shown::of(&view);
                if look.json {
                    println!("{}", serde_json::to_string_pretty(&shown)?);
                    return Ok(ExitCode::SUCCESS);
                }
                println!("node  name                state       shards  http                        peer");
                for node in &shown.nodes {
                    let state = if node.connected { node.state } else { "gone?" };
                    println!(
                        "{:<6}{:<20}{state:<10}{:>8}  {:<28}{}",
                        node.node, node.name, node.owns, node.http, node.peer
                    );
                }
                if !shown.unowned.is_empty() {
                    println!("nobody owns the shards {}", shown.unowned);
                }
            }
            Self::Shards(look) => {
                let view = look.view(app).await?;
                let shown = Shown::of(&view);
                if look.json {
                    let own = |node: &'_ throng::journal::Node| (node.said.name.clone(), view.shards_of(Some(node.id)));
                    let mut owned: BTreeMap<String, ShardSet> = BTreeMap::new();
                    // One that died may still own some while the next one of its name serves.
                    for (name, shards) in view.nodes.iter().map(own) {
                        let before = owned.entry(name).or_default();
                        *before = before.union(&shards);
                    }
                    let owned: BTreeMap<String, String> = owned
                        .into_iter()
                        .map(|(name, shards)| (name, shards.to_string()))
                        .collect();
                    let of = serde_json::json!({ "owned": owned, "unowned": shown.unowned, "pinned": shown.pinned });
                    println!("{}", serde_json::to_string_pretty(&of)?);
                    return Ok(ExitCode::SUCCESS);
                }
                for node in &shown.nodes {
                    println!("{}: {}", node.name, node.shards);
                }
                if !shown.unowned.is_empty() {
                    println!("nobody: {}", shown.unowned);
                }
                for (name, shards) in &shown.pinned {
                    println!("pinned to {name}: {shards}");
                }
            }
            Self::Move(moved) => moved.pin(app).await?,
            Self::Drain(node) => node.ask(app, true).await?,
            Self::Undrain(node) => node.ask(app, false).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl LookArguments {
    async fn view(&self, app: &str) -> anyhow::Result<View> {
        Ok(directory(&self.place, app)?.view().await?)
    }
}

impl NodeArguments {
    async fn ask(&self, app: &str, drain: bool) -> anyhow::Result<()> {
        if !directory(&self.place, app)?.ask_drain(&self.name, drain).await? {
            bail!(
                "there is no node {:?} that lives; `cluster status` shows those that do",
                self.name
            );
        }
        match drain {
            true => println!("{} gives away its shards", self.name),
            false => println!("{} may own shards again", self.name),
        }
        Ok(())
    }
}

impl MoveArguments {
    async fn pin(&self, app: &str) -> anyhow::Result<()> {
        let Self { shards, to, place } = self;
        let name = (to != ANY).then_some(&**to);
        directory(place, app)?.pin(shards, name).await?;
        match name {
            Some(name) => println!("the shards {shards} are pinned to {name}: whoever owns them gives them to it"),
            None => println!("the shards {shards} are pinned to no node, and are balanced as all others"),
        }
        Ok(())
    }
}

/// Where the nodes of a cluster meet, as they have left it: a look must not change the tables under them.
fn directory(place: &LocationArguments, app: &str) -> anyhow::Result<PostgresDirectory> {
    match place.place(app)? {
        JournalLocation::Postgres(options) => Ok(PostgresDirectory::look(*options)?),
        other => Err(not_shared(&other)),
    }
}

/// Why there can be no cluster there.
pub(crate) fn not_shared(place: &JournalLocation) -> anyhow::Error {
    anyhow::anyhow!(
        "nodes of a cluster share a journal on PostgreSQL; {place} is one process's: write --journal postgres://USER@HOST/DATABASE"
    )
}

/// What a node says of the cluster to who administrates.
pub(crate) fn report(status: &Status) -> serde_json::Value {
    let mut report = serde_json::to_value(Shown::of(&status.view)).unwrap_or_default();
    report["node"] = status.node.0.into();
    report["lease_ms"] = (status.lease.as_secs_f64() * 1e3).into();
    let since_look = status.looked.map(|looked| looked.elapsed()).unwrap_or_default();
    for (shown, node) in report["nodes"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .zip(&status.view.nodes)
    {
        let silence = status.silences.get(&node.id);
        shown["silent_ms"] = silence
            .map(|silence| (*silence + since_look).as_secs_f64() * 1e3)
            .into();
    }
    report["serves"] = status.serves.len().into();
    report["reaches"] = status.connected.iter().map(|node| node.0).collect();
    report["changes"] = status.changes.into();
    report["last_change_ms"] = (status.last_change.as_secs_f64() * 1e3).into();
    report["asked"] = status.asks.into();
    report["frames"] = status.frames.into();
    report["not_here"] = status.not_here.into();
    report["unknown"] = status.unknown.into();
    report
}

impl<'a> Shown<'a> {
    fn of(view: &'a View) -> Self {
        let owned: ShardSet = view.nodes.iter().fold(ShardSet::default(), |all, node| {
            all.union(&view.shards_of(Some(node.id)))
        });
        let all = ShardSet::first(u16::try_from(view.owners.len()).unwrap_or(u16::MAX));
        let mut pinned: BTreeMap<&str, ShardSet> = BTreeMap::new();
        for (shard, name) in &view.pins {
            pinned.entry(name).or_default().insert(*shard);
        }
        Self {
            cluster: &view.cluster,
            version: view.version,
            shards: view.owners.len(),
            unowned: all.without(&owned).to_string(),
            pinned: pinned
                .into_iter()
                .map(|(name, shards)| (name, shards.to_string()))
                .collect(),
            nodes: view
                .nodes
                .iter()
                .map(|node| {
                    let shards = view.shards_of(Some(node.id));
                    ShownNode {
                        node: node.id.0,
                        name: &node.said.name,
                        state: match node.state {
                            NodeState::Serving => "serving",
                            NodeState::Draining => "draining",
                            NodeState::Left => "left",
                            NodeState::Dead => "dead",
                        },
                        owns: shards.len(),
                        shards: shards.to_string(),
                        http: &node.said.http,
                        peer: &node.said.peer,
                        program: &node.said.program,
                        connected: !node.is_disconnected,
                    }
                })
                .collect(),
        }
    }
}
