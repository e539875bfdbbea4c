//! A private network for three nodes with lines that can be cut: in namespaces of this machine, or through proxies of this process.

use super::{
    cluster::NODES,
    namespaces::Namespaces,
    proxies::{LinkFate, Proxies},
};
use crate::service::Launch;
use servers::Postgres;
use std::{fs, net::SocketAddr, path::Path};

/// The ends that are cut off from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Cuts a node off from the database and from the other nodes. Its clients still reach it.
    Node(usize),
    /// Cuts a node off from the other nodes. All reach the database.
    FromOthers(usize),
    /// Cuts the database off from all nodes.
    Database,
}

/// The manner of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Everything is dropped in both directions, without an error.
    Silent,
    /// Everything that the node sends is dropped. The others' messages arrive.
    Unheard,
    /// Everything that is sent to the node is dropped. Its own messages arrive.
    Deaf,
    /// Existing and new connections are reset.
    Reset,
}

impl How {
    const ALL: [Self; 4] = [Self::Silent, Self::Unheard, Self::Deaf, Self::Reset];
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) what: What,
    pub(super) how: How,
}

pub(super) enum Network {
    /// Links that are taken down. They need root.
    Namespaces(Namespaces),
    /// Connections that are held or reset. They need no rights.
    Proxies(Proxies),
}

impl Network {
    /// Returns a cut in a random manner that this network supports.
    pub(super) fn cut(&self, what: What, random: &mut fastrand::Rng) -> Cut {
        let how = match self {
            Self::Namespaces(_) => How::Silent,
            Self::Proxies(_) => How::ALL[random.usize(..How::ALL.len())],
        };
        Cut { what, how }
    }

    /// Places a node in this network, with this database and schema.
    pub(super) fn place(
        &self,
        launch: &mut Launch,
        node: usize,
        (server, schema): (&Postgres, &str),
        directory: &Path,
    ) -> anyhow::Result<()> {
        // TLS is not needed, because nothing leaves the machine.
        let options = format!("schema={schema}&lease=1s&sslmode=disable");
        let peers = match self {
            Self::Namespaces(own) => {
                let url = server.url_at(own.database().into(), "postgres");
                launch.place = format!("{url}?{options}");
                launch.within = Some(own.within(node));
                let listen = SocketAddr::new(own.peer(node).into(), 0).to_string();
                vec!["--peer-listen".into(), listen]
            }
            Self::Proxies(own) => {
                let (direct, through) = (format!(":{}/", server.port()), format!(":{}/", own.database_port(node)));
                let url = server.url("postgres").replacen(&direct, &through, 1);
                launch.place = format!("{url}?{options}");
                own.peer_arguments(node)
            }
        };
        let secret = directory.join("secret");
        fs::write(&secret, "a secret that all nodes share")?;
        launch.arguments.extend(peers);
        let secret = secret.display().to_string();
        launch.arguments.extend(["--cluster-secret-file".into(), secret]);
        Ok(())
    }

    /// Cuts a line, or mends it.
    pub(super) fn set(&self, cut: Cut, is_cut: bool) -> anyhow::Result<()> {
        match self {
            Self::Namespaces(own) => own.set(cut.what, is_cut),
            Self::Proxies(own) => {
                for (one, other) in lines(cut.what) {
                    let [there, back] = if is_cut { cut.how.lines() } else { [LinkFate::Open; 2] };
                    own.set((one, other), there);
                    own.set((other, one), back);
                }
                Ok(())
            }
        }
    }
}

/// The index of the database among the ends of lines. The nodes have indexes from 0.
pub(super) const DATABASE: usize = NODES;

/// Returns the lines to cut, from the end that is cut off to the others.
fn lines(what: What) -> Vec<(usize, usize)> {
    let others = |node: usize| (0..NODES).filter(move |other| *other != node);
    match what {
        What::Node(node) => others(node).chain([DATABASE]).map(|other| (node, other)).collect(),
        What::FromOthers(node) => others(node).map(|other| (node, other)).collect(),
        What::Database => (0..NODES).map(|node| (DATABASE, node)).collect(),
    }
}

impl How {
    /// Returns the fate of the line from the end that is cut off, and of the line to it.
    fn lines(self) -> [LinkFate; 2] {
        match self {
            Self::Silent => [LinkFate::Held, LinkFate::Held],
            Self::Unheard => [LinkFate::Held, LinkFate::Open],
            Self::Deaf => [LinkFate::Open, LinkFate::Held],
            Self::Reset => [LinkFate::Reset, LinkFate::Reset],
        }
    }
}
