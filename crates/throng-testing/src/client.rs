//! HTTP/1.1 over one connection.

use crate::READ_PATIENCE;
use serde_json::Value;
use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

/// Headers of a request with a JSON body.
pub const JSON: &str = "content-type: application/json\r\n";

/// A keep-alive connection. Its requests go one after the other.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    stream: BufReader<S>,
}

/// An answer, with every byte of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The code, 200 say.
    pub status: u16,
    /// The lines of its head behind the status line, as they came.
    pub headers: Vec<String>,
    /// The whole body, without the frames of chunks.
    pub body: String,
}

impl Response {
    /// The body as JSON.
    ///
    /// # Panics
    /// The body is no JSON.
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
    Client::connect(address)?.request(method, path, headers, body)
}

impl Client {
    /// Connects. A read that takes longer than a minute fails.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(READ_PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks HTTP over anything that carries bytes, TLS say.
    pub fn over(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request and reads its answer. `headers` are whole lines, each with its end.
    ///
    /// # Errors
    /// The connection failed, or the answer is none or does not say how long it is.
    pub fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Response> {
        self.send(method, path, headers, body)?;
        self.response()
            .map_err(|error| io::Error::new(error.kind(), format!("{method} {path}: {error}")))
    }

    /// Reads what a path shows.
    ///
    /// # Errors
    /// See [`request`](Self::request).
    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.request("GET", path, "", "")
    }

    /// Posts JSON, perhaps under an idempotency key.
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

    /// Reads the next answer, whole.
    ///
    /// # Errors
    /// The connection ended or failed, or the answer is none or does not say how long it is.
    pub fn response(&mut self) -> io::Result<Response> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut response = Response {
            status: status.ok_or_else(|| invalid(format!("the answer begins with {line:?} instead of a status")))?,
            headers: Vec::new(),
            body: String::new(),
        };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            response.headers.push(line);
        }
        let length = response.header("content-length").and_then(|length| length.parse().ok());
        let mut bytes = Vec::new();
        match (length, response.header("transfer-encoding")) {
            (Some(length), _) => self.take(length, &mut bytes)?,
            (None, Some("chunked")) => self.chunks(&mut bytes)?,
            (None, _) if matches!(response.status, 204 | 304) => {}
            (None, _) => {
                return Err(invalid(format!(
                    "an answer {} does not say its length",
                    response.status
                )));
            }
        }
        response.body = String::from_utf8(bytes).map_err(|_| invalid("the body is no UTF-8".into()))?;
        Ok(response)
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
        bytes.resize(begin + length, 0);
        self.stream.read_exact(&mut bytes[begin..])
    }

    /// The next line, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection has ended"));
        }
        Ok(line.trim_end().to_owned())
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose answers are given.
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
