//! A proxy between a client and its broker that forwards frames, changed or unchanged.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// The class and method of `basic.ack` in a method frame.
const ACK: [u8; 4] = [0, 60, 0, 80];
const METHOD: u8 = 1;
/// The bytes of a frame's type, channel and length. One more byte follows the payload.
const HEAD: usize = 7;

/// The fate of a frame.
pub(crate) enum Passage {
    Passed,
    Swallowed,
    /// The frame cuts the connection.
    Cut,
}

type Filter = fn(&mut [u8]) -> Passage;

/// Forwards frames between its clients and the broker. Its threads end with the connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    swallowed: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy for the broker at this port. It swallows the broker's acknowledgements.
    pub(crate) fn start(broker: u16) -> Self {
        let is_ack = |frame: &mut [u8]| match frame[0] == METHOD && frame[HEAD..].starts_with(&ACK) {
            true => Passage::Swallowed,
            false => Passage::Passed,
        };
        Self::filtering(broker, is_ack, |_| Passage::Passed)
    }

    /// Starts a proxy for the broker at this port. The filters get the client's frames, and the broker's.
    pub(crate) fn filtering(broker: u16, of_client: Filter, of_broker: Filter) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, swallowed) = (listener.local_addr().unwrap(), Arc::default());
        let count = Arc::clone(&swallowed);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let broker = TcpStream::connect(("127.0.0.1", broker)).unwrap();
                let (from, to) = (broker.try_clone().unwrap(), client.try_clone().unwrap());
                // The two threads of a connection end with it.
                let counter = Arc::clone(&count);
                thread::spawn(move || pass(from, to, of_broker, &counter, 0));
                let count = Arc::clone(&count);
                thread::spawn(move || pass(client, broker, of_client, &count, 8));
            }
        });
        Self { address, swallowed }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of swallowed frames.
    pub(crate) fn swallowed(&self) -> u64 {
        self.swallowed.load(Ordering::Acquire)
    }
}

/// Forwards bytes. The first `greeting` bytes are not a frame.
fn pass(from: TcpStream, to: TcpStream, filter: Filter, swallowed: &AtomicU64, greeting: usize) {
    let _ = pass_frames(&from, &to, filter, swallowed, greeting);
    // Closes both ends, because one alone is useless.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn pass_frames(
    mut from: &TcpStream,
    mut to: &TcpStream,
    filter: Filter,
    swallowed: &AtomicU64,
    greeting: usize,
) -> io::Result<()> {
    let mut first = vec![0; greeting];
    from.read_exact(&mut first)?;
    to.write_all(&first)?;
    loop {
        let mut frame = vec![0; HEAD];
        from.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]) as usize;
        frame.resize(HEAD + length + 1, 0);
        from.read_exact(&mut frame[HEAD..])?;
        match filter(&mut frame) {
            Passage::Passed => to.write_all(&frame)?,
            Passage::Swallowed => drop(swallowed.fetch_add(1, Ordering::AcqRel)),
            Passage::Cut => return Ok(()),
        }
    }
}
