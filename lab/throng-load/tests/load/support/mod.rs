//! Servers on loopback that do what a test tells them to.

pub(crate) mod http2;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng_load::{Options, Target};

/// A request as received by the server: request line and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) body: String,
}

/// The server's treatment of a request.
pub(crate) enum Reply {
    /// Sends a complete answer with this status and body.
    Answer(u16, String),
    /// Sends these bytes and keeps the connection.
    Raw(Vec<u8>),
    /// Sends these bytes and closes the connection.
    RawThenClose(Vec<u8>),
    /// Closes with a reset.
    Reset,
    /// Takes the request and never answers.
    Hang,
}

/// A server with one thread for each connection. It ends with the test's process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server. `reply` gets the number of the request (over all connections, from 0) and the request.
    pub(crate) fn start(reply: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Server {
        Self::start_at(0, reply)
    }

    /// Starts a server at this port.
    pub(crate) fn start_at(port: u16, reply: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let (reply, count) = (Arc::new(reply), Arc::new(AtomicUsize::new(0)));
        let server = Server {
            address,
            seen: seen.clone(),
            connections: connections.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (reply, count, seen) = (reply.clone(), count.clone(), seen.clone());
                std::thread::spawn(move || serve(stream, &*reply, &count, &seen));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn target(&self) -> Target {
        Target::resolve(&self.url(), false).unwrap()
    }

    /// Returns options with few connections and short timeouts.
    pub(crate) fn options(&self, connections: usize) -> Options {
        let mut options = Options::new(self.target());
        options.connections = connections;
        options.request_timeout = Duration::from_secs(10);
        options.drain = Duration::from_secs(10);
        options
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.line.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, reply: &dyn Fn(usize, &Seen) -> Reply, count: &AtomicUsize, all: &Mutex<Vec<Seen>>) {
    let mut buffered = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut buffered) {
        all.lock().unwrap().push(seen.clone());
        let sent = match reply(count.fetch_add(1, Ordering::SeqCst), &seen) {
            Reply::Answer(status, body) => stream.write_all(&answer(status, &body)),
            Reply::Raw(bytes) => stream.write_all(&bytes),
            Reply::RawThenClose(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Reply::Reset => {
                // The close becomes a reset because of unread bytes and a linger of zero.
                let socket = rustix_linger(stream);
                drop(socket);
                return;
            }
            Reply::Hang => {
                // Waits until the other side gives up.
                let _ = stream.read(&mut [0; 1]);
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn rustix_linger(stream: TcpStream) -> TcpStream {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    stream
}

pub(crate) fn answer(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn read_request(stream: &mut TcpStream, buffered: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(end) = buffered.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffered[..end]).into_owned();
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length: ")
                        .map(str::to_string)
                })
                .map_or(0, |text| text.parse::<usize>().unwrap());
            let whole = end + 4 + length;
            if buffered.len() >= whole {
                let body = String::from_utf8_lossy(&buffered[end + 4..whole]).into_owned();
                buffered.drain(..whole);
                return Some(Seen {
                    line: head.lines().next().unwrap().to_string(),
                    body,
                });
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(read) => buffered.extend_from_slice(&chunk[..read]),
        }
    }
}
