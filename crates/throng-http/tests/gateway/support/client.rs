//! A client that sees every byte.

use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use throng_http::Running;

/// A test that waits longer than this has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A connection, whose requests go one after the other.
pub(crate) struct Client<S = TcpStream> {
    reader: BufReader<S>,
}

/// A response that has come whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|why| panic!("{why}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// It is a problem of this status and type, with a sentence, and names the request; returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, slug: &str) -> Value {
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
}

impl Client {
    pub(crate) fn new(gateway: &Running) -> Self {
        Self::of(gateway.address())
    }

    /// One whose system holds next to nothing that it has not read.
    pub(crate) fn with_small_buffer(gateway: &Running) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(&gateway.address().into()).unwrap();
        Self::patient(socket.into())
    }

    pub(crate) fn of(address: SocketAddr) -> Self {
        Self::patient(TcpStream::connect(address).unwrap())
    }

    fn patient(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

impl<S: Read + Write> Client<S> {
    /// Over anything that bytes go over.
    pub(crate) fn over(stream: S) -> Self {
        Self {
            reader: BufReader::new(stream),
        }
    }

    pub(crate) fn into_inner(self) -> S {
        self.reader.into_inner()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.reader.get_mut().write_all(bytes.as_ref()).unwrap();
        self
    }

    /// The next response.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer().unwrap()
    }

    pub(crate) fn try_answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        let length = answer
            .header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        answer.body = vec![0; length];
        self.reader.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// The next response's head.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Ok(Answer {
            status,
            headers,
            body: Vec::new(),
        })
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The server closes the connection, and says nothing more.
    #[track_caller]
    pub(crate) fn is_closed(&mut self) {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(request(method, path, headers, body));
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        self.request("POST", path, &[("content-type", "application/json")], body)
    }
}

/// A request's bytes; that a command is JSON need not be said.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let is_typed = method != "POST" || headers.iter().any(|(name, _)| *name == "content-type");
    let json = (!is_typed).then_some(("content-type", "application/json"));
    let headers: String = headers
        .iter()
        .chain(&json)
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
