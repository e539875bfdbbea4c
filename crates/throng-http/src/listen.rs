//! Opening the port: one socket a loop, over which the kernel spreads connections.

use crate::error::StartError;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::{
    io,
    net::{SocketAddr, TcpListener},
};

/// Connections the kernel holds until they are taken; it may hold fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4_096;

fn refused(address: SocketAddr) -> impl Fn(io::Error) -> StartError {
    move |source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken { address },
        io::ErrorKind::PermissionDenied => StartError::NotAllowed { address },
        _ => StartError::Listen { address, source },
    }
}

/// Opens a listener for each loop, all on one port. If it may grow, [`another`] can be added later.
pub(crate) fn listen(address: SocketAddr, loops: usize, may_grow: bool) -> Result<Vec<TcpListener>, StartError> {
    let listeners = bind(address, loops, may_grow)?;
    begin(&listeners)?;
    Ok(listeners)
}

/// Takes connections at sockets that were [bound](bind).
pub(crate) fn begin(listeners: &[TcpListener]) -> Result<(), StartError> {
    for listener in listeners {
        let address = listener.local_addr().map_err(StartError::Loop)?;
        SockRef::from(listener).listen(BACKLOG).map_err(refused(address))?;
    }
    Ok(())
}

/// Takes the port as [`listen`] does, and refuses connections until it [begins](begin).
pub(crate) fn bind(address: SocketAddr, loops: usize, may_grow: bool) -> Result<Vec<TcpListener>, StartError> {
    let refused = refused(address);
    let shared = loops > 1 || may_grow;
    if shared {
        // The port would also be shared with another gateway of the same user, so check that it is free.
        begin(&[open(address, false).map_err(&refused)?])?;
    }
    let first = open(address, shared).map_err(&refused)?;
    let address = first.local_addr().map_err(&refused)?;
    let mut listeners = vec![first];
    for _ in 1..loops {
        listeners.push(open(address, true).map_err(&refused)?);
    }
    Ok(listeners)
}

/// Opens one more listener on the port of this gateway's others.
pub(crate) fn another(address: SocketAddr) -> Result<TcpListener, StartError> {
    let another = open(address, true).map_err(|source| StartError::Listen { address, source })?;
    begin(std::slice::from_ref(&another))?;
    Ok(another)
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// The files that a process has open besides connections: the journal, the store, read models, listeners, event queues, a database's
/// connections.
const OWN_FILES: usize = 96;
/// A gateway with fewer connections does not start.
const CONNECTIONS_MIN: usize = 16;

/// Requests enough file descriptors from the system for connections, the process's own files and `others`. Returns how many connections
/// they suffice for.
///
/// # Errors
/// [`TooFewFiles`](StartError::TooFewFiles): they suffice for hardly any.
pub(crate) fn allow_files(connections: usize, others: usize) -> Result<usize, StartError> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let own = OWN_FILES + others;
    let wanted = connections.saturating_add(own) as u64;
    let mut limit = getrlimit(Resource::Nofile);
    let (Some(current), most) = (limit.current, limit.maximum.unwrap_or(u64::MAX)) else {
        return Ok(connections);
    };
    let mut allowed = current;
    if current < wanted {
        limit.current = Some(wanted.min(most));
        if setrlimit(Resource::Nofile, limit).is_ok() {
            allowed = wanted.min(most);
        }
    }
    let admitted = admitted(connections, own, allowed)?;
    if admitted < connections {
        tracing::warn!(
            "{admitted} connections at a time, not {connections}: the system allows {allowed} open files, of which {own} are kept for the \
             service itself; raise its limit (ulimit -n {wanted})"
        );
    }
    Ok(admitted)
}

fn admitted(connections: usize, own: usize, allowed: u64) -> Result<usize, StartError> {
    let left = usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(own);
    match left.min(connections) {
        admitted if admitted >= CONNECTIONS_MIN.min(connections) => Ok(admitted),
        _ => Err(StartError::TooFewFiles {
            allowed,
            least: own + CONNECTIONS_MIN,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn as_many_connections_as_the_open_files_allow_are_admitted() {
        assert_eq!(admitted(10_000, 224, 1 << 20).unwrap(), 10_000);
        assert_eq!(admitted(10_000, 224, 256).unwrap(), 32);
        assert_eq!(admitted(3, 224, 256).unwrap(), 3);
        let error = admitted(10_000, 224, 230).unwrap_err().to_string();
        assert!(error.contains("230") && error.contains("240"), "{error}");
    }

    #[test]
    fn a_taken_port_is_named_with_advice() {
        let first = listen(any(), 1, false).unwrap();
        let address = first[0].local_addr().unwrap();
        for loops in [1, 2] {
            let error = listen(address, loops, loops > 1).unwrap_err();
            assert!(matches!(error, StartError::PortTaken { .. }), "{error}");
            assert_eq!(
                error.to_string(),
                format!("{address} is in use by another program: stop it, choose another port, or 0 for any free one")
            );
        }
    }

    #[test]
    fn a_port_shared_by_loops_is_not_shared_with_others() {
        let loops = listen(any(), 3, false).unwrap();
        let address = loops[0].local_addr().unwrap();
        assert!(loops.iter().all(|one| one.local_addr().unwrap() == address));
        assert!(matches!(listen(address, 1, true), Err(StartError::PortTaken { .. })));
    }

    #[test]
    fn an_address_of_another_machine_is_said_to_be_one() {
        let error = listen(([192, 0, 2, 1], 0).into(), 1, false).unwrap_err();
        assert!(
            error.to_string().contains("is it an address of this machine?"),
            "{error}"
        );
    }
}
