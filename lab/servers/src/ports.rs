//! Free ports for servers that need to know their port before they start.

use crate::Error;
use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

/// The range lies below the ports that systems assign to connections and to listeners without a port.
const PORTS: Range<u16> = 16_000..32_000;

/// Returns a free port of the loopback. No connection of another test takes it before the server does, nor while the server is stopped.
///
/// # Errors
/// All ports are taken.
pub fn free_port() -> Result<u16, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run at the same time start at ports far from each other.
    let begin = std::process::id().wrapping_mul(6_151);
    let mut ports = (0..PORTS.len()).map(|_| {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORTS.start + (number % PORTS.len() as u32) as u16
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let taken = || Error::io("looking for a free port")(io::ErrorKind::AddrInUse.into());
    ports.find(is_free).ok_or_else(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn free_ports_differ_and_no_connection_is_given_one() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 100);
        // 32,768 is the first port that Linux assigns to connections by default.
        assert!(ports.iter().all(|port| *port < 32_768), "{ports:?}");
    }
}
