//! What stands between a consumer and its broker, and keeps acknowledgements to itself.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Class and method of `basic.ack` in a method frame.
const ACK: [u8; 4] = [0, 60, 0, 80];
const METHOD: u8 = 1;
/// Type, channel and length of a frame; behind its payload stands one byte more.
const HEAD: usize = 7;

/// Passes all on between whoever connects to it and the broker, but for what acknowledges messages. Its threads end with the connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    swallowed: Arc<AtomicU64>,
}

impl Proxy {
    /// Before the broker at this port.
    pub(crate) fn start(broker: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, swallowed) = (listener.local_addr().unwrap(), Arc::default());
        let count = Arc::clone(&swallowed);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let broker = TcpStream::connect(("127.0.0.1", broker)).unwrap();
                let (mut from, mut to) = (broker.try_clone().unwrap(), client.try_clone().unwrap());
                // A connection that ends is the end of its two threads.
                thread::spawn(move || io::copy(&mut from, &mut to));
                let count = Arc::clone(&count);
                thread::spawn(move || pass_all_but_acks(client, broker, &count));
            }
        });
        Self { address, swallowed }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many acknowledgements it has kept to itself.
    pub(crate) fn swallowed(&self) -> u64 {
        self.swallowed.load(Ordering::Acquire)
    }
}

fn pass_all_but_acks(mut client: TcpStream, mut broker: TcpStream, swallowed: &AtomicU64) -> io::Result<()> {
    // The protocol's header, which is no frame.
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting)?;
    broker.write_all(&greeting)?;
    loop {
        let mut frame = vec![0; HEAD];
        client.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]) as usize;
        frame.resize(HEAD + length + 1, 0);
        client.read_exact(&mut frame[HEAD..])?;
        if frame[0] == METHOD && frame[HEAD..].starts_with(&ACK) {
            swallowed.fetch_add(1, Ordering::AcqRel);
        } else {
            broker.write_all(&frame)?;
        }
    }
}
