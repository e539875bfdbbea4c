//! Sockets that share one port, one for each loop.

use super::EchoError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen as start_listening, socket_with, sockopt};
use std::net::{SocketAddr, TcpListener};

/// The most loops of one server.
pub const LOOPS_MAX: usize = 64;

/// The connections that the kernel keeps until a loop accepts them.
const BACKLOG: i32 = 4096;

/// Listens on `address` with a socket for each loop (`SO_REUSEPORT` if more than one). Port 0 takes any free port, the same one for all.
///
/// # Errors
/// The number of loops is out of range, or the address is taken or not of this machine.
pub fn listen(address: SocketAddr, loops: usize) -> Result<Vec<TcpListener>, EchoError> {
    if !(1..=LOOPS_MAX).contains(&loops) {
        return Err(EchoError::Loops { loops });
    }
    let failed = |source| EchoError::Listen { address, source };
    let first = listen_once(address, loops > 1).map_err(failed)?;
    let shared_address = first.local_addr().map_err(failed)?;
    let mut listeners = vec![first];
    for _ in 1..loops {
        listeners.push(listen_once(shared_address, true).map_err(failed)?);
    }
    Ok(listeners)
}

fn listen_once(address: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &address)?;
    start_listening(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY_PORT: &str = "127.0.0.1:0";

    #[test]
    fn all_loops_share_the_port_the_first_one_got() {
        let listeners = listen(ANY_PORT.parse().unwrap(), 3).unwrap();
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        assert_eq!(addresses.len(), 3);
        assert!(
            addresses
                .iter()
                .all(|address| *address == addresses[0] && address.port() != 0)
        );
    }

    #[test]
    fn a_taken_port_is_named_with_the_way_out() {
        let holder = TcpListener::bind(ANY_PORT).unwrap();
        let address = holder.local_addr().unwrap();
        let error = listen(address, 1).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("could not listen on {address}: ")),
            "{error}"
        );
        assert!(error.contains("--port"), "{error}");
    }

    #[test]
    fn no_loop_and_too_many_are_refused() {
        for loops in [0, LOOPS_MAX + 1] {
            let error = listen(ANY_PORT.parse().unwrap(), loops).unwrap_err().to_string();
            assert_eq!(error, format!("cannot run {loops} loops: choose 1 to 64"));
        }
    }
}
