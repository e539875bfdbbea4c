//! A client that sees every byte.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};
use throng_http::Running;
pub(crate) use throng_testing::READ_PATIENCE as PATIENCE;

/// A connection whose requests are sent one after another.
pub(crate) struct Client<S = TcpStream>(throng_testing::Client<S>);

/// A complete response.
pub(crate) type Received = throng_testing::Response<Vec<u8>>;

impl Client {
    pub(crate) fn new(gateway: &Running) -> Self {
        Self::of(gateway.address())
    }

    /// Connects with a tiny receive buffer.
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
        self.0.stream.get_ref()
    }
}

impl<S: Read + Write> Client<S> {
    /// Creates a client over any byte stream.
    pub(crate) fn over(stream: S) -> Self {
        Self(throng_testing::Client::over(stream))
    }

    pub(crate) fn into_inner(self) -> S {
        self.0.stream.into_inner()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.stream.get_mut().write_all(bytes.as_ref()).unwrap();
        self
    }

    /// The next response.
    pub(crate) fn answer(&mut self) -> Received {
        self.try_answer().unwrap()
    }

    pub(crate) fn try_answer(&mut self) -> io::Result<Received> {
        let mut answer = self.head()?;
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        answer.body = vec![0; length.unwrap_or(0)];
        self.0.stream.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// The next response's head.
    pub(crate) fn head(&mut self) -> io::Result<Received> {
        self.0.head()
    }

    /// Reads the next line, without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        self.0.line()
    }

    /// Checks that the server closes the connection without another byte.
    #[track_caller]
    pub(crate) fn is_closed(&mut self) {
        let mut rest = Vec::new();
        match self.0.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Received {
        self.send(request(method, path, headers, body));
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Received {
        self.request("GET", path, &[], "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Received {
        self.request("POST", path, &[("content-type", "application/json")], body)
    }
}

/// Returns a request's bytes. The content type of a command may be omitted.
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
