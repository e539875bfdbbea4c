//! A server whose answers are prescribed byte by byte.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Answers its requests one after another, and repeats the last answer.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

/// Returns a complete answer.
pub(crate) fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl Provider {
    /// Answers with these bytes. After an answer that begins with `!` the connection is closed, and after `…` it hangs.
    pub(crate) fn start(answers: &[String]) -> Self {
        Self::over(answers, Box::new)
    }

    /// Does the same over a wrapped connection, for example TLS.
    pub(crate) fn over<S: Read + Write + 'static>(
        answers: &[String],
        wrap: impl Fn(std::net::TcpStream) -> S + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections, open): (Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>, Arc<AtomicUsize>) =
            Default::default();
        let shared = Arc::new((answers.to_vec(), wrap));
        let counts = (seen.clone(), connections.clone(), open.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, seen, open) = (shared.clone(), counts.0.clone(), counts.2.clone());
                counts.1.fetch_add(1, Ordering::SeqCst);
                open.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    serve((shared.1)(stream.unwrap()), &shared.0, &seen);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            seen,
            connections,
            open,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Returns the received requests, with head and body.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

fn serve(stream: impl Read + Write, answers: &[String], seen: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        let answer = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            &answers[seen.len().min(answers.len()) - 1]
        };
        if answer == "…" {
            // Waits until the client gives up.
            let _ = stream.read(&mut [0]);
            return;
        }
        let (closes, answer) = answer
            .strip_prefix('!')
            .map_or((false, &**answer), |answer| (true, answer));
        if stream.get_mut().write_all(answer.as_bytes()).is_err() || closes {
            return;
        }
    }
}

fn read_request(stream: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}
