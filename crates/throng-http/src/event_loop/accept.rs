//! Taking connections, up to their limit.

use super::{Local, connection::Verdict, linger::linger, socket::plain};
use crate::{lane::Wire, problem::Problem};
use std::{io, net::IpAddr, rc::Rc, time::Duration};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

/// Connections over the limit that are told so at a time; more are closed without a word.
const REFUSALS_MAX: usize = 64;
/// How long a refused client may take to read why.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);
/// How long to wait when the system has no file descriptors left.
const NO_FILES_WAIT: Duration = Duration::from_millis(50);

/// Takes connections until the loop drains.
pub(super) async fn accept(local: Rc<Local>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = local.drains() => return,
        };
        match accepted {
            Ok((stream, address)) => take(&local, stream, address.ip()),
            Err(error) if is_passing(&error) => tracing::debug!("a connection went before it was taken: {error}"),
            Err(error) => {
                tracing::warn!(
                    "a connection could not be taken: {error} (with too many open files, raise the limit: ulimit -n 20000)"
                );
                tokio::time::sleep(NO_FILES_WAIT).await;
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

fn take(local: &Rc<Local>, stream: TcpStream, address: IpAddr) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection ended at once: {error}");
        return;
    }
    let Some(place) = local.shared().places.take() else {
        refuse(local, stream);
        return;
    };
    let guest = local.connections.add(local, place);
    let connection = &guest.connection;
    connection.came_from(address);
    if local.is_draining() {
        connection.condemn(Verdict::Finish);
    }
    let wire = Wire::new(stream, local.clone(), connection.clone());
    local.door.enter(guest, wire);
}

fn refuse(local: &Rc<Local>, mut stream: TcpStream) {
    local.metrics().refused_connections.inc();
    if local.refusals.get() >= REFUSALS_MAX {
        return;
    }
    local.refusals.set(local.refusals.get() + 1);
    let local = local.clone();
    let most = local.limits().connections_max;
    tokio::task::spawn_local(async move {
        let told = async {
            let problem = Problem::overloaded(
                format!("There are {most} connections already. Nothing was done; try again later."),
                REFUSAL_WAIT,
            );
            stream.write_all(&plain(&problem)).await?;
            linger(&stream, REFUSAL_WAIT).await;
            Ok::<_, io::Error>(())
        };
        if !matches!(tokio::time::timeout(REFUSAL_WAIT, told).await, Ok(Ok(_))) {
            tracing::debug!("a refused connection ended before it was told why");
        }
        local.refusals.set(local.refusals.get() - 1);
    });
}
