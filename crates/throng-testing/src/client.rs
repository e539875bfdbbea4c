//! HTTP/1.1 over one connection.

use crate::READ_PATIENCE;
use serde_json::Value;
use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The time that [`Client::open`] waits for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// The most bytes of a body: as many as a page of events has.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Headers of a request with a JSON body.
pub const JSON: &str = "content-type: application/json\r\n";

/// A keep-alive connection. It sends one request at a time.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    /// The connection with its read buffer.
    pub stream: BufReader<S>,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<B = String> {
    /// The status code, for example 200.
    pub status: u16,
    /// The header lines, as received.
    pub headers: Vec<String>,
    /// The whole body, without chunk framing.
    pub body: B,
}

impl<B: AsRef<[u8]>> Response<B> {
    /// Returns the body as text.
    ///
    /// # Panics
    /// The body is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref()).expect("a text is UTF-8")
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    /// The body is not JSON.
    pub fn json(&self) -> Value {
        let body = self.body.as_ref();
        serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)))
    }

    /// Returns the body as a problem of this status and type, with a sentence.
    ///
    /// # Panics
    /// The answer is not such a problem.
    #[track_caller]
    pub fn problem(&self, status: u16, slug: &str) -> Value {
        let problem = self.json();
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, Some("application/problem+json")),
            "{problem}"
        );
        assert_eq!(problem["type"], format!("/problems/{slug}"), "{problem}");
        assert_eq!(problem["status"], status);
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.ends_with('.')),
            "{problem}"
        );
        problem
    }

    /// Returns the value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.iter().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

/// Sends a request over a new connection. `headers` are complete lines with their ends.
///
/// # Errors
/// The connection failed, or the answer is malformed or has no length.
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Response> {
    Client::connect(address)?.request(method, path, headers, body)
}

impl Client {
    /// Connects, with a read timeout of a minute.
    ///
    /// # Errors
    /// Nothing listens at the address.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(READ_PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// Connects within a second, with `wait` as the timeout of reads and writes.
    ///
    /// # Errors
    /// Nothing listens at the address.
    pub fn open(address: SocketAddr, wait: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_WAIT)?;
        stream.set_read_timeout(Some(wait))?;
        stream.set_write_timeout(Some(wait))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> Client<S> {
    /// Returns a client over any byte stream, for example TLS.
    pub fn over(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request and reads its answer. `headers` are complete lines with their ends.
    ///
    /// # Errors
    /// The connection failed, or the answer is malformed or has no length.
    pub fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Response> {
        self.send(method, path, headers, body)?;
        self.response()
            .map_err(|error| io::Error::new(error.kind(), format!("{method} {path}: {error}")))
    }

    /// Sends the bytes of a request and reads its answer. After an error the connection is unusable, and the request's outcome is unknown.
    ///
    /// # Errors
    /// See [`request`](Self::request).
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Response<Vec<u8>>> {
        self.stream.get_mut().write_all(request)?;
        self.whole()
    }

    /// Sends a `GET`.
    ///
    /// # Errors
    /// See [`request`](Self::request).
    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.request("GET", path, "", "")
    }

    /// Posts JSON, with an idempotency key if there is one.
    ///
    /// # Errors
    /// See [`request`](Self::request).
    pub fn post(&mut self, path: &str, key: Option<&str>, body: &str) -> io::Result<Response> {
        let key = key.map_or(String::new(), |key| format!("idempotency-key: {key}\r\n"));
        self.request("POST", path, &format!("{JSON}{key}"), body)
    }

    /// Sends a request without reading its answer.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Reads the next complete answer.
    ///
    /// # Errors
    /// The connection ended or failed, or the answer is malformed or has no length.
    pub fn response(&mut self) -> io::Result<Response> {
        let Response { status, headers, body } = self.whole()?;
        let body = String::from_utf8(body).map_err(|_| invalid("the body is no UTF-8".into()))?;
        Ok(Response { status, headers, body })
    }

    fn whole(&mut self) -> io::Result<Response<Vec<u8>>> {
        let mut whole = self.head()?;
        let length = whole.header("content-length").and_then(|length| length.parse().ok());
        let mut body = Vec::new();
        match (length, whole.header("transfer-encoding")) {
            (Some(length), _) => self.take(length, &mut body)?,
            (None, Some("chunked")) => self.chunks(&mut body)?,
            (None, _) if matches!(whole.status, 204 | 304) => {}
            (None, _) => return Err(invalid(format!("an answer {} does not say its length", whole.status))),
        }
        whole.body = body;
        Ok(whole)
    }

    /// Reads the head of the next answer, without its body.
    ///
    /// # Errors
    /// The connection ended or failed, or the answer is malformed.
    pub fn head(&mut self) -> io::Result<Response<Vec<u8>>> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut response = Response {
            status: status.ok_or_else(|| invalid(format!("the answer begins with {line:?} instead of a status")))?,
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(response);
            }
            response.headers.push(line);
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(&line, 16).map_err(|_| invalid(format!("{line:?} begins no chunk")))?;
            self.take(length, body)?;
            self.line()?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, length: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let begin = bytes.len();
        if length > BODY_BYTES_MAX - begin {
            return Err(invalid(format!("a body of more than {BODY_BYTES_MAX} bytes")));
        }
        bytes.resize(begin + length, 0);
        self.stream.read_exact(&mut bytes[begin..])
    }

    /// Reads the next line, without its end.
    ///
    /// # Errors
    /// The connection ended or failed.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection has ended"));
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with prepared answers.
    struct Given(&'static [u8]);

    impl Read for Given {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Given {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_are_read_whole_whatever_tells_their_length() {
        let mut client = Client::over(Given(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none\
              HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\ntw\r\n1\r\no\r\n0\r\n\r\n\
              HTTP/1.1 204 No Content\r\n\r\n\
              HTTP/1.1 200 OK\r\n\r\n",
        ));
        let bodies = [(); 3].map(|()| client.get("/").unwrap().body);
        assert_eq!(bodies, ["one", "two", ""]);
        assert_eq!(client.get("/").unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        for cut in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\non",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\ntw\r\n",
        ] {
            let error = Client::over(Given(cut)).get("/").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }
}
