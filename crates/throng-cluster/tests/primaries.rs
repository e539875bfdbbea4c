//! Two primaries of one database, each with a node. A standby was promoted although its primary still runs.
#![allow(clippy::unwrap_used, reason = "tests")]

use servers::{Postgres, PostgresOptions};
use std::{
    io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::Duration,
};
use throng::driver::peers::{Reply, Request};
use throng_cluster::{Host, Links, Node, NodeOptions, Timing, Trust, frame::Secret};
use throng_journal::{Error, FEATURES, Join, Later, NodeId, ShardSet};
use throng_postgres::open_postgres;
use throng_testing::until;

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

fn start(name: &str, url: &str) -> Node {
    let trust = Trust::by_secret(Secret::new(b""));
    let options = NodeOptions {
        join: Join {
            name: name.into(),
            features: FEATURES,
            shards: 4,
            ..Join::default()
        },
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        trust: trust.clone(),
        timing: Timing::of(Duration::from_secs(1)),
        standby: None,
        loops: Vec::new(),
    };
    let directory = open_postgres(url.parse().unwrap()).unwrap().directory;
    Node::start(directory, Arc::new(Idle), Links::new(4, trust), options).unwrap()
}

/// A route to a server that can be redirected to another one.
struct Way {
    to: AtomicU16,
    open: Mutex<Vec<TcpStream>>,
}

impl Way {
    /// Opens a route. Returns it with its port.
    fn to(port: u16) -> (Arc<Self>, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let begins = listener.local_addr().unwrap().port();
        let way = Arc::new(Self {
            to: AtomicU16::new(port),
            open: Mutex::default(),
        });
        let passing = Arc::clone(&way);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // If nobody listens, the client is disconnected.
                let _ = passing.pass(client);
            }
        });
        (way, begins)
    }

    fn pass(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to.load(Ordering::SeqCst)))?;
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        self.open.lock().unwrap().push(client);
        Ok(())
    }

    fn turn(&self, to: u16) {
        self.to.store(to, Ordering::SeqCst);
        for open in self.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn second_primary_is_named_by_nodes_on_both() {
    let primary = Postgres::start(PostgresOptions::default()).unwrap();
    let standby = primary.standby("standby").unwrap();
    let (way, port) = Way::to(primary.port());
    let url = primary.url("postgres");
    let a = start("a", &url);
    let b = start("b", &url.replace(&format!(":{}", primary.port()), &format!(":{port}")));
    until("both serve, and are connected", || {
        [&a, &b].iter().all(|node| {
            let status = node.status();
            status.apart.is_none() && status.connected.len() == 1 && status.serves.len() == 2
        })
    });
    standby.until("SELECT count(*) = 2 FROM throng.nodes").unwrap();
    standby.promote().unwrap();
    way.turn(standby.port());
    for (node, other) in [(&a, "(b at"), (&b, "(a at")] {
        until("the other primary is found", || node.status().two_primaries.is_some());
        let told = node.status().two_primaries.unwrap();
        for part in [other, "TWO PRIMARIES", "timeline 00000001", "timeline 00000002"] {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
    }
}
