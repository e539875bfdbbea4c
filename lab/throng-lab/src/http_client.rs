//! A keep-alive connection that waits for each answer.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The longest wait for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// A service answers within its request deadline of 5 s, unless it is paused.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(6);
/// The most bytes of an answer: a page of events.
const BODY_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub(crate) fn post(path: &str, key: Option<&str>, body: &str) -> Vec<u8> {
    let mut request = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    if let Some(key) = key {
        write!(request, "idempotency-key: {key}\r\n").expect("a string takes any text");
    }
    write!(request, "content-length: {}\r\n\r\n{body}", body.len()).expect("a string takes any text");
    request.into_bytes()
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, answer_wait: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_WAIT)?;
        stream.set_read_timeout(Some(answer_wait))?;
        stream.set_write_timeout(Some(answer_wait))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and reads the answer. After an error the connection is of no use any more, and the fate of the request is unknown.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.get_mut().write_all(request)?;
        let status = self
            .line()?
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| io::Error::other("no status"))?;
        let mut length = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        if length > BODY_BYTES_MAX {
            return Err(io::Error::other(format!("an answer of {length} bytes")));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, body })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}
