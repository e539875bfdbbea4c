//! A network through proxies of this process. Each node reaches the database through a proxy of its own, and the others reach it through another.
//! Bytes can be held in each direction, or connections reset. No rights are needed.
//!
//! The kernel tells which node made a connection to another node: the process that has the socket at its other end.

use super::{cluster::NODES, network::DATABASE};
use anyhow::Context as _;
use std::{
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{oneshot, watch},
};

/// The fate of bytes in one direction of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkFate {
    Open,
    /// Bytes are kept and passed on once the line is open again.
    Held,
    Reset,
}

/// The number of ends: the nodes and the database.
const ENDS: usize = NODES + 1;
const BUFFER_BYTES: usize = 64 << 10;
/// The pause between two attempts to accept a connection, or to find its owner.
const AGAIN: Duration = Duration::from_millis(20);
/// The most attempts to find a connection's owner.
const TRIES: usize = 50;

/// The directions from each end to each other end.
struct Lines {
    ways: [[watch::Sender<LinkFate>; ENDS]; ENDS],
}

impl Lines {
    fn way(&self, from: usize, to: usize) -> watch::Receiver<LinkFate> {
        self.ways[from][to].subscribe()
    }
}

/// A listening port, and the address to which its connections are passed on.
struct Front {
    listener: TcpListener,
    to: SocketAddr,
    /// The node whose connections arrive here, or `None` if their owner has to be found out.
    from: Option<usize>,
    /// The end to which these connections go.
    end: usize,
}

pub(super) struct Proxies {
    lines: Arc<Lines>,
    /// The database ports, by node.
    database_ports: Vec<u16>,
    /// The port of each node that it listens on for the others, and the port that they connect to.
    peer_ports: Vec<(u16, u16)>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the reason if this machine cannot have it.
pub(super) fn unavailable() -> Option<String> {
    let is_there = fs::exists("/proc/net/tcp").unwrap_or(false);
    (!is_there).then(|| "needs /proc, to know whose a connection is".to_owned())
}

fn listen() -> anyhow::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a proxy finds no port")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

impl Proxies {
    /// Starts the lines between nodes, and to a database at a port of this machine.
    pub(super) fn start(database: u16) -> anyhow::Result<Self> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (mut fronts, mut database_ports, mut peer_ports) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..NODES {
            let (listener, port) = listen()?;
            database_ports.push(port);
            fronts.push(Front {
                listener,
                to: at(database),
                from: Some(node),
                end: DATABASE,
            });
            let (listener, reached) = listen()?;
            // The port is free now, and the node will listen on it.
            let (_, own) = listen()?;
            peer_ports.push((own, reached));
            fronts.push(Front {
                listener,
                to: at(own),
                from: None,
                end: node,
            });
        }
        let ways = std::array::from_fn(|_| std::array::from_fn(|_| watch::Sender::new(LinkFate::Open)));
        let lines = Arc::new(Lines { ways });
        let (end, ends) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let of_thread = Arc::clone(&lines);
        let thread = thread::Builder::new().name("proxies".into()).spawn(move || {
            runtime.block_on(async {
                for front in fronts {
                    tokio::spawn(accept(front, Arc::clone(&of_thread)));
                }
                let _ = ends.await;
            });
        })?;
        Ok(Self {
            lines,
            database_ports,
            peer_ports,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Returns the port where a node reaches the database.
    pub(super) fn database_port(&self, node: usize) -> u16 {
        self.database_ports[node]
    }

    /// Returns the arguments for a node, so that the others reach it here.
    pub(super) fn peer_arguments(&self, node: usize) -> Vec<String> {
        let (own, reached) = self.peer_ports[node];
        let arguments = [
            "--peer-listen",
            &format!("127.0.0.1:{own}"),
            "--peer-advertise",
            &format!("127.0.0.1:{reached}"),
        ];
        arguments.map(str::to_owned).to_vec()
    }

    /// Sets the fate of the line from one end to another.
    pub(super) fn set(&self, (from, to): (usize, usize), line: LinkFate) {
        self.lines.ways[from][to].send_replace(line);
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        // Fails only if the thread has ended already.
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(front: Front, lines: Arc<Lines>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(front.listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                tokio::spawn(pass_on(
                    stream,
                    from.port(),
                    (front.from, front.end, front.to),
                    Arc::clone(&lines),
                ));
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Passes a connection on to its end.
async fn pass_on(stream: TcpStream, port: u16, (from, end, to): (Option<usize>, usize, SocketAddr), lines: Arc<Lines>) {
    let mut from = from;
    for _ in 0..TRIES {
        if from.is_some() {
            break;
        }
        from = node_with(port);
        if from.is_none() {
            tokio::time::sleep(AGAIN).await;
        }
    }
    let Some(from) = from else { return };
    let (mut there, mut back) = (lines.way(from, end), lines.way(end, from));
    let of_reset = (lines.way(from, end), lines.way(end, from));
    let both = async {
        open(&mut there).await;
        let other = TcpStream::connect(to).await?;
        let passed = tokio::select! {
            passed = pump(&stream, &other, &mut there) => passed,
            passed = pump(&other, &stream, &mut back) => passed,
            () = reset(of_reset) => Err(io::Error::from(ErrorKind::ConnectionReset)),
        };
        if passed.is_err() {
            other.set_zero_linger()?;
        }
        passed
    };
    if both.await.is_err() {
        // The other end gets a reset at once, not an orderly end.
        let _ = stream.set_zero_linger();
    }
}

/// Passes on the bytes of one direction until it ends or fails.
async fn pump(from: &TcpStream, to: &TcpStream, way: &mut watch::Receiver<LinkFate>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        from.readable().await?;
        let count = match from.try_read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        // A held line also holds the end of the connection.
        open(way).await;
        if count == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            to.writable().await?;
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Waits while the line is held.
async fn open(way: &mut watch::Receiver<LinkFate>) {
    becomes(way, |line| line != LinkFate::Held).await;
}

async fn reset((mut there, mut back): (watch::Receiver<LinkFate>, watch::Receiver<LinkFate>)) {
    tokio::select! {
        () = becomes(&mut there, |line| line == LinkFate::Reset) => {}
        () = becomes(&mut back, |line| line == LinkFate::Reset) => {}
    }
}

async fn becomes(way: &mut watch::Receiver<LinkFate>, is_it: impl Fn(LinkFate) -> bool) {
    // The sender exists as long as the connection.
    let _ = way.wait_for(|line| is_it(*line)).await;
}

/// Returns the number of the node that has a connection from this port of 127.0.0.1, or `None` if no node has it.
fn node_with(port: u16) -> Option<usize> {
    let sockets = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = inode_of(&sockets, port)?;
    let socket = format!("socket:[{inode}]");
    let own = std::process::id();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let nodes = processes.filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        (parent.trim().parse() == Ok(own)).then(|| entry.path())
    });
    for process in nodes {
        let Ok(files) = fs::read_dir(process.join("fd")) else {
            continue;
        };
        let mut files = files.flatten();
        if files.any(|file| fs::read_link(file.path()).is_ok_and(|of| of.as_os_str() == socket.as_str())) {
            return node_of(&fs::read(process.join("cmdline")).ok()?);
        }
    }
    None
}

/// Returns the inode of the connected socket at a port of 127.0.0.1, from the kernel's table.
fn inode_of(sockets: &str, port: u16) -> Option<&str> {
    const ESTABLISHED: &str = "01";
    let local = format!("0100007F:{port:04X}");
    sockets.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (*fields.get(1)? == local && *fields.get(3)? == ESTABLISHED).then(|| fields.get(9).copied())?
    })
}

/// Returns the node's number from its command line.
fn node_of(command: &[u8]) -> Option<usize> {
    let mut words = command.split(|byte| *byte == 0).skip_while(|word| word != b"--name");
    let name = std::str::from_utf8(words.nth(1)?).ok()?;
    name.strip_prefix('n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn each_connection_has_a_known_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = stream.local_addr().unwrap().port();
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        let inode = inode_of(&sockets, port).unwrap();
        let mut own = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let socket = format!("socket:[{inode}]");
        assert!(own.any(|file| fs::read_link(file.path()).is_ok_and(|of| of.as_os_str() == socket.as_str())));
        // This process is no node.
        assert_eq!(node_with(port), None);
        assert_eq!(node_of(b"throng\0serve\0--cluster\0--name\0n2\0"), Some(2));
        assert_eq!(node_of(b"throng\0serve\0"), None);
    }

    #[test]
    fn a_line_is_held_each_way_by_itself_goes_on_and_is_reset() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxies = Proxies::start(server.local_addr().unwrap().port()).unwrap();
        let mut client = std::net::TcpStream::connect(("127.0.0.1", proxies.database_port(1))).unwrap();
        let (mut database, _) = server.accept().unwrap();
        let say = |by: &mut std::net::TcpStream, what: &[u8]| by.write_all(what).unwrap();
        let heard = |by: &mut std::net::TcpStream, what: &[u8]| {
            let mut found = vec![0; what.len()];
            by.read_exact(&mut found).unwrap();
            assert_eq!(found, what);
        };
        say(&mut client, b"a");
        heard(&mut database, b"a");
        proxies.set((1, DATABASE), LinkFate::Held);
        say(&mut client, b"b");
        say(&mut database, b"c");
        heard(&mut client, b"c");
        database.set_nonblocking(true).unwrap();
        let nothing = database.read(&mut [0; 1]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        database.set_nonblocking(false).unwrap();
        proxies.set((1, DATABASE), LinkFate::Open);
        heard(&mut database, b"b");
        proxies.set((DATABASE, 1), LinkFate::Reset);
        let reset = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        assert_eq!(
            database.read(&mut [0; 1]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        let mut again = std::net::TcpStream::connect(("127.0.0.1", proxies.database_port(1))).unwrap();
        assert!(again.read(&mut [0; 1]).is_err(), "new ones are reset too");
    }
}
