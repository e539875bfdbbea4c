//! A private network for three nodes, in namespaces of this machine. Each node has one link to its clients, one to the database and one to the other
//! nodes. Each link can be cut.

use super::{cluster::NODES, network::What};
use crate::service::Within;
use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr},
    process::Command,
};

/// A network with addresses that are reserved for network tests and never routed (RFC 2544). `198.18.number.x` leads to database and clients,
/// `198.19.number.x` is between nodes.
pub(super) struct Namespaces {
    /// The prefix of all names.
    name: String,
    number: u8,
}

/// The number of leading bits of the network of the database's bridge.
const DATABASE_BITS: u8 = 25;

/// Returns the reason if this machine cannot have one.
pub(super) fn unavailable() -> Option<String> {
    const WHAT: &str = "for network namespaces of its own";
    if !rustix::process::geteuid().is_root() {
        return Some(format!("needs root, {WHAT}"));
    }
    let listed = Command::new("ip").args(["netns", "list"]).output();
    let is_there = listed.is_ok_and(|listed| listed.status.success());
    (!is_there).then(|| format!("needs ip of iproute2, {WHAT}"))
}

impl Namespaces {
    pub(super) fn create() -> anyhow::Result<Self> {
        remove_those_of_the_dead();
        let process = std::process::id();
        let taken = said(&["-o", "-4", "address", "show"])?;
        let is_free = |number: &u8| !taken.contains(&format!(" 198.18.{number}."));
        let first = process as u8;
        let mut numbers = (0..=u8::MAX).map(|further| first.wrapping_add(further));
        let network = Self {
            name: name_of(process),
            number: numbers
                .find(is_free)
                .context("all addresses for tests of networks are taken")?,
        };
        // From here on the drop removes everything, even if this call fails.
        network.make()?;
        Ok(network)
    }

    fn make(&self) -> anyhow::Result<()> {
        let (bridge, hub) = (self.bridge(), self.hub());
        // The hub comes first: by its name the next run finds the remains if this one is killed.
        ip(&format!("netns add {hub}"))?;
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("address add {}/{DATABASE_BITS} dev {bridge}", self.database()))?;
        ip(&format!("link set {bridge} up"))?;
        ip(&format!("-n {hub} link add peers type bridge"))?;
        ip(&format!("-n {hub} link set peers up"))?;
        (0..NODES).try_for_each(|node| self.add(node))
    }

    fn add(&self, node: usize) -> anyhow::Result<()> {
        let (Self { name, number, .. }, bridge, hub, of) = (self, self.bridge(), self.hub(), self.namespace(node));
        let place = node + 10;
        ip(&format!("netns add {of}"))?;
        ip(&format!("-n {of} link set lo up"))?;

        ip(&format!(
            "link add {name}d{node} type veth peer name database netns {of}"
        ))?;
        ip(&format!("link set {name}d{node} master {bridge} up"))?;
        ip(&format!(
            "-n {of} address add 198.18.{number}.{place}/{DATABASE_BITS} dev database"
        ))?;
        ip(&format!("-n {of} link set database up"))?;

        ip(&format!(
            "link add {name}c{node} type veth peer name clients netns {of}"
        ))?;
        ip(&format!("address add {}/30 dev {name}c{node}", self.clients(node, 1)))?;
        ip(&format!("link set {name}c{node} up"))?;
        ip(&format!("-n {of} address add {}/30 dev clients", self.clients(node, 2)))?;
        ip(&format!("-n {of} link set clients up"))?;

        ip(&format!(
            "-n {hub} link add peers{node} type veth peer name peers netns {of}"
        ))?;
        ip(&format!("-n {hub} link set peers{node} master peers up"))?;
        ip(&format!("-n {of} address add {}/24 dev peers", self.peer(node)))?;
        ip(&format!("-n {of} link set peers up"))
    }

    fn bridge(&self) -> String {
        format!("{}d", self.name)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    fn namespace(&self, node: usize) -> String {
        format!("{}-{node}", self.name)
    }

    /// Returns the address of the database.
    pub(super) fn database(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, 1)
    }

    /// Returns the same address, with the bits of the network that its clients come from.
    pub(super) fn of_database(&self) -> (IpAddr, u8) {
        (self.database().into(), DATABASE_BITS)
    }

    /// Returns an address of the link between clients and a node: 1 is the clients' end, 2 the node's.
    fn clients(&self, node: usize, end: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, 128 + 4 * node as u8 + end)
    }

    /// Returns the address on which a node listens for the others.
    pub(super) fn peer(&self, node: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.number, 10 + node as u8)
    }

    /// Returns the namespace in which a node's process is started, and its address for clients.
    pub(super) fn within(&self, node: usize) -> Within {
        Within {
            namespace: self.namespace(node),
            address: self.clients(node, 2).into(),
        }
    }

    /// Takes links down, or up again.
    pub(super) fn set(&self, what: What, is_cut: bool) -> anyhow::Result<()> {
        let state = if is_cut { "down" } else { "up" };
        let (name, hub) = (&self.name, self.hub());
        let database = |node: usize| ip(&format!("link set {name}d{node} {state}"));
        let others = |node: usize| ip(&format!("-n {hub} link set peers{node} {state}"));
        match what {
            What::Node(node) => {
                database(node)?;
                others(node)
            }
            What::FromOthers(node) => others(node),
            What::Database => (0..NODES).try_for_each(database),
        }
    }
}

/// Returns the prefix of all names of a run's process. It has at most seven letters, because names of links have at most fifteen.
fn name_of(process: u32) -> String {
    format!("t{:x}", process & 0xff_ffff)
}

/// Returns the process of the run that a namespace belongs to.
fn process_of(namespace: &str) -> Option<u32> {
    let (process, of) = namespace.strip_prefix('t')?.split_once('-')?;
    let is_ours = of == "hub" || of.parse::<usize>().is_ok_and(|node| node < NODES);
    let process = u32::from_str_radix(process, 16).ok()?;
    (is_ours && namespace.starts_with(&format!("{}-", name_of(process)))).then_some(process)
}

/// Returns true if the process has ended. If its number was given to another process, the remains stay until a later run.
fn has_ended(process: u32) -> bool {
    !fs::exists(format!("/proc/{process}")).unwrap_or(true)
}

/// Removes the remains of a killed run: its nodes, which continue in their namespaces, the namespaces and their links.
fn remove_those_of_the_dead() {
    let listed = said(&["netns", "list"]).unwrap_or_default();
    let namespaces: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    let left = |namespace: &&&str| process_of(namespace).is_some_and(has_ended);
    for namespace in namespaces.iter().filter(left) {
        let within = said(&["netns", "pids", namespace]).unwrap_or_default();
        for process in within.split_whitespace().filter_map(|id| id.parse().ok()) {
            let _ = rustix::process::Pid::from_raw(process)
                .map(|id| rustix::process::kill_process(id, rustix::process::Signal::KILL));
        }
    }
    let dead: BTreeSet<u32> = namespaces.iter().filter(left).filter_map(|of| process_of(of)).collect();
    for process in dead {
        let name = name_of(process);
        eprintln!("note: removing the network namespaces {name}-… of a bench that was killed");
        drop(Namespaces { name, number: 0 });
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Removing what was not made fails harmlessly. A link is removed with either of its ends.
        let namespaces = (0..NODES).map(|node| self.namespace(node)).chain([self.hub()]);
        let namespaces: Vec<String> = namespaces.collect();
        for node in 0..NODES {
            let _ = ip(&format!("link delete {}d{node}", self.name));
            let _ = ip(&format!("link delete {}c{node}", self.name));
        }
        let _ = ip(&format!("link delete {}", self.bridge()));
        for namespace in &namespaces {
            let _ = ip(&format!("netns delete {namespace}"));
        }
        let left = said(&["netns", "list"]).unwrap_or_default();
        if left
            .split_whitespace()
            .any(|word| namespaces.iter().any(|namespace| namespace == word))
        {
            eprintln!(
                "note: network namespaces that begin with {} stay: ip netns delete removes them",
                self.name
            );
        }
    }
}

/// Runs `ip` with these arguments.
fn ip(command: &str) -> anyhow::Result<()> {
    said(&command.split(' ').collect::<Vec<_>>()).map(drop)
}

fn said(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "ip {} failed: {}",
        arguments.join(" "),
        error.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_namespace_says_which_bench_it_is_of() {
        assert_eq!(process_of("t1a2b-hub"), Some(0x1a2b));
        assert_eq!(process_of("t1a2b-2"), Some(0x1a2b));
        for other in ["t1a2b-3", "t1a2b", "team-1", "t-1", "t01-1", "x1a2b-hub", "t1a2b-hub-2"] {
            assert_eq!(process_of(other), None, "{other}");
        }
    }

    #[test]
    fn leftovers_of_a_killed_bench_go_and_a_living_ones_stay() {
        if let Some(why) = unavailable() {
            return println!("not tried: {why}");
        }
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let [dead, living] = [ended.id(), std::process::id()].map(|process| format!("{}-1", name_of(process)));
        for namespace in [&dead, &living] {
            ip(&format!("netns add {namespace}")).unwrap();
        }
        let mut node = Command::new("ip")
            .args(["netns", "exec", &dead, "sleep", "1000"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The process appears once it has entered the namespace.
        while said(&["netns", "pids", &dead]).unwrap().trim().is_empty() {
            std::thread::yield_now();
        }
        remove_those_of_the_dead();
        let listed = said(&["netns", "list"]).unwrap();
        let is_there = |namespace: &String| listed.lines().any(|line| line.split(' ').next() == Some(namespace));
        let left = [&dead, &living].map(is_there);
        ip(&format!("netns delete {living}")).unwrap();
        let killed = node.wait().unwrap();
        assert_eq!((left, killed.success()), ([false, true], false));
    }
}
