//! For tests: an engine in memory, requests over a socket whose answers are read whole, and a browser.

mod browser;

pub use browser::{Browser, browse};

use serde_json::Value;
use std::{
    future::Future,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use throng::{
    Builder, Engine,
    journal::{MemoryJournal, MemoryStore},
};

/// What hangs for so long is a failed test, not a hung one.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Headers of a request with a JSON body.
pub const JSON: &str = "content-type: application/json\r\n";

/// Starts an engine with these kinds on a journal of its own.
#[must_use]
pub fn in_memory(builder: Builder) -> Engine {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    start_on(builder, journal, store)
}

/// Starts an engine on a journal that may have a history.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn start_on(builder: Builder, journal: MemoryJournal, store: MemoryStore) -> Engine {
    block_on(builder.start(journal, store)).expect("an engine in memory starts")
}

/// Runs a future on a runtime of its own.
///
/// # Panics
/// There is no runtime to be had.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// An answer, with every byte of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The code, 200 say.
    pub status: u16,
    /// The lines of its head behind the status line, as they came.
    pub headers: Vec<String>,
    /// As many bytes as it said it has.
    pub body: String,
}

impl Response {
    /// The body as JSON.
    ///
    /// # Panics
    /// It is no JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.iter().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

/// Asks over a connection of its own. `headers` are whole lines, each with its end.
///
/// # Errors
/// The connection failed, or the answer is none or does not say how long it is.
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Response> {
    let invalid = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("{method} {path}: {what}"));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let mut response = Response {
        status: status.ok_or_else(|| invalid("the answer has no status"))?,
        headers: Vec::new(),
        body: String::new(),
    };
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if line == "\r\n" {
            break;
        }
        response.headers.push(line.trim_end().to_owned());
    }
    let length = response.header("content-length").and_then(|length| length.parse().ok());
    let mut bytes = vec![0; length.ok_or_else(|| invalid("the answer does not say its length"))?];
    stream.read_exact(&mut bytes)?;
    response.body = String::from_utf8(bytes).map_err(|_| invalid("the answer is no text"))?;
    Ok(response)
}
