//! Several nodes on one journal: the options of `serve --cluster`.

mod command;
mod control;
mod metrics;
mod shown;

pub use command::ClusterCommands;
pub(crate) use control::ClusterControl;
pub(crate) use metrics::{Statuses, register};
use shown::{owner, owners};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::Value;
use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use throng::{
    Engine,
    journal::{Directory, FEATURES, Join},
    services::health::{self, Check, Reason},
};
use throng_cluster::{Host, Links, Node, NodeOptions, Status, Timing, Trust, frame::Secret};
use throng_http::{Gateway, Running, check_private_key};

use crate::{
    limits,
    open_files::{Guarded, warn_if_open},
    place::JournalLocation,
};

/// The interval at which a joining node logs why it cannot serve yet.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The interval at which a joining node checks whether it was told to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The shortest lease. A shorter one would expire on a machine that is merely busy.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// The word for every node in `cluster move --to`: it unpins shards.
const ANY: &str = "any";

/// The arguments with which a service joins a cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArguments {
    /// Share the journal, which is on PostgreSQL, with other nodes: each owns a part of the shards, and any of them takes any request.
    #[arg(long, requires = "name")]
    cluster: bool,
    /// The name of this node: 1 to 64 of a-z, 0-9 and -. No two running nodes may have the same.
    #[arg(long, value_name = "NAME", requires = "cluster", value_parser = name)]
    name: Option<String>,
    /// The address on which this node listens for the others. Nodes on other machines need a shared secret or certificates.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "cluster",
        default_value = "127.0.0.1:0",
        value_parser = crate::security::address
    )]
    peer_listen: SocketAddr,
    /// The address at which the others reach it, if it is another.
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    peer_advertise: Option<String>,
    /// A file with the secret that all nodes share: any bytes, at least 16. It may hold two with an empty line between them: the node proves itself
    /// by the first and takes both. Read again when it changes.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_secret_file: Option<PathBuf>,
    /// A PEM file with this node's certificate for the host by which the others reach it: what nodes say to each other is then under TLS.
    /// Read again when it changes, as the two below.
    #[arg(long, value_name = "FILE", requires_all = ["cluster", "peer_tls_key", "peer_tls_ca"])]
    peer_tls_cert: Option<PathBuf>,
    /// A PEM file with the certificate's private key.
    #[arg(long, value_name = "FILE", requires = "peer_tls_cert")]
    peer_tls_key: Option<PathBuf>,
    /// A PEM file with the roots that have signed the certificates of all nodes.
    #[arg(long, value_name = "FILE", requires = "peer_tls_cert")]
    peer_tls_ca: Option<PathBuf>,
    /// The time for which a silent node counts as alive. A dead node is noticed after 1.25 times this. At least 1s.
    #[arg(long, value_name = "TIME", requires = "cluster", default_value = "3s", value_parser = lease)]
    cluster_lease: Duration,
    /// Tell clients which node owns which shards, at `GET /cluster`, and the URL of an entity's owner in each of its answers (`Throng-Owner`). A
    /// client that asks the owner saves the way through another node.
    #[arg(long, requires = "cluster")]
    tell_owner: bool,
    /// The URL at which clients reach this node, if it is not the address on which it listens. The other nodes and `cluster status` show it.
    #[arg(long, value_name = "URL", requires = "cluster", value_parser = url)]
    advertise: Option<String>,
    /// Own nothing while at least this many other nodes serve: a standby node. It takes requests all the same.
    #[arg(long, value_name = "NODES", requires = "cluster", value_parser = clap::value_parser!(u16).range(1..))]
    standby: Option<u16>,
    /// The service's release: shards go to nodes of an equal or greater one. Raise it with each release. A journal that was finalized at a greater
    /// one also refuses an engine without --cluster.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
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

fn url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    match host {
        Some(host) if !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("write for example http://a.example:8080, without a path".into()),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    match limits::duration(text) {
        Ok(lease) if lease < LEASE_MIN => Err(format!("a lease has {LEASE_MIN:?} at least")),
        lease => lease,
    }
}

/// The settings of this service as a node of a cluster, from its arguments.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    name: String,
    listen: SocketAddr,
    advertise: Option<String>,
    trust: Trust,
    secret_file: Option<PathBuf>,
    /// Certificate, key and roots.
    tls_files: Option<[PathBuf; 3]>,
    timing: Timing,
    tell_owner: bool,
    client_url: Option<String>,
    standby: Option<usize>,
    app: u64,
}

impl ClusterArguments {
    /// The service's release.
    pub(crate) fn release(&self) -> u64 {
        self.app_number
    }

    /// Returns the settings from the arguments; `None` for a service without a cluster.
    ///
    /// # Errors
    /// Other machines cannot reach the address, or a file of the secret or of TLS is missing or unusable.
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
        let (trust, tls_files) = self.trust()?;
        Ok(Some(ClusterSettings {
            name: name.clone(),
            listen: self.peer_listen,
            advertise: self.peer_advertise.clone(),
            trust,
            secret_file: self.cluster_secret_file.clone(),
            tls_files,
            timing: Timing::of(self.cluster_lease),
            tell_owner: self.tell_owner,
            client_url: self.advertise.clone(),
            standby: self.standby.map(usize::from),
            app: self.app_number,
        }))
    }

    fn trust(&self) -> anyhow::Result<(Trust, Option<[PathBuf; 3]>)> {
        let has_tls = self.peer_tls_cert.is_some();
        let trust = Trust::by_secret(Secret::new(b""));
        let read = |path: &PathBuf| fs::read(path).with_context(|| format!("{} cannot be read", path.display()));
        match &self.cluster_secret_file {
            None if !self.peer_listen.ip().is_loopback() && !has_tls => bail!(
                "--peer-listen {} is open to other machines: give all nodes the same --cluster-secret-file, or certificates with --peer-tls-cert, or \
                 listen on 127.0.0.1",
                self.peer_listen
            ),
            None => {}
            Some(file) => {
                warn_if_open(file, Guarded::Private);
                set_secrets(&trust, &read(file)?).map_err(|why| anyhow!("{}: {why}", file.display()))?;
            }
        }
        let files = [&self.peer_tls_cert, &self.peer_tls_key, &self.peer_tls_ca];
        let [Some(certificate), Some(key), Some(roots)] = files else {
            return Ok((trust, None));
        };
        warn_if_open(key, Guarded::Private);
        let contents = [read(certificate)?, read(key)?, read(roots)?];
        let names = [certificate, key, roots]
            .map(|file| file.display().to_string())
            .join(", ");
        set_tls(&trust, &contents).map_err(|why| anyhow!("{names}: {why}"))?;
        Ok((trust, Some([certificate, key, roots].map(Clone::clone))))
    }
}

/// Takes the secret of a file, or two with an empty line between them.
fn set_secrets(trust: &Trust, bytes: &[u8]) -> Result<(), String> {
    const BYTES_MIN: usize = 16;
    const COUNT_MAX: usize = 2;
    let mut parts: Vec<Vec<u8>> = vec![Vec::new()];
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let separates = line.trim_ascii().is_empty();
        if separates && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut().filter(|_| !separates) {
            part.extend_from_slice(line);
        }
    }
    let secrets: Vec<&[u8]> = parts.iter().map(|part| part.trim_ascii()).collect();
    let secrets = match secrets.split_last() {
        Some((last, before)) if last.is_empty() && !before.is_empty() => before,
        _ => &secrets[..],
    };
    if secrets.len() > COUNT_MAX {
        let count = secrets.len();
        return Err(format!(
            "there are {count} secrets of the cluster in it, with empty lines between them: at most {COUNT_MAX} hold at once"
        ));
    }
    if let Some(short) = secrets
        .iter()
        .map(|secret| secret.len())
        .find(|bytes| *bytes < BYTES_MIN)
    {
        return Err(format!(
            "a secret of the cluster has {short} bytes, at least {BYTES_MIN} are needed; an empty line separates two secrets"
        ));
    }
    let mut secrets = secrets.iter().copied().map(Secret::new);
    if let Some(first) = secrets.next() {
        trust.set_secrets(first, secrets);
    }
    Ok(())
}

/// Takes certificate, key and roots.
fn set_tls(trust: &Trust, files: &[Vec<u8>]) -> Result<(), String> {
    let [certificate, key, roots] = files else {
        return Err("a certificate, its key and a CA are needed".into());
    };
    check_private_key(key).map_err(|why| format!("--peer-tls-key: {why}"))?;
    trust
        .set_tls(certificate, key, roots)
        .map_err(|why| format!("--peer-tls-cert, --peer-tls-key and --peer-tls-ca do not do: {why}"))
}

impl ClusterSettings {
    /// Returns the time for which an engine may answer after its last renewal of the lease.
    pub(crate) fn lease(&self) -> Duration {
        self.timing.lease
    }

    /// The connections to the other nodes, for the engine.
    pub(crate) fn links(&self, shards: u16) -> Links {
        Links::new(shards, self.trust.clone())
    }

    /// Has a gateway report the node's state, and reload the files by which nodes authenticate each other.
    pub(crate) fn tell(&self, mut gateway: Gateway, statuses: &Statuses) -> Gateway {
        let of_health = Arc::clone(statuses);
        gateway = gateway.closed().health(move || {
            let found = of_health.get().and_then(|statuses| check(&statuses.borrow()));
            found.into_iter().collect()
        });
        if self.tell_owner {
            let (of_owners, of_one) = (Arc::clone(statuses), Arc::clone(statuses));
            gateway = gateway
                .owners(move || {
                    of_owners
                        .get()
                        .map_or(Value::Null, |statuses| owners(&statuses.borrow()))
                })
                .tell_owner(move |shard| owner(&of_one.get()?.borrow(), shard));
        }
        if let Some(file) = &self.secret_file {
            let trust = self.trust.clone();
            gateway = gateway.watch_files(vec![file.clone()], move |files| set_secrets(&trust, &files.concat()));
        }
        if let Some(files) = &self.tls_files {
            let trust = self.trust.clone();
            gateway = gateway.watch_files(files.to_vec(), move |files| set_tls(&trust, files));
        }
        gateway
    }

    /// Joins the cluster. The node can serve only after [a while](await_serving).
    pub(crate) fn start(
        &self,
        directory: Arc<dyn Directory>,
        engine: &Engine,
        links: Links,
        program: String,
        gateway: &Running,
    ) -> anyhow::Result<Node> {
        // The address of every interface is no host. `settings()` has made sure that another one was named in that case.
        let listens_at = self.listen.ip().to_string();
        let host_of = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
        let peer_host = self.advertise.as_deref().and_then(host_of).unwrap_or(listens_at);
        let host: Arc<dyn Host> = Arc::new(engine.driver());
        let client_url = self.client_url.clone();
        let options = NodeOptions {
            join: Join {
                name: self.name.clone(),
                peer: self.advertise.clone().unwrap_or_default(),
                http: client_url.unwrap_or_else(|| reachable(&gateway.url(), gateway.address(), &peer_host)),
                program,
                app: self.app,
                features: FEATURES,
                shards: engine.registry().shards(),
                lease: self.timing.lease,
                kinds: engine
                    .registry()
                    .kinds()
                    .iter()
                    .map(|kind| kind.name.to_owned())
                    .collect(),
            },
            listen: self.listen,
            trust: self.trust.clone(),
            timing: self.timing,
            standby: self.standby,
            loops: gateway.loops().to_vec(),
        };
        control::tell(
            &links,
            gateway.report(),
            control::console_url(gateway.admin_address(), &peer_host),
        );
        Ok(Node::start(directory, host, links, options)?)
    }
}

/// Waits until a joined node can serve, and returns true then. `is_over` is called meanwhile with the reason for the wait; if it returns
/// true, the wait ends with `false`.
pub(crate) fn await_serving(node: &Node, mut is_over: impl FnMut(&str) -> bool) -> bool {
    let mut told = Instant::now();
    while !node.wait_until_serving(LOOK_EVERY) {
        let why = node
            .status()
            .apart
            .unwrap_or_else(|| "its shards are not open yet".into());
        if is_over(&why) {
            return false;
        }
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            tracing::warn!("the node cannot serve yet, and its port for clients stays closed until it can: {why}");
        }
    }
    true
}

/// Returns the URL at which others reach a service. If it listens at every interface, this is the host at which other nodes reach this one.
fn reachable(url: &str, listens_at: SocketAddr, peer_host: &str) -> String {
    match listens_at.ip().is_unspecified() {
        true => url.replacen(
            &listens_at.to_string(),
            &format!("{peer_host}:{}", listens_at.port()),
            1,
        ),
        false => url.to_owned(),
    }
}

/// Reports that a node may own nothing, and so is not ready, or that other nodes use another database server.
fn check(status: &Status) -> Option<Check> {
    let apart = status.apart.as_ref().map(|why| (health::Status::Fail, why));
    let (status, why) = apart.or_else(|| Some((health::Status::Warn, status.two_primaries.as_ref()?)))?;
    Some(Check {
        name: "cluster".into(),
        status,
        reason: Reason::Other(why.clone()),
    })
}

/// Returns the error for a journal that nodes cannot share.
pub(crate) fn not_shared(place: &JournalLocation) -> anyhow::Error {
    anyhow::anyhow!(
        "nodes of a cluster share a journal on PostgreSQL; {place} is one process's: write --journal postgres://USER@HOST/DATABASE"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cluster: ClusterArguments,
    }

    #[test]
    fn peer_address_that_is_none_is_answered_with_an_example() {
        let line = ["serve", "--cluster", "--name", "a", "--peer-listen", "localhost:7400"];
        let said = Line::try_parse_from(line).err().unwrap().to_string();
        assert!(said.contains("127.0.0.1:7400"), "{said}");
    }

    #[test]
    fn clients_are_told_a_host_where_a_node_listens_everywhere() {
        let told = |url: &str, address: &str| reachable(url, address.parse().unwrap(), "b.internal");
        assert_eq!(told("https://0.0.0.0:80", "0.0.0.0:80"), "https://b.internal:80");
        assert_eq!(told("http://[::]:80", "[::]:80"), "http://b.internal:80");
        assert_eq!(told("http://10.0.0.7:80", "10.0.0.7:80"), "http://10.0.0.7:80");
        assert_eq!(url("https://a.example:8443/").unwrap(), "https://a.example:8443");
        for wrong in ["a.example:80", "http://", "http://a/b", "http://a b", "http://a\r\nb"] {
            assert!(url(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn lease_below_a_second_is_refused() {
        let line = |lease| ["serve", "--cluster", "--name", "a", "--cluster-lease", lease];
        let said = Line::try_parse_from(line("500ms")).err().unwrap().to_string();
        assert!(said.contains("1s at least"), "{said}");
        assert!(Line::try_parse_from(line("1s")).is_ok());
    }

    #[test]
    fn key_of_a_node_that_asks_for_a_passphrase_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["cert.pem", "ca.pem"] {
            fs::write(path(name), "").unwrap();
        }
        let key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        fs::write(path("key.pem"), key).unwrap();
        let files = [
            "--peer-tls-cert",
            "cert.pem",
            "--peer-tls-key",
            "key.pem",
            "--peer-tls-ca",
            "ca.pem",
        ];
        let files = files.chunks(2).flat_map(|pair| [pair[0].to_owned(), path(pair[1])]);
        let line = ["serve", "--cluster", "--name", "a"].map(str::to_owned).into_iter();
        let said = Line::parse_from(line.chain(files))
            .cluster
            .trust()
            .unwrap_err()
            .to_string();
        assert!(said.contains("key.pem") && said.contains("encrypted"), "{said}");
    }

    #[test]
    fn secret_file_holds_two_secrets_at_most() {
        let trust = Trust::by_secret(Secret::new(b""));
        let set = |text: &str| set_secrets(&trust, text.as_bytes());
        let (one, other) = ("0123456789abcdef", "fedcba9876543210");
        for good in [
            one.to_owned(),
            format!("{one}\n"),
            format!("{one}\n\n{other}\n"),
            format!("\n{one}\r\n\r\n\n{other}\n\n"),
            // Spread over several lines, as `openssl rand -base64` writes it.
            format!("{one}\n{other}\nend"),
        ] {
            assert_eq!(set(&good), Ok(()), "{good:?}");
        }
        for (bad, word) in [
            (String::new(), "has 0 bytes"),
            (format!("{one}\n\nshort"), "has 5 bytes"),
            (format!("{one}\n\n{other}\n\n{one}"), "3 secrets"),
        ] {
            let said = set(&bad).unwrap_err();
            assert!(said.contains(word), "{bad:?}: {said}");
        }
    }
}
