//! Taking connections, up to their limit.

use super::{Guest, Local, connection::Verdict, socket::plain, stream::Stream};
use crate::{
    access::{self, Entrance},
    lane::Wire,
    problem::Problem,
};
use rustls::ServerConfig;
use std::{
    future::{Future as _, poll_fn},
    io,
    net::IpAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Connections over the limit that are told so at a time; more are closed without a word.
const REFUSALS_MAX: usize = 64;
/// How long a refused client may take to read why.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a refused client's request that are read so that it gets to read the answer.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;
/// How long to wait when the system has no file descriptors left.
const NO_FILES_WAIT: Duration = Duration::from_millis(50);

/// Takes connections until the loop drains.
pub(super) async fn accept(local: Rc<Local>, listener: TcpListener, entrance: Entrance) {
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = local.drains() => return,
        };
        match accepted {
            Ok((stream, address)) => take(&local, stream, address.ip(), entrance),
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

fn take(local: &Rc<Local>, stream: TcpStream, address: IpAddr, entrance: Entrance) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection ended at once: {error}");
        return;
    }
    let places = match entrance.is_admin {
        true => &local.shared().admin_places,
        false => &local.shared().places,
    };
    let tls = local.shared().tls(entrance);
    let Some(place) = places.take() else {
        match tls {
            None => refuse(local, stream),
            // Telling it why would take a handshake.
            Some(_) => drop(local.metrics().refused_connections.inc()),
        }
        return;
    };
    let guest = local.connections.add(local, place);
    let connection = &guest.connection;
    connection.came_from(address, &local.shared().proxies);
    connection.came_by(entrance);
    if local.is_draining() {
        connection.condemn(Verdict::Finish);
    }
    match tls {
        None => enter(local, guest, Stream::plain(stream)),
        Some(config) => drop(tokio::task::spawn_local(shake_hands(
            local.clone(),
            guest,
            stream,
            config,
        ))),
    }
}

fn enter(local: &Rc<Local>, guest: Guest, stream: Stream) {
    let wire = Wire::new(stream, local.clone(), guest.connection.clone());
    local.door.enter(guest, wire);
}

/// Opens the TLS session of a connection, within the time a head may take.
async fn shake_hands(local: Rc<Local>, guest: Guest, stream: TcpStream, config: Arc<ServerConfig>) {
    let wait = local.limits().header_wait;
    let mut accepting = pin!(tokio::time::timeout(wait, Stream::accept(stream, config)));
    let accepted = poll_fn(|context| {
        guest.connection.set_waker(context.waker());
        // Nothing was asked yet.
        if guest.connection.is_ending() {
            return Poll::Ready(None);
        }
        accepting.as_mut().poll(context).map(Some)
    });
    let Some(accepted) = accepted.await else { return };
    match accepted {
        Ok(Ok(stream)) => {
            let shown = stream.certificates().and_then(|chain| chain.first());
            guest.connection.shows(shown.and_then(access::tls::caller));
            enter(&local, guest, stream);
        }
        Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
        Err(_) => tracing::debug!("a TLS handshake was not done within {wait:?}"),
    }
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
            stream.shutdown().await?;
            // Closing with unread bytes would reset the connection, and take the answer from the client.
            let (reader, _) = stream.split();
            tokio::io::copy(&mut reader.take(REFUSAL_BYTES_MAX), &mut tokio::io::sink()).await
        };
        if !matches!(tokio::time::timeout(REFUSAL_WAIT, told).await, Ok(Ok(_))) {
            tracing::debug!("a refused connection ended before it was told why");
        }
        local.refusals.set(local.refusals.get() - 1);
    });
}
