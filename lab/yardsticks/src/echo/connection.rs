//! A connection: the bytes read but not yet answered, and the answers not yet written.

use super::answer::AnswerWriter;
use super::request::{Parsed, parse};
use rustix::event::epoll::EventFlags;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// The most bytes that are read of a socket before the next connection has its turn.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// A client's socket with its two buffers.
///
/// Both buffers are bounded. `input` holds less than one request (header and body limits) plus one read. `output` holds the answers to one read,
/// since nothing is read while answers wait to be written.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// The bytes read that are not yet a complete request.
    input: Vec<u8>,
    /// The answers that the kernel has not taken yet.
    output: Vec<u8>,
    /// True if no more requests are read, because the client asked for that or its bytes make no sense.
    last_answer_given: bool,
    /// The events that the loop waits for on this socket.
    pub(crate) interest: EventFlags,
}

/// The next action of the loop on the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(EventFlags),
    Close,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            last_answer_given: false,
            interest: EventFlags::IN,
        }
    }

    /// Writes waiting answers, or reads once. Answers every complete request, counts it in `requests`, and writes the answers.
    pub(crate) fn turn(
        &mut self,
        buffer: &mut [u8; READ_BYTES],
        writer: &mut AnswerWriter,
        requests: &mut u64,
    ) -> Next {
        if self.output.is_empty() {
            match self.stream.read(buffer) {
                Ok(0) => return Next::Close,
                Ok(bytes) => self.take(&buffer[..bytes], writer, requests),
                Err(error) if is_transient(&error) => return Next::Wait(EventFlags::IN),
                Err(_) => return Next::Close,
            }
        }
        self.write()
    }

    /// Answers the complete requests in the bytes read so far.
    fn take(&mut self, bytes: &[u8], writer: &mut AnswerWriter, requests: &mut u64) {
        if self.input.is_empty() {
            let answered = self.answer(bytes, writer, requests);
            self.input.extend_from_slice(&bytes[answered..]);
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(bytes);
            let answered = self.answer(&input, writer, requests);
            input.drain(..answered);
            self.input = input;
        }
    }

    /// Answers the complete requests in `input`, and returns the number of their bytes.
    fn answer(&mut self, input: &[u8], writer: &mut AnswerWriter, requests: &mut u64) -> usize {
        let mut answered = 0;
        while answered < input.len() && !self.last_answer_given {
            match parse(&input[answered..]) {
                Parsed::Partial => break,
                Parsed::Whole(request) => {
                    writer.answer(&request, &mut self.output);
                    self.last_answer_given = !request.keep_alive;
                    answered += request.bytes;
                    *requests += 1;
                }
                Parsed::Refused(refusal) => {
                    writer.refuse(refusal, &mut self.output);
                    self.last_answer_given = true;
                }
            }
        }
        answered
    }

    fn write(&mut self) -> Next {
        let mut written = 0;
        while written < self.output.len() {
            match self.stream.write(&self.output[written..]) {
                Ok(0) => return Next::Close,
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Next::Close,
            }
        }
        self.output.drain(..written);
        match (self.output.is_empty(), self.last_answer_given) {
            (false, _) => Next::Wait(EventFlags::OUT),
            (true, false) => Next::Wait(EventFlags::IN),
            (true, true) => Next::Close,
        }
    }
}

fn is_transient(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;
    use std::net::TcpListener;

    /// Returns a connected pair: the client's socket, and the connection on the server's socket.
    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, Connection::new(server))
    }

    fn turn(connection: &mut Connection) -> (Next, u64) {
        let mut requests = 0;
        let next = connection.turn(&mut [0; READ_BYTES], &mut AnswerWriter::default(), &mut requests);
        (next, requests)
    }

    #[test]
    fn the_start_of_a_request_waits_for_its_rest() {
        let (mut client, mut connection) = pair();
        client.write_all(b"GET /a HT").unwrap();
        assert_eq!(turn(&mut connection), (Next::Wait(EventFlags::IN), 0));
        client.write_all(b"TP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r").unwrap();
        assert_eq!(turn(&mut connection), (Next::Wait(EventFlags::IN), 1));
        client.write_all(b"\n").unwrap();
        assert_eq!(turn(&mut connection), (Next::Wait(EventFlags::IN), 1));
        assert!(connection.input.is_empty() && connection.output.is_empty());
    }

    #[test]
    fn a_client_that_reads_nothing_is_not_read_and_loses_nothing() {
        // The answer is larger than a pair of socket buffers: the server's is fixed, and the client's does not grow while it is unread.
        let (mut client, mut connection) = pair();
        connection.stream.set_nonblocking(true).unwrap();
        sockopt::set_socket_send_buffer_size(&connection.stream, 4096).unwrap();
        let body = format!("\"{}\"", "x".repeat(1_000_000));
        let request = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut writer = client.try_clone().unwrap();
        let sender = std::thread::spawn(move || writer.write_all(request.as_bytes()).unwrap());
        let mut answered = 0;
        let mut turn_of = |connection: &mut Connection| {
            let (next, requests) = turn(connection);
            answered += requests;
            (next, answered)
        };
        while turn_of(&mut connection).1 == 0 {}
        sender.join().unwrap();
        client.write_all(b"GET /next HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(turn_of(&mut connection), (Next::Wait(EventFlags::OUT), 1));

        let reader = std::thread::spawn(move || {
            let mut all = String::new();
            client.read_to_string(&mut all).unwrap();
            all
        });
        while turn_of(&mut connection) != (Next::Wait(EventFlags::IN), 2) {}
        drop(connection);
        let answers = reader.join().unwrap();
        assert!(answers.contains(&body) && answers.ends_with(r#"{"method":"GET","path":"/next"}"#));
    }

    #[test]
    fn nothing_is_answered_behind_the_last_answer() {
        let (mut client, mut connection) = pair();
        client
            .write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            .unwrap();
        assert_eq!(turn(&mut connection), (Next::Close, 1));

        let (mut client, mut connection) = pair();
        client.write_all(b"nonsense\r\n\r\nGET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(turn(&mut connection), (Next::Close, 0));
    }

    #[test]
    fn a_client_that_has_gone_is_closed() {
        let (client, mut connection) = pair();
        drop(client);
        assert_eq!(turn(&mut connection), (Next::Close, 0));
    }
}
